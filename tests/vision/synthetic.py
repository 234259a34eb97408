"""Synthetic cameras and sights."""

from functools import cache

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import matrix_of_axis_angle
from closedform.robot.twin.place import true_camera
from closedform.vision.board import Board
from closedform.vision.camera import Intrinsics
from closedform.vision.pinhole import project, rays

CURVED = np.array([-0.12, 0.05, 0.001, -0.0015, 0.0])
INTRINSICS = Intrinsics((640, 480), np.array([[1150.0, 0, 322], [0, 1145.0, 236], [0, 0, 1]]), CURVED)
CAMERA = true_camera()


def sight(body, pose, rng, noise=0.0, numbers=None, intrinsics=INTRINSICS, camera=CAMERA):
    """The corners of a body's markers as a camera sees them."""
    return {
        number: project(intrinsics, camera(pose(corners)))[0] + rng.normal(scale=noise, size=(4, 2))
        for number, corners in body.corners.items()
        if numbers is None or number in numbers
    }


def random_rotation(rng) -> np.ndarray:
    axis = rng.normal(size=3)
    return matrix_of_axis_angle(rng.uniform(0, 3) * axis / np.linalg.norm(axis))


def board_poses(board: Board, rng, n: int, intrinsics: Intrinsics) -> list[RigidPose]:
    """Poses that show a board tilted, in different parts of the picture."""
    middle = board.points.mean(0)
    width, height = intrinsics.size
    poses = []
    for index in range(n):
        rotation = matrix_of_axis_angle(rng.uniform(-0.5, 0.5, 3) * [1, 1, 0.6])
        depth = rng.uniform(0.9, 1.25) * intrinsics.matrix[0, 0] * 0.27 / (0.55 * width)
        corner = np.array([index % 2, index // 2 % 2]) * 0.3 + 0.35
        ray = rays(intrinsics, (corner * [width, height])[None])[0]
        poses.append(RigidPose(rotation, depth * ray - rotation @ middle))
    return poses


def photograph(board: Board, pose: RigidPose) -> np.ndarray:
    """A picture of a board, by following every pixel's ray to it; four rays a pixel."""
    import cv2

    dots, border = 24, 24
    drawn = board.picture(dots, border).astype(np.float32)
    width, height = INTRINSICS.size
    total, center = np.zeros((height, width), np.float32), pose.inverse.position
    for seen in _all_rays():
        directions = seen @ pose.rotation.astype(np.float32)
        on_board = center[:2] - center[2] / directions[:, 2:] * directions[:, :2]
        at = (on_board / board.square * dots + border - 0.5).astype(np.float32).reshape(height, width, 2)
        total += cv2.remap(drawn, at[..., 0].copy(), at[..., 1].copy(), cv2.INTER_LINEAR, borderValue=90) / 4
    return total.round().astype(np.uint8)


@cache
def _all_rays() -> list[np.ndarray]:
    """The rays of all pixels, from four places of each."""
    width, height = INTRINSICS.size
    places = [
        np.meshgrid(np.arange(width) + dx, np.arange(height) + dy) for dx in (-0.25, 0.25) for dy in (-0.25, 0.25)
    ]
    return [rays(INTRINSICS, np.column_stack([x.ravel(), y.ravel()])).astype(np.float32) for x, y in places]
