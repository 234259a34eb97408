"""Projection of points into a camera's picture, and back onto a plane."""

from __future__ import annotations

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.vision.camera import Intrinsics
from closedform.vision.opencv import import_cv2

_ZERO = np.zeros(3)


def project(intrinsics: Intrinsics, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Projects points of the camera's frame (x right, y down, z forward).

    Args:
        intrinsics: of the camera.
        points: (N, 3) in meters.

    Returns:
        Pixels (N, 2) and their derivatives with respect to the points (N, 2, 3).
    """
    cv2 = import_cv2("projecting points")
    pixels, jacobian = cv2.projectPoints(
        np.ascontiguousarray(points, float), _ZERO, _ZERO, intrinsics.matrix, intrinsics.distortion
    )
    return pixels.reshape(-1, 2), jacobian[:, 3:6].reshape(-1, 2, 3)


def rays(intrinsics: Intrinsics, pixels: np.ndarray) -> np.ndarray:
    """The directions (N, 3) that pixels (N, 2) look into, in the camera's frame and with z = 1."""
    cv2 = import_cv2("undistorting points")
    flat = cv2.undistortPoints(
        np.ascontiguousarray(pixels, float).reshape(-1, 1, 2), intrinsics.matrix, intrinsics.distortion
    ).reshape(-1, 2)
    return np.column_stack([flat, np.ones(len(flat))])


def onto_plane(intrinsics: Intrinsics, camera: RigidPose, pixels: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Where the rays of pixels meet horizontal planes.

    Args:
        intrinsics: of the camera.
        camera: takes points of the world to the camera's frame.
        pixels: (N, 2)
        heights: (N,) of the planes, z in the world.

    Returns:
        (N, 2), x and y in the world; not finite for rays that run along the plane.
    """
    directions = rays(intrinsics, pixels) @ camera.rotation  # rows are R^T d
    center = camera.inverse.position
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = (heights - center[2]) / directions[:, 2]
        return center[:2] + reach[:, None] * directions[:, :2]
