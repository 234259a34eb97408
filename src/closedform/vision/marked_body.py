"""MarkedBody: a rigid set of markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.rigid_pose import RigidPose


@dataclass(frozen=True)
class MarkedBody:
    """A rigid set of markers.

    Attributes:
        name: of the body.
        corners: (4, 3) of each marker in the body's frame by its number, in meters; clockwise as seen from the front,
            beginning at the top left corner of the marker's picture, as OpenCV orders them.
        height: z of the body's origin where it only slides and turns on a horizontal plane; None if it moves freely.
    """

    name: str
    corners: Mapping[int, np.ndarray]
    height: float | None = None

    def __post_init__(self) -> None:
        if not self.corners:
            raise ConfigError(f"the body {self.name!r}: expected at least one marker, found none")
        if self.height is not None and not np.isfinite(self.height):
            raise ConfigError(f"the body {self.name!r}: expected a finite height, found {self.height}")
        for number, corners in self.corners.items():
            if np.shape(corners) != (4, 3) or not np.isfinite(corners).all():
                raise ConfigError(
                    f"marker {number} of the body {self.name!r}: expected 4 corners of 3 finite numbers, found "
                    f"an array of shape {np.shape(corners)}"
                )
            if _size(corners) < 1e-6:
                raise ConfigError(f"marker {number} of the body {self.name!r}: expected a size above 0, found 0")

    @property
    def planar(self) -> bool:
        """Whether the body only slides and turns on a plane."""
        return self.height is not None

    @property
    def radius(self) -> float:
        """The largest distance of a corner from the origin."""
        return float(max(np.linalg.norm(corners, axis=1).max() for corners in self.corners.values()))


def square(size: float, center: RigidPose) -> np.ndarray:
    """The corners (4, 3) of a marker.

    Args:
        size: length of its black edge in meters.
        center: takes points of the marker's frame (x right and y up on its picture, z toward the viewer) to the body's.
    """
    half = size / 2
    return center(np.array([[-half, half, 0.0], [half, half, 0.0], [half, -half, 0.0], [-half, -half, 0.0]]))


def _size(corners: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(corners)[1] - np.asarray(corners)[0]))
