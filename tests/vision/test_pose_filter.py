"""The filter of poses, and the tracker that uses it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.demos.catalog import PUSHT_OBSERVATIONS
from closedform.errors import ConfigError
from closedform.geometry.layout import Layout
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.interfaces import ArmState
from closedform.robot.marker_perception import MarkerPerception
from closedform.robot.twin.place import HOME, KINEMATICS, PLANE, twin_cell
from closedform.vision.marker_tracker import MarkerTracker
from closedform.vision.pose_filter import FilterConfig, PoseFilter
from tests.vision.synthetic import CAMERA, INTRINSICS, sight

pytest.importorskip("cv2")

GOOD = np.array([3e-4, 4e-3])


def moving(time: float, speed: float = 0.1) -> RigidPose:
    return RigidPose.planar(0.4 + speed * time, 0.1, 0.5 * time)


def distance(pose: RigidPose | None, other: RigidPose) -> float:
    assert pose is not None
    return float(np.linalg.norm(pose.position - other.position))


@pytest.mark.parametrize("period", [0.1, 1 / 30])
def test_latency_is_made_up_for(period):
    one = PoseFilter()
    for time in np.arange(0, 2, period):
        assert one.update(float(time), moving(time), GOOD)
        if time > 0.5:
            assert distance(one.at(time + 0.06), moving(time + 0.06)) < 0.25 * 0.06 * 0.1


def test_a_body_that_stops_is_not_believed_to_go_back():
    one = PoseFilter()
    for time in np.arange(0, 1, 0.1):
        one.update(float(time), moving(time), GOOD)
    end = moving(0.9).position[0]
    for time in np.arange(1, 2, 0.1):
        one.update(float(time), moving(0.9), GOOD)
        ahead = one.at(float(time) + 0.06)
        assert ahead is not None and -2e-4 < ahead.position[0] - end < 1e-3


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_noise_is_not_made_worse_and_outliers_are_left_out(seed):
    rng, one = np.random.default_rng(seed), PoseFilter()
    raw, filtered = [], []
    for step in range(60):
        time, true = step / 30, moving(step / 30, 0.05)
        seen = RigidPose(true.rotation, true.position + np.array([*rng.normal(scale=3e-4, size=2), 0]))
        if step > 5 and step % 7 == 0:
            wild = RigidPose(true.rotation, true.position + np.array([0.1, -0.05, 0.0]))
            assert not one.update(time, wild, GOOD)
            continue
        assert one.update(time, seen, GOOD)
        if step > 10:
            raw.append(distance(seen, true))
            filtered.append(distance(one.at(time), true))
    assert np.mean(filtered) < 1.1 * np.mean(raw)


def test_a_body_that_was_carried_away_is_believed_after_a_few_pictures():
    one = PoseFilter()
    for step in range(10):
        one.update(step / 30, moving(0), GOOD)
    there = RigidPose.planar(0.7, -0.2, 2.0)
    assert [one.update((10 + step) / 30, there, GOOD) for step in range(4)] == [False, False, True, True]
    assert distance(one.at(0.45), there) < 1e-3


def test_outliers_that_disagree_are_never_believed():
    one = PoseFilter()
    for step in range(10):
        one.update(step / 30, moving(0), GOOD)
    for step in range(10):
        assert not one.update((10 + step) / 30, RigidPose.planar(0.7, (-1) ** step * 0.2, 0.0), GOOD)


def test_old_pictures_are_left_out_and_a_body_out_of_sight_is_lost_and_found():
    one = PoseFilter(FilterConfig(lost_after=0.5))
    assert one.lost(0.0) and one.at(0.0) is None
    assert one.update(1.0, moving(0), GOOD) and not one.lost(1.5) and one.lost(1.51)
    assert not one.update(1.0, moving(0), GOOD) and not one.update(0.5, moving(0), GOOD)
    far = RigidPose.planar(0.7, -0.2, 2.0)
    assert one.update(9.0, far, GOOD) and distance(one.at(9.0), far) == 0 and not one.lost(9.2)


def test_a_filter_refuses_numbers_that_make_no_sense():
    with pytest.raises(ConfigError, match=r"lost_after of a filter: expected a number above 0, found -1"):
        FilterConfig(lost_after=-1)


def test_observations_say_how_good_they_are():
    rng, tracker = np.random.default_rng(0), MarkerTracker(twin_cell(), INTRINSICS, CAMERA)
    perception = MarkerPerception(PUSHT_OBSERVATIONS, "agent", tracker, KINEMATICS, PLANE)
    never = perception.observe(None, ArmState(0.0, HOME, np.zeros(6)))
    assert never.error == np.inf and never.alarm == "block was never seen"
    body, pose = tracker.cell.bodies[0], RigidPose.planar(0.465, 0.044, -0.3)
    fits = {}
    for step in range(5):
        fits = tracker.update_found(step / 30, sight(body, pose, rng, 0.2, numbers={0, 1, 5}))
    assert fits["block"].n_markers == 3
    found = perception.observe(None, ArmState(0.2, HOME, np.zeros(6)))
    np.testing.assert_allclose(found.observation[2:4], [200, 300], atol=1.0)
    assert found.observation[4] == pytest.approx(2 * np.pi - 0.3, abs=0.01)
    tip = KINEMATICS.pose(HOME).position
    np.testing.assert_allclose(found.observation[:2], 1e3 * PLANE.from_base(tip)[:2])
    assert found.alarm == "" and 0 < found.error < 2e-3 and found.seen == pytest.approx(4 / 30)
    late = perception.observe(None, ArmState(0.9, HOME, np.zeros(6)))
    assert late.alarm == "block was not seen for 0.77 s"
    perception.reset()
    assert perception.observe(None, ArmState(1.0, HOME, np.zeros(6))).error == np.inf


def test_layouts_that_markers_cannot_fill_are_refused():
    tracker = MarkerTracker(twin_cell(), INTRINSICS, CAMERA)
    with pytest.raises(ConfigError, match=r"expected positions and angles of agent, block, found the entry 'cup "):
        MarkerPerception(Layout.of(("cup", "position", 2)), "agent", tracker, KINEMATICS, PLANE)
