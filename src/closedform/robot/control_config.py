"""Control config: the parameters of the controller."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from closedform.errors import ConfigError
from closedform.robot.kinematics import Kinematics
from closedform.robot.limits import Limits
from closedform.robot.workplane import Workplane


@dataclass(frozen=True, kw_only=True)
class ControlConfig:
    """The parameters of the controller; lengths in meters, times in seconds, angles in radians.

    Attributes:
        period: of a tick.
        speed, acceleration: the greatest of the tool, the acceleration along each axis of the workplane.
        joint_speed: the greatest of a joint, as a fraction of what the arm can do.
        joint_acceleration: the greatest of a joint.
        joint_range: joints may turn this far to either side of zero; the elbow at most half a turn.
        stiffness, damping: of the point that follows the waypoints; gym-pusht's by default, as in the demonstrations.
        interpolation: between waypoints, `hold` (each is the target until the next one, as in gym-pusht) or `linear`.
        gain: per second, how fast deviations from the reference are corrected.
        singular: below this smallest singular value the inverse is damped.
        plan_timeout: without a fresh plan for so long, the arm halts.
        state_timeout: without a new state of the arm for so long, it halts.
        alarm_patience: an alarm that lasts for so long halts the arm.
        tolerance: the tool may be measured this far outside the workspace.
        tracking: the arm may be this far from its commands.
        height: of the tip above the workplane.
        clearance: the height at which the tool travels to where it starts.
    """

    period: float = 0.005
    speed: float = 0.5
    acceleration: float = 5.0
    joint_speed: float = 0.8
    joint_acceleration: float = 15.0
    joint_range: float = 2 * np.pi
    stiffness: float = 100.0
    damping: float = 20.0
    interpolation: Literal["hold", "linear"] = "hold"
    gain: float = 20.0
    singular: float = 0.03
    plan_timeout: float = 0.3
    state_timeout: float = 0.1
    alarm_patience: float = 1.0
    tolerance: float = 0.01
    tracking: float = 0.3
    height: float = 0.008
    clearance: float = 0.08

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "interpolation" and not (
                isinstance(value, (int, float)) and np.isfinite(value) and value > 0
            ):
                raise ConfigError(f"{field.name}: expected a number above 0, found {value!r}")
        if self.interpolation not in ("hold", "linear"):
            raise ConfigError(f"interpolation: expected 'hold' or 'linear', found {self.interpolation!r}")
        if self.joint_speed > 1:
            raise ConfigError(f"joint_speed: expected a fraction of the arm's, at most 1, found {self.joint_speed!r}")
        if self.period > 0.02 or self.period * self.damping >= 1:
            raise ConfigError(f"period: expected at most 0.02 s and 1 / damping, found {self.period!r}")
        if self.plan_timeout <= self.period:
            raise ConfigError(f"plan_timeout: expected more than a period, found {self.plan_timeout!r}")

    def limits(self, kinematics: Kinematics) -> Limits:
        """The limits of an arm's joints."""
        reach = np.full(6, self.joint_range)
        reach[2] = min(self.joint_range, np.pi)  # the elbow
        speed = self.joint_speed * np.array(kinematics.model.speed)
        return Limits(-reach, reach, speed, np.full(6, self.joint_acceleration))


@dataclass(frozen=True)
class Workspace:
    """Where the tool may be: a box in the frame of a workplane.

    Attributes:
        plane: the workplane.
        lower, upper: (3,) meters along x, y and up.
    """

    plane: Workplane
    lower: np.ndarray
    upper: np.ndarray

    def __post_init__(self):
        for name in ("lower", "upper"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.float64))
        corners = np.stack([self.lower, self.upper])
        if corners.shape != (2, 3) or not np.isfinite(corners).all() or not np.all(corners[0] < corners[1]):
            raise ConfigError("a workspace: expected two corners of three numbers each, the lower one first")

    @classmethod
    def around(cls, plane: Workplane, positions: np.ndarray, margin: float, config: ControlConfig) -> Workspace:
        """The box around demonstrated positions (n, 2) of the tool, in the policy's units, plus a margin in meters."""
        if not (np.isfinite(margin) and margin >= 0):
            raise ConfigError(f"margin: expected 0 meters or more, found {margin!r}")
        points = plane.to_points(np.asarray(positions, np.float64))
        lower, upper = points.min(axis=0) - margin, points.max(axis=0) + margin
        lower[2], upper[2] = 0.5 * config.height, config.clearance + 0.02
        return cls(plane, lower, upper)

    def outside(self, point: np.ndarray, tolerance: float = 0.0) -> str | None:
        """Where a point (3,) of the plane's frame lies outside, in words, or None."""
        beyond = np.maximum(self.lower - point, point - self.upper)
        axis = int(np.argmax(beyond))
        if beyond[axis] <= tolerance:
            return None
        return (
            f"{('x', 'y', 'height')[axis]} = {1e3 * point[axis]:.0f} mm is outside "
            f"{1e3 * self.lower[axis]:.0f} to {1e3 * self.upper[axis]:.0f} mm"
        )
