"""Rotations in space (SO(3)): matrices, their first two columns, quaternions and axis-angle vectors.

Leading axes are arbitrary. `rotation_matrix` and `two_columns` take torch tensors as well, since planning uses them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace


def nearest_rotation(columns: np.ndarray) -> np.ndarray:
    """The rotation whose first two columns are nearest in the least-squares sense. (..., 6) -> (..., 3, 3).

    Averaged columns are neither unit-length nor orthogonal. Unlike `rotation_matrix`, this corrects both columns
    equally: they are multiplied by the inverse square root of their 2 x 2 Gram matrix.
    """
    x, y = columns[..., :3], columns[..., 3:]
    xx, xy, yy = (np.sum(a * b, -1, keepdims=True) for a, b in ((x, x), (x, y), (y, y)))
    area = np.sqrt(np.maximum(xx * yy - xy * xy, 0.0))
    size = np.sqrt(xx + yy + 2 * area)
    sound = area > 1e-9 * np.maximum(size * size, 1e-300)  # else there is no unique nearest one
    scale = size / np.where(sound, (xx + area) * (yy + area) - xy * xy, 1.0)
    nearest = np.concatenate([((yy + area) * x - xy * y) * scale, ((xx + area) * y - xy * x) * scale], -1)
    return rotation_matrix(np.where(sound, nearest, columns))


def rotation_matrix(columns: Any) -> Any:
    """The rotation that Gram-Schmidt orthogonalization makes of two columns. (..., 6) -> (..., 3, 3).

    Takes numpy arrays or torch tensors.
    """
    xp = array_namespace(columns)
    x, y = columns[..., :3], columns[..., 3:]
    x = x / xp.clip(xp.linalg.vector_norm(x, axis=-1, keepdims=True), 1e-12)
    y = y - xp.sum(x * y, axis=-1, keepdims=True) * x
    y = y / xp.clip(xp.linalg.vector_norm(y, axis=-1, keepdims=True), 1e-12)
    return xp.stack([x, y, xp.linalg.cross(x, y)], axis=-1)


def two_columns(matrix: Any) -> Any:
    """The first two columns, concatenated, of numpy arrays or torch tensors. (..., 3, 3) -> (..., 6)."""
    return array_namespace(matrix).concat([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)


def columns_of_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """The first two columns of a unit quaternion's (x, y, z, w) rotation matrix. (..., 4) -> (..., 6)."""
    norm = np.linalg.norm(quaternion, axis=-1, keepdims=True)
    x, y, z, w = np.moveaxis(quaternion / np.maximum(norm, 1e-12), -1, 0)
    first = (1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w))
    second = (2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w))
    return np.stack(first + second, -1)


def quaternion_of(matrix: np.ndarray) -> np.ndarray:
    """The unit quaternion (x, y, z, w) with w >= 0 of a rotation matrix. (..., 3, 3) -> (..., 4).

    Each row of the symmetric 4x4 matrix 4 q q^T is the quaternion times one of its own components; the row with the
    largest diagonal entry is the best conditioned.
    """
    m = matrix
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    xw, yw, zw = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    rows = np.stack(
        [
            np.stack([1 + xx - yy - zz, xy, xz, xw], -1),
            np.stack([xy, 1 - xx + yy - zz, yz, yw], -1),
            np.stack([xz, yz, 1 - xx - yy + zz, zw], -1),
            np.stack([xw, yw, zw, 1 + xx + yy + zz], -1),
        ],
        -2,
    )
    best = np.argmax(np.diagonal(rows, axis1=-2, axis2=-1), -1)
    quaternion = np.take_along_axis(rows, best[..., None, None], -2)[..., 0, :]
    quaternion = quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True)
    return np.where(quaternion[..., 3:] < 0, -quaternion, quaternion)


def matrix_of_axis_angle(vector: np.ndarray) -> np.ndarray:
    """Rodrigues' formula. (..., 3) -> (..., 3, 3)."""
    angle = np.linalg.norm(vector, axis=-1)[..., None, None]
    cross = cross_matrix(vector / np.maximum(angle[..., 0], 1e-12))
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def axis_angle_of(matrix: np.ndarray) -> np.ndarray:
    """The inverse of `matrix_of_axis_angle`, with angles up to pi. (..., 3, 3) -> (..., 3)."""
    quaternion = quaternion_of(matrix)
    sine = np.linalg.norm(quaternion[..., :3], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(sine, quaternion[..., 3:])
    return quaternion[..., :3] * np.where(sine > 1e-12, angle / np.maximum(sine, 1e-12), 2.0)


def angle_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The angle in radians between rotations (..., 3, 3). -> (...)"""
    traces = np.einsum("...ij,...ij->...", first, second)
    return np.arccos(np.clip((traces - 1) / 2, -1, 1))


def cross_matrix(vector: np.ndarray) -> np.ndarray:
    """The matrix whose product with a vector is the cross product with it. (..., 3) -> (..., 3, 3)."""
    x, y, z = np.moveaxis(vector, -1, 0)
    zero = np.zeros_like(x)
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*x.shape, 3, 3)


def smallest_turn(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The smallest rotation from a unit vector (3,) to others (..., 3), none of which is opposite."""
    cross = cross_matrix(np.cross(np.broadcast_to(start, end.shape), end))
    return np.eye(3) + cross + cross @ cross / (1 + end @ start)[..., None, None]


def turn_about(axis: int, angle: float) -> np.ndarray:
    """The rotation (3, 3) about a coordinate axis."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    turn = np.eye(3)
    turn[i, i] = turn[j, j] = np.cos(angle)
    turn[j, i] = np.sin(angle)
    turn[i, j] = -turn[j, i]
    return turn


def columns_about_z(direction: np.ndarray) -> np.ndarray:
    """The first two columns of rotations about z, given the cosine and sine of the angle. (..., 2) -> (..., 6)."""
    cos, sin = direction[..., 0], direction[..., 1]
    zero = np.zeros_like(cos)
    return np.stack([cos, sin, zero, -sin, cos, zero], axis=-1)
