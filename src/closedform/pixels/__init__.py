"""Pixels: bodies found in the pictures of a fixed camera, without training."""

from closedform.pixels.background import Background
from closedform.pixels.body import Body
from closedform.pixels.planar_bodies import PlanarBodies
from closedform.pixels.plane_view import PlaneView
from closedform.pixels.similarity import Similarity
from closedform.pixels.template import SeenPose
from closedform.pixels.tracker import Tracker

__all__ = ["Background", "Body", "PlanarBodies", "PlaneView", "SeenPose", "Similarity", "Tracker"]
