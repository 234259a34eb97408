"""Perception: cameras, their calibration, markers, and the poses of bodies that carry them."""

from closedform.deploy.perception.board import Board
from closedform.deploy.perception.body import MarkerBody, square
from closedform.deploy.perception.calibration import Calibration, calibrate
from closedform.deploy.perception.camera_file import load_intrinsics, save_intrinsics
from closedform.deploy.perception.cell import Cell
from closedform.deploy.perception.extrinsics import CameraPose, find_camera
from closedform.deploy.perception.fit import PoseFit, fit_body
from closedform.deploy.perception.marker_perception import MarkerPerception
from closedform.deploy.perception.markers import Markers, draw_markers, marker_picture
from closedform.deploy.perception.picture_folder import PictureFolder
from closedform.deploy.perception.pose_filter import FilterConfig, PoseFilter
from closedform.deploy.perception.tracker import MarkerTracker, PoseEstimate
from closedform.deploy.perception.video_camera import VideoCamera
from closedform.geometry.rigid_pose import RigidPose

__all__ = [
    "Board",
    "Calibration",
    "CameraPose",
    "Cell",
    "FilterConfig",
    "MarkerBody",
    "MarkerPerception",
    "MarkerTracker",
    "Markers",
    "PictureFolder",
    "PoseEstimate",
    "PoseFilter",
    "PoseFit",
    "RigidPose",
    "VideoCamera",
    "calibrate",
    "draw_markers",
    "find_camera",
    "fit_body",
    "load_intrinsics",
    "marker_picture",
    "save_intrinsics",
    "square",
]
