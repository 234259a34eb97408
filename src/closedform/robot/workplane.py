"""Workplane: where the plane of a policy's positions lies in front of the arm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closedform.errors import ConfigError


@dataclass(frozen=True)
class Workplane:
    """A plane in the arm's base frame, whose coordinates are the positions that a policy observes and commands.

    Measured by touching three points with the tip: the origin, one along x, one along y. The plane may be mirrored, as
    the pixels of Push-T are, whose y points down: `up` points away from the table in any case.

    Attributes:
        origin: (3,) meters in the base frame, of the position (0, 0).
        x_axis, y_axis: (3,) directions in the base frame; the second is made perpendicular to the first.
        scale: meters per unit of the policy; 0.001 for Push-T, where a pixel is a millimeter.
    """

    origin: tuple[float, float, float]
    x_axis: tuple[float, float, float] = (1.0, 0.0, 0.0)
    y_axis: tuple[float, float, float] = (0.0, 1.0, 0.0)
    scale: float = 0.001

    def __post_init__(self):
        numbers = np.array([self.origin, self.x_axis, self.y_axis], np.float64)
        if numbers.shape != (3, 3) or not np.isfinite(numbers).all():
            raise ConfigError("a workplane: expected an origin and two directions of three finite numbers each")
        if not (np.isfinite(self.scale) and self.scale > 0):
            raise ConfigError(f"scale: expected meters per unit, above 0, found {self.scale!r}")
        x, y = numbers[1:]
        lengths = np.linalg.norm(x) * np.linalg.norm(y)
        if not lengths > 0 or np.linalg.norm(np.cross(x, y)) < 0.5 * lengths:
            raise ConfigError("a workplane: expected two directions more than 30 degrees apart, found others")
        if abs(self.axes[2, 2]) < 0.9:
            raise ConfigError("a workplane: expected a table that is level within 25 degrees, found a steeper one")

    @classmethod
    def touched(
        cls,
        origin: Sequence[float],
        along_x: Sequence[float],
        along_y: Sequence[float],
        scale: float = 0.001,
    ) -> Workplane:
        """The plane through three points (3,) that the tip touched, in meters in the base frame."""
        o, x, y = (np.asarray(point, np.float64) for point in (origin, along_x, along_y))
        if any(point.shape != (3,) for point in (o, x, y)):
            raise ConfigError("a workplane: expected three points of three numbers each")
        as_tuple = [tuple(map(float, numbers)) for numbers in (o, x - o, y - o)]
        return cls(*as_tuple, scale=scale)  # pyright: ignore[reportArgumentType]

    @cached_property
    def axes(self) -> np.ndarray:
        """(3, 3), whose columns are x, y and up in the base frame; a reflection where the plane is mirrored."""
        x = np.asarray(self.x_axis, np.float64)
        x = x / np.linalg.norm(x)
        y = np.asarray(self.y_axis, np.float64)
        y = y - (x @ y) * x
        y = y / np.linalg.norm(y)
        up = np.cross(x, y)
        return np.stack([x, y, up if up[2] > 0 else -up], axis=1)

    def to_base(self, points: np.ndarray) -> np.ndarray:
        """(..., 3), in the base frame, of points (..., 3) of the plane's frame, in meters along x, y and up."""
        return points @ self.axes.T + np.asarray(self.origin)

    def from_base(self, points: np.ndarray) -> np.ndarray:
        """(..., 3), meters along x, y and up, of points (..., 3) of the base frame."""
        return (points - np.asarray(self.origin)) @ self.axes

    def to_points(self, positions: np.ndarray, height: float = 0.0) -> np.ndarray:
        """(..., 3), meters along x, y and up, of the policy's positions (..., 2)."""
        positions = np.asarray(positions, np.float64) * self.scale
        return np.concatenate([positions, np.full((*positions.shape[:-1], 1), height)], axis=-1)

    def to_positions(self, points: np.ndarray) -> np.ndarray:
        """(..., 2), the policy's positions, of points (..., 3) of the plane's frame."""
        return points[..., :2] / self.scale

    def tool_rotation(self, rotation: np.ndarray) -> np.ndarray:
        """(3, 3), the rotation nearest to `rotation` (3, 3) in which the tool points straight at the table."""
        z = -self.axes[:, 2]
        x = rotation[:, 0] - (rotation[:, 0] @ z) * z
        if np.linalg.norm(x) < 0.1:
            x = -(rotation[:, 2] - (rotation[:, 2] @ z) * z) * np.sign(rotation[:, 0] @ z)
        x = x / np.linalg.norm(x)
        return np.stack([x, np.cross(z, x), z], axis=1)
