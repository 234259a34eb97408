"""ReferencePoint: the point that follows timed waypoints smoothly, within the workspace."""

from __future__ import annotations

import numpy as np

from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.limits import braking_speed


class ReferencePoint:
    """A point on a spring and a damper that is drawn to the waypoints; it never leaves the workspace.

    Its speed is limited, its acceleration along each axis as well, and it slows down early enough to stop before the
    walls of the workspace.

    Attributes:
        position, velocity: (3,) in the workplane's frame.
    """

    def __init__(self, config: ControlConfig, workspace: Workspace, position: np.ndarray):
        self._config, self._workspace = config, workspace
        self.position, self.velocity = np.clip(position, workspace.lower, workspace.upper), np.zeros(3)

    def target(self, time: float, times: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The waypoint (3,) to be drawn to at a time, within the workspace, and how fast it moves (3,)."""
        if self._config.interpolation == "hold" or len(times) == 1:
            index = max(int(np.searchsorted(times, time, side="right")) - 1, 0)
            point, rate = points[index], np.zeros(3)
        else:
            index = min(max(int(np.searchsorted(times, time, side="right")) - 1, 0), len(times) - 2)
            span = times[index + 1] - times[index]
            share = (time - times[index]) / span if span > 0 else 1.0
            slope = (points[index + 1] - points[index]) / span if span > 0 and 0 <= share <= 1 else np.zeros(3)
            point, rate = points[index] + min(max(share, 0.0), 1.0) * (points[index + 1] - points[index]), slope
        inside = np.clip(point, self._workspace.lower, self._workspace.upper)
        return inside, np.where(inside == point, rate, 0.0)

    def step(self, target: np.ndarray, rate: np.ndarray) -> None:
        """Moves for one period."""
        config, space = self._config, self._workspace
        dt, most = config.period, config.acceleration * config.period
        pull = config.stiffness * (target - self.position) + config.damping * (rate - self.velocity)
        wanted = self.velocity + dt * pull
        wanted = wanted * min(1.0, config.speed / max(float(np.linalg.norm(wanted)), 1e-12))
        change = wanted - self.velocity
        velocity = self.velocity + change * min(1.0, most / max(float(np.linalg.norm(change)), 1e-12))
        down = -braking_speed(self.position - space.lower, config.acceleration, dt)
        up = braking_speed(space.upper - self.position, config.acceleration, dt)
        self.velocity = np.clip(np.clip(velocity, down, up), self.velocity - most, self.velocity + most)
        self.position = np.clip(self.position + dt * self.velocity, space.lower, space.upper)

    def wait_for(self, position: np.ndarray, most: float) -> None:
        """Moves no farther than `most` meters from where the tool is, so that it does not run away from a slow arm."""
        ahead = self.position - position
        distance = float(np.linalg.norm(ahead))
        if distance > most:
            self.position = position + ahead * (most / distance)
