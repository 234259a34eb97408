"""LeRobot's robots as arms, and arms as LeRobot's robots."""

import abc
import subprocess
import sys
import types

import numpy as np
import pytest

from closedform.errors import ArmError, DataError
from closedform.robot.clocks import LockstepClock
from closedform.robot.drivers.lerobot import ArmAsRobot, RobotAsArm, as_lerobot_robot
from tests.robot.arms import CONFIG, KINEMATICS, Camera, LaggingArm, check_commands, joints_at

LIMITS = CONFIG.limits(KINEMATICS)
START = joints_at((0.256, 0.256, 0.008))


class Robot(abc.ABC):
    """LeRobot's base class, as far as it is abstract."""

    name: str

    def __init__(self, config):
        raise AssertionError("not used")

    @property
    @abc.abstractmethod
    def observation_features(self): ...

    @property
    @abc.abstractmethod
    def action_features(self): ...

    @property
    @abc.abstractmethod
    def is_connected(self): ...

    @property
    @abc.abstractmethod
    def is_calibrated(self): ...

    @abc.abstractmethod
    def connect(self, calibrate=True): ...

    @abc.abstractmethod
    def calibrate(self): ...

    @abc.abstractmethod
    def configure(self): ...

    @abc.abstractmethod
    def get_observation(self): ...

    @abc.abstractmethod
    def send_action(self, action): ...

    @abc.abstractmethod
    def disconnect(self): ...


def make():
    arm = LaggingArm(START)
    return arm, ArmAsRobot(arm, LIMITS, 50.0, {"top": Camera(LockstepClock())})


def test_an_arm_is_a_robot_that_keeps_its_limits():
    arm, robot = make()
    with pytest.raises(ArmError, match="not connected"):
        robot.get_observation()
    robot.connect()
    assert robot.is_connected and robot.is_calibrated
    observation = robot.get_observation()
    assert set(observation) == set(robot.observation_features) and observation["top"].shape == (6, 8, 3)
    assert robot.observation_features["top"] == (6, 8, 3)
    names = list(robot.action_features)
    goal, sent = START + np.array([0.5, -0.3, 0.2, 0.1, -0.4, 1.0]), {}
    for _ in range(150):
        sent = robot.send_action(dict(zip(names, goal, strict=True)))
    assert np.allclose([sent[name] for name in names], goal, atol=1e-3) and np.allclose(arm.joints, goal, atol=1e-2)
    check_commands(np.array(arm.sent), LIMITS, 0.02, START)
    with pytest.raises(DataError, match=r"found none for joint_6\.pos"):
        robot.send_action(dict.fromkeys(names[:5], 0.0))
    with pytest.raises(DataError, match="finite"):
        robot.send_action(dict.fromkeys(names, np.nan))
    arm.stopped = "protective stop"
    with pytest.raises(ArmError, match="the arm stopped: protective stop"):
        robot.send_action(sent)
    robot.disconnect()
    assert arm.calls[-1] == "disconnect" and not robot.is_connected


def test_it_is_an_instance_of_lerobots_class_if_asked(monkeypatch):
    _, robot = make()
    monkeypatch.setitem(sys.modules, "lerobot", None)
    with pytest.raises(ArmError, match="pip install lerobot"):
        as_lerobot_robot(robot)
    package, module = types.ModuleType("lerobot"), types.ModuleType("lerobot.robots")
    setattr(module, "Robot", Robot)  # noqa: B010
    monkeypatch.setitem(sys.modules, "lerobot", package)
    monkeypatch.setitem(sys.modules, "lerobot.robots", module)
    other = as_lerobot_robot(robot)
    assert issubclass(type(other), Robot)
    other.connect()
    assert [*other.action_features] == [f"joint_{i}.pos" for i in range(1, 7)]


class Follower:
    """A robot of six joints in degrees and a gripper, as LeRobot has them."""

    def __init__(self):
        self.values = {**{f"motor_{i}.pos": 10.0 * i for i in range(6)}, "gripper.pos": 40.0}
        self.is_connected, self.sent = False, []

    @property
    def action_features(self):
        return dict.fromkeys(self.values, float)

    def connect(self, calibrate=True):
        self.is_connected = True

    def get_observation(self):
        return dict(self.values)

    def send_action(self, action):
        self.sent.append(action)
        self.values.update(action)
        return action

    def disconnect(self):
        self.is_connected = False


def test_a_robot_is_an_arm():
    times = iter([0.0, 0.5, 0.5, 1.0])
    robot = Follower()
    arm = RobotAsArm(robot, clock=lambda: next(times))
    arm.connect()
    assert arm.n_joints == 6 and robot.is_connected
    assert np.allclose(arm.state().joints, np.radians(10.0 * np.arange(6)))
    arm.servo(np.full(6, 0.1), 0.02)
    assert robot.sent[0]["gripper.pos"] == 40.0 and np.isclose(robot.sent[0]["motor_3.pos"], np.degrees(0.1))
    state = arm.state()
    assert np.allclose(state.velocities, (0.1 - np.radians(10.0 * np.arange(6))) / 0.5)
    assert np.array_equal(arm.state().velocities, state.velocities)  # no time has passed
    arm.stop()
    assert np.isclose(robot.sent[-1]["motor_0.pos"], np.degrees(0.1))
    arm.recover()
    arm.disconnect()
    arm.disconnect()
    assert not robot.is_connected
    with pytest.raises(DataError, match="expected a robot with joints such as"):
        RobotAsArm(robot, exclude=tuple(robot.values))


def test_lerobot_is_not_imported():
    code = "import sys, closedform.robot.drivers.lerobot; print('lerobot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
