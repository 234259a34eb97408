"""The twin without pictures: shapes, physics, arm, and the environment `twin_truth`."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.errors import ArmError, ConfigError
from closedform.evaluation.environment import describe_environment, environment_names, make_environment
from closedform.evaluation.pusht import PushT, start_state
from closedform.robot.twin.arm import TwinArm
from closedform.robot.twin.block import BAR, STEM, coverage, distance_to, start_pose
from closedform.robot.twin.environment import TwinTruth
from closedform.robot.twin.place import HOME, KINEMATICS, PLANE, STICK_RADIUS
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station
from closedform.robot.twin.world import World

for needed in ("cv2", "mujoco"):
    if find_spec(needed) is None:  # importing mujoco here would choose its rendering library
        pytest.skip(f"there is no {needed} here: pip install 'closedform[twin]'", allow_module_level=True)


@pytest.fixture(scope="module")
def env() -> TwinTruth:
    return TwinTruth()


@pytest.fixture(scope="module")
def world() -> World:
    return World()


def test_coverage_and_start_states_are_those_of_gym_pusht():
    pytest.importorskip("gym_pusht")
    original, rng = PushT(), np.random.default_rng(0)
    for _ in range(30):
        pose = np.array([*rng.normal(256, 30, 2), np.pi / 4 + rng.normal(scale=0.4)])
        expected = original.coverage(np.array([10.0, 10.0, *pose]))
        assert coverage(pose[0] / 1e3, pose[1] / 1e3, pose[2]) == pytest.approx(expected, abs=1e-9)
    assert coverage(0.256, 0.256, np.pi / 4) == pytest.approx(1) and coverage(0.9, 0.9, 0.0) == 0
    for seed in (100000, 100001, 7):
        state = start_state(seed)
        state[:2] = 20, 20  # beside the block, which would otherwise be pushed away
        found = original.start(state)
        np.testing.assert_allclose(start_pose(state)[:2], found[2:4], atol=1e-9)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_the_distance_to_the_block_is_that_to_its_nearest_point(seed):
    rng = np.random.default_rng(seed)
    pose, point = rng.uniform(-0.2, 0.2, 3), rng.uniform(-0.3, 0.3, 2)
    distance, away = distance_to(point, pose)
    assert np.linalg.norm(away) == pytest.approx(1)
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    inside = np.concatenate(
        [np.stack(np.meshgrid(*np.linspace(box[:2], box[2:], 60).T), -1).reshape(-1, 2) for box in (BAR, STEM)]
    )
    nearest = np.linalg.norm(inside @ np.array([[cos, sin], [-sin, cos]]) + pose[:2] - point, axis=1).min()
    assert max(distance, 0.0) == pytest.approx(nearest, abs=0.002)


def test_the_model_has_the_kinematics_of_the_arm(world):
    rng = np.random.default_rng(0)
    for _ in range(20):
        joints = rng.uniform(-3, 3, 6)
        world.reset(world.settings.draw(0), np.array([0.2, 0.2, 0.0]), joints)
        np.testing.assert_allclose(world.data.site("tip").xpos, KINEMATICS.pose(joints).position, atol=1e-12)


def test_the_arm_follows_within_a_fraction_of_a_millimeter(world):
    world.reset(world.settings.draw(0), np.array([0.05, 0.05, 0.0]), HOME)
    arm = TwinArm(world)
    with pytest.raises(ArmError, match="expected an arm that is connected"):
        arm.state()
    arm.connect()
    worst = 0.0
    for tick in range(1, 400):
        time = tick * 0.005
        joints = HOME + 0.3 * np.sin(2 * time) * np.array([1, 0.5, -0.5, 0.3, 0, 1])
        arm.servo(joints, 0.005)
        world.clock.sleep_until(world._begun + time)
        tip = KINEMATICS.pose(arm.state().joints).position
        worst = max(worst, float(np.linalg.norm(tip - KINEMATICS.pose(joints).position)))
    assert worst < 1e-3
    arm.disconnect()
    arm.disconnect()


def test_a_command_that_is_too_fast_ends_in_a_protective_stop_that_can_be_unlocked(world):
    world.reset(world.settings.draw(0), np.array([0.05, 0.05, 0.0]), HOME)
    arm = TwinArm(world)
    arm.connect()
    arm.servo(HOME + 0.1, 0.005)
    assert (arm.state().stopped or "").startswith("protective stop: joint 1 was to move at 20.0 rad/s")
    arm.servo(HOME + 0.001, 0.005)
    world.clock.sleep_until(world.clock.now() + 0.2)
    np.testing.assert_allclose(arm.state().joints, HOME, atol=1e-4)
    arm.recover()
    assert arm.state().stopped is None
    with pytest.raises(ArmError, match="expected 6 finite joint angles"):
        arm.servo(np.full(6, np.nan), 0.005)


def play(env, seed, n=12):
    observations, score = [env.reset(seed)], 0.0
    for step in range(n):  # into the block and on
        target = observations[0][2:4] + 60 * np.array([np.cos(step / 4), np.sin(step / 4)])
        result = env.step(target)
        observations.append(result.observation)
        score = result.score
    return np.array(observations), score


def test_the_same_seed_gives_the_same_bits_whatever_ran_before(env):
    first, score = play(env, 100003)
    play(env, 5, 4)
    again, same = play(env, 100003)
    np.testing.assert_array_equal(first, again)
    assert score == same
    other, _ = play(TwinTruth(), 100003)
    np.testing.assert_array_equal(first, other)
    assert np.abs(first[-1, 2:4] - first[0, 2:4]).max() > 5  # it was pushed


def test_friction_and_mass_are_drawn_for_each_seed_and_matter():
    settings = TwinSettings()
    drawn = [settings.draw(seed) for seed in range(50)]
    for name in ("friction", "mass", "stick_friction"):
        values, (low, high) = [getattr(one, name) for one in drawn], getattr(settings, name)
        assert low <= min(values) < max(values) <= high and len(set(values)) == 50
    assert settings.draw(3).friction == drawn[3].friction
    smooth, rough = (TwinTruth(TwinSettings.parse(f"stick_friction={value}")) for value in (0.0, 0.9))
    assert np.abs(play(smooth, 100003)[0] - play(rough, 100003)[0]).max() > 0.5


def test_the_stick_starts_beside_the_block_and_the_block_where_it_should(env):
    for seed in range(100000, 100060):
        observation = env.reset(seed)
        wanted = start_pose(start_state(seed))
        np.testing.assert_allclose(observation[2:4], wanted[:2], atol=0.05)
        distance, _ = distance_to(observation[:2] / 1e3, wanted * [1e-3, 1e-3, 1])
        assert distance > STICK_RADIUS
        if distance > STICK_RADIUS + 0.01:
            np.testing.assert_allclose(observation[:2], start_state(seed)[:2], atol=0.5)


def test_the_stick_stays_in_the_workspace(env):
    observation = env.reset(100000)
    for _ in range(15):
        observation = env.step(np.array([2000.0, -3000.0])).observation
    assert -61 < observation[1] < -55 and 566 < observation[0] < 573
    assert env._controller.reason == ""


def test_the_block_comes_to_rest_on_the_table():
    station = Station(pictures=False)
    station.place(100000)
    before = station.world.block()
    station.clock.sleep_until(3.0)
    np.testing.assert_allclose(station.world.block(), before, atol=1e-4)
    assert abs(station.world.data.qpos[2]) < 2e-4


def test_environments_are_made_by_name_with_settings():
    assert {"twin", "twin_truth", "twin:SETTING=VALUE,..."} <= set(environment_names())
    made = make_environment("twin_truth:friction=0.7,latency=0.1")
    assert isinstance(made, TwinTruth) and made.station.settings.friction == (0.7, 0.7)
    assert (made.observation_layout, made.action_layout) == (PUSHT_OBSERVATIONS, PUSHT_ACTIONS)
    assert describe_environment("twin_truth") is TwinTruth


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed=1", "expected a setting of the twin .*found 'speed=1'"),
        ("latency", "found 'latency'"),
        ("latency=fast", "the twin's latency: expected a number, found 'fast'"),
        ("latency=0.1..0.2", "expected one number, once"),
        ("friction=0.1..0.2..0.3", r"expected one number or two as in 0\.3\.\.0\.5"),
        ("friction=0.5..0.3", r"expected 0\.01 to 2, found \(0\.5, 0\.3\)"),
        ("dropout=2", "the twin's dropout: expected 0 to 1, found 2"),
        ("noise=nan", "the twin's noise: expected 0 to 100, found nan"),
        ("noise=1,noise=2", "once"),
    ],
)
def test_settings_that_make_no_sense_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        TwinSettings.parse(text)


def test_stepping_before_a_reset_is_refused():
    with pytest.raises(ConfigError, match="call reset before step"):
        TwinTruth().step(np.zeros(2))


def test_a_world_can_be_looked_at_from_the_plane():
    station = Station(pictures=False)
    station.place(0, np.array([100.0, 100.0, 300.0, 200.0, 0.4]))
    pose = start_pose(np.array([100.0, 100.0, 300.0, 200.0, 0.4]))
    np.testing.assert_allclose(station.observation()[2:4], pose[:2], atol=0.05)
    assert station.observation()[4] == pytest.approx(0.4, abs=1e-4)
    np.testing.assert_allclose(PLANE.from_base(station.world.data.qpos[:3])[:2], pose[:2] / 1e3, atol=1e-4)
