"""Vision: bodies found in the pictures of a fixed camera, without training, and the poses of marked ones."""

from closedform.vision.background import Background
from closedform.vision.body import Body
from closedform.vision.camera import Camera, Image, Intrinsics
from closedform.vision.planar_bodies import PlanarBodies
from closedform.vision.plane_view import PlaneView
from closedform.vision.similarity import Similarity
from closedform.vision.template import SeenPose
from closedform.vision.tracker import Tracker

__all__ = [
    "Background",
    "Body",
    "Camera",
    "Image",
    "Intrinsics",
    "PlanarBodies",
    "PlaneView",
    "SeenPose",
    "Similarity",
    "Tracker",
]
