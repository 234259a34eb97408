"""RigidPose: where a body, a hand or a camera is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from closedform.geometry.so3 import turn_about


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
        return cls(turn_about(2, angle), np.array([x, y, z], float))
