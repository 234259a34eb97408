"""RigidPose: where a body or a camera is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class RigidPose(NamedTuple):
    """Takes points of one frame to another: x -> rotation @ x + position.

    Attributes:
        rotation: (3, 3)
        position: (3,) in meters.
    """

    rotation: np.ndarray
    position: np.ndarray

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """The points (..., 3) in the other frame."""
        return points @ self.rotation.T + self.position

    @property
    def inverse(self) -> RigidPose:
        """The way back."""
        return RigidPose(self.rotation.T, -self.rotation.T @ self.position)

    def after(self, first: RigidPose) -> RigidPose:
        """The pose that applies `first` and then this one."""
        return RigidPose(self.rotation @ first.rotation, self(first.position))

    @property
    def angle(self) -> float:
        """The angle about the z axis, in radians."""
        return float(np.arctan2(self.rotation[1, 0], self.rotation[0, 0]))

    @classmethod
    def planar(cls, x: float, y: float, angle: float, z: float = 0.0) -> RigidPose:
        """A pose that is turned only about the z axis."""
        cos, sin = np.cos(angle), np.sin(angle)
        return cls(np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]]), np.array([x, y, z], float))


def exponential(vector: np.ndarray) -> np.ndarray:
    """The rotation (3, 3) of a rotation vector (3,), by Rodrigues' formula."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    if angle < 1e-8:
        return np.eye(3) + cross
    return np.eye(3) + np.sin(angle) / angle * cross + (1 - np.cos(angle)) / angle**2 * cross @ cross


def logarithm(rotation: np.ndarray) -> np.ndarray:
    """The rotation vector (3,) of a rotation (3, 3), its length at most pi."""
    twice = np.array(
        [rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]]
    )
    sin, cos = float(np.linalg.norm(twice)) / 2, (float(np.trace(rotation)) - 1) / 2
    angle = np.arctan2(sin, cos)
    if sin > 1e-6:
        return twice * (angle / (2 * sin))
    if cos > 0:
        return twice / 2
    _, vectors = np.linalg.eigh((rotation + rotation.T) / 2)  # half a turn: the axis is the eigenvector of 1
    return angle * vectors[:, 2]
