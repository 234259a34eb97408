"""LeRobot adapters: our arms as LeRobot robots, and a LeRobot robot as our arm; lerobot is imported only if asked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from closedform.errors import ArmError, DataError
from closedform.robot.interfaces import Arm, ArmState
from closedform.robot.limits import Limits, braking_speed
from closedform.vision.camera import Camera

_SUFFIX = ".pos"


class LeRobotLike(Protocol):
    """The part of LeRobot's `Robot` that is used."""

    @property
    def action_features(self) -> Mapping[str, Any]:
        """What an action consists of."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether it is connected."""
        ...

    def connect(self, calibrate: bool = True) -> None:
        """Connects."""
        ...

    def get_observation(self) -> Mapping[str, Any]:
        """The newest observation."""
        ...

    def send_action(self, action: dict[str, Any]) -> Mapping[str, Any]:
        """Moves toward an action; returns what was really sent."""
        ...

    def disconnect(self) -> None:
        """Disconnects."""
        ...


class ArmAsRobot:
    """An arm with the methods of LeRobot's `Robot`.

    Observations and actions have an entry `joint_1.pos` in radians for each joint, observations also a picture for each
    camera. An action is approached within the limits, from where the last one led: an action too far away is not
    reached at once, and `send_action` returns what was commanded instead.

    Args:
        arm: any arm.
        limits: of its joints.
        rate: at which actions are sent.
        cameras: by name.
    """

    name = "closedform_arm"

    def __init__(self, arm: Arm, limits: Limits, rate: float, cameras: Mapping[str, Camera] | None = None):
        self.arm, self.cameras, self.robot_type, self.id = arm, dict(cameras or {}), self.name, None
        self._limits, self._dt = limits, 1 / rate
        self._joints, self._velocities = np.zeros(arm.n_joints), np.zeros(arm.n_joints)
        self._connected = False

    @property
    def _names(self) -> list[str]:
        return [f"joint_{i + 1}{_SUFFIX}" for i in range(self.arm.n_joints)]

    @property
    def observation_features(self) -> dict[str, Any]:
        """A number for each joint, and the shape of each picture."""
        pictures = {name: (*camera.intrinsics.size[::-1], 3) for name, camera in self.cameras.items()}
        return {**self.action_features, **pictures}

    @property
    def action_features(self) -> dict[str, Any]:
        """A number for each joint."""
        return dict.fromkeys(self._names, float)

    @property
    def is_connected(self) -> bool:
        """Whether it is connected."""
        return self._connected

    @property
    def is_calibrated(self) -> bool:
        """Always: these arms know where they are."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Connects; there is nothing to calibrate."""
        self.arm.connect()
        self._connected = True
        self._joints, self._velocities = self._state().joints.copy(), np.zeros(self.arm.n_joints)

    def calibrate(self) -> None:
        """Does nothing."""

    def configure(self) -> None:
        """Does nothing."""

    def get_observation(self) -> dict[str, Any]:
        """The joints and the pictures."""
        joints = self._state().joints.tolist()
        pictures = {name: camera.grab().pixels for name, camera in self.cameras.items()}
        return {**dict(zip(self._names, joints, strict=True)), **pictures}

    def send_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Moves toward joints within the limits; returns what was commanded."""
        wanted = _numbers(action, self._names)
        if self._state().stopped:
            raise ArmError(f"the arm stopped: {self._state().stopped}; recover it")
        toward = self._approach(wanted)
        self._velocities = self._limits.next_velocity(self._joints, self._velocities, toward, self._dt)
        self._joints = self._joints + self._dt * self._velocities
        self.arm.servo(self._joints, self._dt)
        return dict(zip(self._names, self._joints.tolist(), strict=True))

    def disconnect(self) -> None:
        """Halts and disconnects."""
        self._connected = False
        self.arm.disconnect()

    def _approach(self, wanted: np.ndarray) -> np.ndarray:
        """Velocities toward joints (n,), slow enough to stop there."""
        way = wanted - self._joints
        return np.sign(way) * np.minimum(
            np.abs(way) / self._dt, braking_speed(np.abs(way), self._limits.acceleration, self._dt)
        )

    def _state(self) -> ArmState:
        if not self._connected:
            raise ArmError("the arm is not connected: call connect first")
        return self.arm.state()


def as_lerobot_robot(robot: ArmAsRobot) -> Any:
    """The same robot as an instance of LeRobot's `Robot`; imports lerobot."""
    try:
        from lerobot.robots import Robot
    except ImportError as error:
        raise ArmError("an instance of LeRobot's Robot needs the package 'lerobot': pip install lerobot") from error
    kind = type("ClosedFormRobot", (ArmAsRobot, Robot), {})
    made = kind.__new__(kind)
    made.__dict__.update(robot.__dict__)
    return made


class RobotAsArm:
    """A LeRobot robot as an arm.

    Its joints are the entries of its actions that end in `.pos`, in their order; others, such as a gripper's, stay as
    they are observed.

    Args:
        robot: from LeRobot, or anything with the same methods.
        degrees: whether its joints are in degrees, as LeRobot's are by default.
        exclude: names of entries that are no joints of the arm, such as `gripper.pos`.
        clock: of the times of states.
    """

    def __init__(
        self,
        robot: LeRobotLike,
        *,
        degrees: bool = True,
        exclude: tuple[str, ...] = ("gripper.pos",),
        clock: Callable[[], float] = time.monotonic,
    ):
        self.robot, self._clock = robot, clock
        self._scale = math.pi / 180 if degrees else 1.0
        self._all = [name for name in robot.action_features if name.endswith(_SUFFIX)]
        self._names = [name for name in self._all if name not in exclude]
        if not self._names:
            raise DataError(f"expected a robot with joints such as 'elbow.pos', found {sorted(robot.action_features)}")
        self._last: ArmState | None = None

    @property
    def n_joints(self) -> int:
        """The number of joints."""
        return len(self._names)

    def connect(self) -> None:
        """Connects; a robot that is not calibrated asks for it."""
        if not self.robot.is_connected:
            self.robot.connect()

    def state(self) -> ArmState:
        """The joints now, and their velocities since the last state."""
        now, last = self._clock(), self._last
        joints = self._scale * _numbers(self.robot.get_observation(), self._names)
        if last is None or now <= last.time:
            velocities = np.zeros(self.n_joints) if last is None else last.velocities
        else:
            velocities = (joints - last.joints) / (now - last.time)
        self._last = ArmState(now, joints, velocities)
        return self._last

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Sends joint angles (n,)."""
        action = dict(zip(self._names, (joints / self._scale).tolist(), strict=True))
        if len(self._all) > len(self._names):
            seen = self.robot.get_observation()
            action = {name: action.get(name, seen.get(name)) for name in self._all}
        self.robot.send_action(action)

    def stop(self) -> None:
        """Commands the joints where they are."""
        self.servo(self.state().joints, 0.0)

    def recover(self) -> None:
        """Does nothing: these robots do not lock themselves."""

    def disconnect(self) -> None:
        """Disconnects, if it is connected."""
        if self.robot.is_connected:
            self.robot.disconnect()


def _numbers(values: Mapping[str, Any], names: list[str]) -> np.ndarray:
    missing = [name for name in names if name not in values]
    if missing:
        raise DataError(f"expected entries {', '.join(names)}, found none for {', '.join(missing)}")
    numbers = np.array([float(values[name]) for name in names])
    if not np.isfinite(numbers).all():
        raise DataError(f"expected finite joints, found {numbers}")
    return numbers
