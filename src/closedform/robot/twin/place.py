"""Where things are in the twin: workplane, markers on the table, camera, and the arm's tool."""

from __future__ import annotations

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.kinematics import Kinematics
from closedform.robot.twin.block import block_body
from closedform.robot.workplane import Workplane
from closedform.vision.cell import Cell
from closedform.vision.marked_body import square

SIDE = 0.512  # of the square that policies work in
PLANE = Workplane((0.265, -SIDE / 2, 0.0))
DICTIONARY = "DICT_4X4_50"
TABLE_MARKER = 0.06
TABLE_MARKERS = {10: (-0.05, -0.08), 11: (0.562, -0.08), 12: (0.562, 0.592), 13: (-0.05, 0.592)}  # on the workplane
STICK_LENGTH, STICK_RADIUS = 0.16, 0.015
CAMERA_POSITION = np.array([1.44, 0.0, 1.31])  # in the base frame
CAMERA_TARGET = np.array([0.535, 0.0, 0.0])
CAMERA_SIZE = (640, 480)
FIELD_OF_VIEW = 23.5  # degrees from top to bottom
KINEMATICS = Kinematics.of("ur5e", STICK_LENGTH)
HOME = np.radians([195.0, -100.0, 120.0, -110.0, -90.0, 15.0])


def twin_cell() -> Cell:
    """The markers of the twin, with those on the table in the base frame."""
    table = {}
    for number, (x, y) in TABLE_MARKERS.items():
        position = PLANE.to_base(np.array([x, y, 0.0]))
        table[number] = square(TABLE_MARKER, RigidPose.planar(position[0], position[1], 0.0, position[2]))
    return Cell(DICTIONARY, table, (block_body(),))


def camera_axes() -> np.ndarray:
    """(3, 3), whose columns are the camera's x (right), y (down) and z (forward) in the base frame."""
    forward = CAMERA_TARGET - CAMERA_POSITION
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, [0.0, 0.0, 1.0])
    right = right / np.linalg.norm(right)
    return np.stack([right, np.cross(forward, right), forward], axis=1)


def true_camera() -> RigidPose:
    """Takes points of the base frame to the camera's, as it really is."""
    return RigidPose(camera_axes(), CAMERA_POSITION).inverse
