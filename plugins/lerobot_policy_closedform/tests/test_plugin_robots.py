"""Robots with the real lerobot: our arm as its robot, and its SO-101 follower as our arm."""

import time
from unittest.mock import MagicMock, patch

import numpy as np
import pytest
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies import make_pre_post_processors
from lerobot.policies.rtc import RTCConfig
from lerobot.processor import make_default_processors
from lerobot.robots import Robot
from lerobot.robots.so_follower import SO101Follower, SO101FollowerConfig
from lerobot.rollout.inference.rtc import RTCInferenceEngine
from lerobot.rollout.robot_wrapper import ThreadSafeRobot
from lerobot.utils.constants import ACTION, OBS_STR
from lerobot.utils.feature_utils import build_dataset_frame, hw_to_dataset_features

from closedform import ClosedFormPolicy, Demos, load_demos
from closedform.robot.clocks import LockstepClock
from closedform.robot.drivers.lerobot import ArmAsRobot, RobotAsArm, as_lerobot_robot
from lerobot_policy_closedform import ClosedformConfig, ClosedformPolicy
from tests.robot.arms import CONFIG, KINEMATICS, Camera, LaggingArm, check_commands, joints_at

LIMITS = CONFIG.limits(KINEMATICS)
START = joints_at((0.256, 0.256, 0.008))


def test_lerobot_records_with_our_arm(tmp_path):
    """What `lerobot-record` does with a robot: features, processors, frames, an episode."""
    arm = LaggingArm(START)
    robot = as_lerobot_robot(ArmAsRobot(arm, LIMITS, 50.0, {"top": Camera(LockstepClock())}))
    assert isinstance(robot, Robot) and "ClosedFormRobot" in str(robot)
    features = {
        **hw_to_dataset_features(robot.observation_features, OBS_STR, use_video=False),
        **hw_to_dataset_features(robot.action_features, ACTION, use_video=False),
    }
    written = LeRobotDataset.create("local/arm", 50, features, root=tmp_path / "arm", robot_type=robot.robot_type)
    _, action_processor, observation_processor = make_default_processors()
    goal = START + np.array([0.2, -0.1, 0.1, 0.05, -0.1, 0.3])
    states = []
    with robot:  # connects, and disconnects
        safe = ThreadSafeRobot(robot)
        for _ in range(40):
            seen = observation_processor(safe.get_observation())
            states.append(arm.joints.copy())
            wanted = dict(zip(robot.action_features, goal.tolist(), strict=True))
            sent = safe.send_action(action_processor((wanted, seen)))
            frame = {**build_dataset_frame(features, seen, OBS_STR), **build_dataset_frame(features, sent, ACTION)}
            written.add_frame({**frame, "task": "reach"})
    written.save_episode()
    written.finalize()
    assert arm.calls == ["connect", "disconnect"] and not robot.is_connected
    check_commands(np.array(arm.sent), LIMITS, 0.02, START)
    ours = load_demos(tmp_path / "arm")
    assert ours.rate == 50 and ours.cameras == ("observation.images.top",)
    assert np.allclose(ours[0].observations, states, atol=1e-6) and np.allclose(ours[0].actions, arm.sent, atol=1e-6)


def test_lerobots_real_time_chunking_drives_our_arm():
    """The engine of `lerobot-rollout --inference.type=rtc`: it plans in a thread of its own, from what is left over."""
    arm, goal = LaggingArm(START), START + np.array([0.2, -0.1, 0.1, 0.05, -0.1, 0.3])
    robot = as_lerobot_robot(ArmAsRobot(arm, LIMITS, 50.0))
    ways = [np.linspace(START + shift, goal, 41) for shift in np.random.default_rng(0).normal(0, 0.02, (5, 6))]
    fitted = ClosedFormPolicy(Demos([(way[:-1], way[1:]) for way in ways]), targets="off")
    policy = ClosedformPolicy(ClosedformConfig(device="cpu"), policy=fitted)
    used = []
    plan = policy.predict_action_chunk

    def watched(batch, **options):
        used.append(options)
        return plan(batch, **options)

    policy.predict_action_chunk = watched
    robot.connect()
    engine = RTCInferenceEngine(
        policy=policy,
        **dict(zip(("preprocessor", "postprocessor"), make_pre_post_processors(policy.config), strict=True)),
        robot_wrapper=ThreadSafeRobot(robot),
        rtc_config=RTCConfig(enabled=True),
        hw_features=hw_to_dataset_features(robot.observation_features, OBS_STR),
        task="reach",
        fps=1,  # a plan is then one step late, also on a slow machine
        device="cpu",
    )
    engine.start()
    engine.resume()
    while np.abs(arm.joints - goal).max() > 0.02 and len(arm.sent) < 1000 and not engine.failed:
        engine.notify_observation(robot.get_observation())
        action = engine.get_action(None)
        if action is None:
            time.sleep(0.001)
            continue
        robot.send_action(dict(zip(robot.action_features, action.tolist(), strict=True)))
        while len(used) < len(arm.sent) / 5 and not engine.failed:  # the thread gets its turn, also on a slow machine
            time.sleep(0.001)
    engine.stop()
    robot.disconnect()
    assert not engine.failed and np.abs(arm.joints - goal).max() <= 0.02
    assert any(options["prev_chunk_left_over"] is not None for options in used)
    check_commands(np.array(arm.sent), LIMITS, 0.02, START)


@pytest.fixture
def follower(tmp_path):
    """LeRobot's SO-101 with a motor bus that follows at once, as in LeRobot's own tests."""
    bus, joints = MagicMock(name="bus"), {}

    def make(*_, motors, **__):
        bus.motors, bus.is_connected, bus.is_calibrated = motors, False, True
        joints.update({name: 10.0 * i for i, name in enumerate(motors)})
        return bus

    bus.connect.side_effect = lambda *_: setattr(bus, "is_connected", True)
    bus.disconnect.side_effect = lambda *_: setattr(bus, "is_connected", False)
    bus.sync_read.side_effect = lambda *_, **__: dict(joints)
    bus.sync_write.side_effect = lambda _, values, **__: joints.update(values)
    with patch("lerobot.robots.so_follower.so_follower.FeetechMotorsBus", side_effect=make):
        yield SO101Follower(SO101FollowerConfig(id="tested", port="/dev/null", calibration_dir=tmp_path)), joints


def test_its_follower_is_our_arm(follower):
    robot, joints = follower
    times = iter([0.0, 0.5, 1.0])
    arm = RobotAsArm(robot, clock=lambda: next(times))
    assert isinstance(robot, Robot) and arm.n_joints == 5
    arm.connect()
    assert robot.is_connected and np.allclose(arm.state().joints, np.radians([0, 10, 20, 30, 40]))
    arm.servo(np.radians([1.0, 11.0, 21.0, 31.0, 41.0]), 0.02)
    assert np.allclose([*joints.values()], [1, 11, 21, 31, 41, 50])  # the gripper stays
    assert np.allclose(arm.state().velocities, np.radians(1.0) / 0.5)
    arm.stop()
    assert np.allclose([*joints.values()], [1, 11, 21, 31, 41, 50])
    arm.disconnect()
    assert not robot.is_connected
