"""Limits: how far, how fast and how abruptly joints and tool may move, kept by every command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Limits of the joints.

    Attributes:
        lower, upper: (n,) radians.
        speed: (n,) radians a second.
        acceleration: (n,) radians per second squared.
    """

    lower: np.ndarray
    upper: np.ndarray
    speed: np.ndarray
    acceleration: np.ndarray

    def __post_init__(self):
        for name in ("lower", "upper", "speed", "acceleration"):
            numbers = np.asarray(getattr(self, name), np.float64)
            if numbers.ndim != 1 or numbers.shape != np.shape(self.lower) or not np.isfinite(numbers).all():
                raise ConfigError(f"{name}: expected one finite number per joint, found shape {numbers.shape}")
            object.__setattr__(self, name, numbers)
        if not (np.all(self.lower < self.upper) and np.all(self.speed > 0) and np.all(self.acceleration > 0)):
            raise ConfigError("joint limits: expected lower < upper, and speeds and accelerations above 0")

    def check(self, joints: np.ndarray) -> str | None:
        """What is wrong with joint angles (n,), in words, or None."""
        outside = np.flatnonzero((joints < self.lower) | (joints > self.upper))
        if not outside.size:
            return None
        i = int(outside[0])
        return f"joint {i + 1} at {joints[i]:.3f} rad is outside {self.lower[i]:.3f} to {self.upper[i]:.3f}"

    def next_velocity(self, joints: np.ndarray, velocity: np.ndarray, wanted: np.ndarray, dt: float) -> np.ndarray:
        """The velocity (n,) nearest to the wanted one that can be commanded for the next `dt` seconds.

        Speeds and accelerations are limited along the wanted direction. Then each joint is slowed down such that it can
        still brake before its end. For an arm that started at rest within its limits this never contradicts the limit
        of acceleration: `braking_speed` shrinks by at most `acceleration * dt` from one step to the next.
        """
        wanted = wanted * min(1.0, float(np.min(self.speed / np.maximum(np.abs(wanted), 1e-12))))
        most = self.acceleration * dt
        change = wanted - velocity
        change = change * min(1.0, float(np.min(most / np.maximum(np.abs(change), 1e-12))))
        down = -braking_speed(joints - self.lower, self.acceleration, dt)
        up = braking_speed(self.upper - joints, self.acceleration, dt)
        limited = np.clip(velocity + change, down, up)
        return np.clip(limited, velocity - most, velocity + most)


def braking_speed(distance: np.ndarray, deceleration: np.ndarray | float, dt: float) -> np.ndarray:
    """The greatest speed for the next `dt` seconds from which one can still stop within a distance.

    Solves `v dt + v^2 / (2 a) = distance`: one step at this speed, then braking. After that step a speed of
    `v - a dt` fits the distance that is left, so that braking in steps never has to be harder than `a`.
    """
    distance = np.maximum(distance, 0.0)
    return deceleration * (np.sqrt(dt * dt + 2 * distance / deceleration) - dt)
