"""PoseFilter: a Kalman filter of a body's pose with constant velocity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import axis_angle_of, matrix_of_axis_angle


@dataclass(frozen=True)
class FilterConfig:
    """What a body can do, and what to make of sights that do not fit.

    Attributes:
        acceleration: standard deviation of a body's acceleration, in m/s^2.
        angular_acceleration: likewise, in rad/s^2.
        speed, angular_speed: the largest standard deviation of a change in velocity, in m/s and rad/s.
        fading: seconds in which velocity that is not seen fades: a body that nobody pushes comes to rest.
        floor, angular_floor: the least standard deviation of a measurement, in meters and radians.
        gate: a measurement further than this many standard deviations from the prediction is an outlier.
        n_outliers: so many in a row that agree with each other are believed: the body was moved.
        lost_after: seconds without sight after which a body is lost.
    """

    acceleration: float = 3.0
    angular_acceleration: float = 20.0
    speed: float = 0.15
    angular_speed: float = 1.5
    fading: float = 0.5
    floor: float = 3e-4
    angular_floor: float = 3e-3
    gate: float = 5.0
    n_outliers: int = 3
    lost_after: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not np.isfinite(value) or value <= 0:
                raise ConfigError(f"{name} of a filter: expected a number above 0, found {value!r}")


class PoseFilter:
    """Filters the poses of one body: outliers are left out, and the pose is predicted to any later time.

    Position and rotation have a 2x2 covariance each (of place and velocity, the same in every direction). Times are
    those of exposure, so that predicting to the present makes up for the camera's latency.

    Args:
        config: see `FilterConfig`.
    """

    def __init__(self, config: FilterConfig | None = None):
        self.config = config or FilterConfig()
        self.reset()

    def reset(self) -> None:
        """Forgets everything."""
        self._time: float | None = None
        self._pose = RigidPose(np.eye(3), np.zeros(3))
        self._velocities = np.zeros((2, 3))  # of position and rotation
        self._covariances = np.zeros((2, 2, 2))
        self._refused: list[tuple[float, RigidPose]] = []

    @property
    def time(self) -> float | None:
        """When the body was last seen; None if never."""
        return self._time

    def update(self, time: float, pose: RigidPose, deviations: np.ndarray) -> bool:
        """Takes a measurement in; returns whether it was believed.

        Args:
            time: of exposure, in seconds; measurements that are not newer than the last are left out.
            pose: the measured pose.
            deviations: standard deviations (2,) of position and rotation.
        """
        config = self.config
        noise = np.maximum(deviations, [config.floor, config.angular_floor]) ** 2
        if self._time is None or time - self._time > 2 * config.lost_after:
            self._begin(time, pose, noise)
            return True
        if time <= self._time:
            return False
        predicted, velocities, covariances = self._predict(time)
        off = _difference(predicted, pose)
        spread = covariances[:, 0, 0] + noise
        if ((off**2).sum(1) > config.gate**2 * spread).any():
            return self._refuse(time, pose, noise)
        gains = covariances[:, :, 0] / spread[:, None]  # (2, 2)
        step = gains[:, 0, None] * off
        self._pose = RigidPose(predicted.rotation @ matrix_of_axis_angle(step[1]), predicted.position + step[0])
        self._velocities = velocities + gains[:, 1, None] * off
        self._covariances = covariances - gains[:, :, None] * covariances[:, 0][:, None, :]
        self._time, self._refused = time, []
        return True

    def at(self, time: float) -> RigidPose | None:
        """The pose predicted for a time (of the last sight, if that is later); None if the body was never seen."""
        return None if self._time is None else self._predict(time)[0]

    def lost(self, time: float) -> bool:
        """Whether the body was not seen for too long."""
        return self._time is None or time - self._time > self.config.lost_after

    def _begin(self, time: float, pose: RigidPose, noise: np.ndarray) -> None:
        self._time, self._pose, self._velocities, self._refused = time, pose, np.zeros((2, 3)), []
        self._covariances = np.zeros((2, 2, 2))
        self._covariances[:, 0, 0] = noise
        self._covariances[:, 1, 1] = self.config.speed**2, self.config.angular_speed**2  # it may move already

    def _refuse(self, time: float, pose: RigidPose, noise: np.ndarray) -> bool:
        """Begins anew at outliers that agree with each other, within the gate and what a body can move."""
        config, spread = self.config, np.sqrt(noise)
        if self._refused:
            before, other = self._refused[-1]
            speeds = np.array([config.speed, config.angular_speed])
            reach = config.gate * (spread + speeds * (time - before))
            if (np.linalg.norm(_difference(other, pose), axis=1) > reach).any():
                self._refused = []
        self._refused.append((time, pose))
        if len(self._refused) < config.n_outliers:
            return False
        self._begin(time, pose, noise)
        return True

    def _predict(self, time: float) -> tuple[RigidPose, np.ndarray, np.ndarray]:
        config = self.config
        dt = max(time - (self._time or 0.0), 0.0)
        kept = np.exp(-dt / config.fading)
        effective = config.fading * (1 - kept)  # seconds at the velocity of the last sight
        moves = effective * self._velocities
        pose = RigidPose(self._pose.rotation @ matrix_of_axis_angle(moves[1]), self._pose.position + moves[0])
        transition = np.array([[1.0, effective], [0.0, kept]])
        jumps = np.zeros((2, 2, 2))  # a push changes the velocity right after the last sight, which never overshoots
        most = np.array([config.speed, config.angular_speed])
        jumps[:, 1, 1] = np.minimum(dt * np.array([config.acceleration, config.angular_acceleration]), most) ** 2
        covariances = transition @ (self._covariances + jumps) @ transition.T
        return pose, kept * self._velocities, covariances


def _difference(one: RigidPose, other: RigidPose) -> np.ndarray:
    """(2, 3), what has to be added to the position of one pose, and appended to its rotation, to get another."""
    return np.stack([other.position - one.position, axis_angle_of(one.rotation.T @ other.rotation)])
