"""The study of the robot: failures, limits, recording, and the page."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from closedform import load_demos
from closedform.errors import ConfigError
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pusht import start_state
from closedform.evaluation.rollout import Rollout
from closedform.policies.choice import make_policy
from closedform.robot.twin.block import start_pose
from closedform.robot.twin.settings import TwinSettings
from fuzz.results import make_results
from studies import robot, robot_clock
from studies.robot_recording import record_demonstrations
from studies.runner import Runner

for needed in ("cv2", "mujoco"):
    if find_spec(needed) is None:  # importing mujoco here would choose its rendering library
        pytest.skip(f"there is no {needed} here: pip install 'closedform[twin]'", allow_module_level=True)


UNSEEN = {"believed": False, "covered_then": None}


def made_up(key: str) -> EvaluationResult:
    """Results with a failure of each kind."""
    base = make_results(key)
    failed = replace(base.episodes[0], success=False, score=0.5, extra={"beyond_walls": -20.0, **UNSEEN})
    rows = [
        replace(failed, success=True, score=1.0, extra={"beyond_walls": 0.0, "believed": True, "covered_then": 0.95}),
        replace(failed, extra={"beyond_walls": 3.0, "believed": True, "covered_then": 0.91}),
        replace(failed, score=0.97),
        replace(failed, loop=True),
        failed,
    ]
    rows = [replace(row, seed=100000 + number) for number, row in enumerate(rows)]
    return EvaluationResult.of(replace(base.subject, n_episodes=5), rows, base.origin)


def test_failures_are_classified():
    row = robot.row_of("images_pusht_default", made_up("a"))
    assert [row[kind] for kind in robot.FAILURES] == [1, 1, 1, 1] and row["successes"] == row["first_25"] == 1
    assert (row["believed"], row["too_early"], row["least_covered"]) == (2, 1, 0.91)


def test_what_a_runner_would_have_believed_is_told_beside_the_truth():
    rollout = Rollout(
        seed=0,
        observations=np.array([[0, 0, 256, 256, 0], [0, 0, 256, 256, np.pi / 4], [0, 0, 256, 256, np.pi / 4]], float),
        actions=np.zeros((2, 2)),
        scores=np.array([0.9, 1.0]),
        success=True,
        plans=[],
        latencies=np.zeros(0),
        n_execute=8,
    )
    assert robot.describe(rollout) == {
        "beyond_walls": pytest.approx(-130, abs=50),
        "believed": True,
        "covered_then": 0.855,
    }
    unseen = replace(rollout, observations=rollout.observations[[0, 0, 0]])
    assert robot.describe(unseen) == {"beyond_walls": -130.0, "believed": False, "covered_then": None}


def test_a_block_is_beyond_the_walls_as_far_as_its_outermost_corner():
    assert robot.beyond_walls(np.array([256.0, 256.0, 0.0])) == pytest.approx(376 - 506)
    assert robot.beyond_walls(np.array([256.0, 400.0, 0.0])) == pytest.approx(520 - 506)
    assert robot.beyond_walls(np.array([30.0, 256.0, 0.0])) == pytest.approx(5 - (-30))
    assert robot.beyond_walls(np.array([256.0, 100.0, np.pi])) == pytest.approx(5 - (-20))
    assert robot.beyond_walls(np.array([400.0, 256.0, -np.pi / 2])) == pytest.approx(520 - 506)


def test_what_a_cell_must_reach_is_the_largest_value_before_success_drops():
    rows = [
        {"value": value, "success": success} for value, success in ((0, 0.9), (1, 0.92), (2, 0.88), (4, 0.6), (8, 0.9))
    ]
    assert robot.largest_that_works(rows, 0.92) == 2
    assert robot.largest_that_works([{"value": 0, "success": 0.2}, {"value": 1, "success": 0.9}], 0.9) is None


def test_every_evaluation_can_be_made():
    keys = robot.names()
    assert len(set(keys)) == len(keys)
    for factor in robot.ROBUSTNESS:
        assert list(factor.values) == sorted(factor.values)
        for value in factor.values:
            found = getattr(TwinSettings.parse(f"{factor.setting}={value:g}"), factor.setting)
            assert found in (value, (value, value))
            assert factor.key(value) in keys
        assert robot.BASE in [factor.key(value) for value in factor.values]
    assert robot.RECORDING_SEED + robot.N_RECORDED <= 100_000  # other start states than those that are reported


def test_the_page_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(robot, "study_of", lambda runner, key: key)
    monkeypatch.setattr(Runner, "run", lambda self, key, study: made_up(key))
    monkeypatch.setattr(robot, "_draw_scene", lambda runner: None)  # needs a rendering library
    robot.run(Runner("robot", tmp_path / "robot", tmp_path / "work"))
    page = (tmp_path / "robot" / "README.md").read_text()
    assert (
        "1 edge, 1 close, 1 loop, 1 other | 2, 1 too early (at 0.910 or more)" in page
        and "latency of the camera" in page
    )
    for name in ("robot.csv", "robustness.csv", "robustness.png", "origin.json"):
        assert (tmp_path / "robot" / name).stat().st_size > 100


def test_a_study_is_written_with_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(robot, "N_LEAST", 5)
    monkeypatch.setattr(robot, "N_PAPER", 5)
    monkeypatch.setattr(robot, "_draw_scene", lambda runner: None)
    runner = Runner("robot", tmp_path / "robot", tmp_path / "work", partial=True)
    with pytest.raises(ConfigError, match="expected results of images_pusht-embedded_default"):
        robot.run(runner)
    for key in (robot.BASE, "robust_dropout_0.9", "truth_pusht-embedded_paper"):
        made_up(key).save(tmp_path / "work" / f"{key}.json")
    robot.run(runner)
    page = (tmp_path / "robot" / "README.md").read_text()
    assert "1 of 5 [" in page and "0.05: 0.20 [0.04, 0.62], 0.9: 0.20" in page
    assert "`images_pusht_paper`" in page and "`robust_dropout_0.6`" in page and "`robust_dropout_0.9`" not in page
    assert "latency of the camera" not in page  # nothing was varied


def test_demonstrations_are_recorded_through_the_runner_and_not_twice(tmp_path, monkeypatch):
    policy = make_policy("default", load_demos("pusht-embedded"), ())
    seeds = range(100003, 100005)
    folder = record_demonstrations(policy, tmp_path, seeds, pictures=False)
    demos = load_demos(str(folder))
    assert len(demos) == 2 and demos.rate == 10
    for seed, episode in zip(seeds, demos, strict=True):
        expected = start_pose(start_state(seed))
        np.testing.assert_allclose(episode.observations[0, 2:4], expected[:2], atol=0.1)
        assert (tmp_path / str(seed) / "journal.jsonl").exists()
    monkeypatch.setattr("studies.robot_recording._record", None)
    assert record_demonstrations(policy, tmp_path, seeds, pictures=False) == folder


def test_the_page_of_the_wall_clock_tells_what_is_on_record():
    calm = {
        **{"seed": 100000, "disturbance": None, "reason": "done", "coverage": 0.96, "steps": 100, "unrecorded": 0},
        **{"sent": 2000, "arrived": 2000, "all_arrived": True, "seconds_to_rest": None, "acceleration": 9.0},
        **{"observe_ms": [20.0, 30.0], "plan_ms": [3.0, 5.0]},
    }
    missed = {**calm, "coverage": 0.94, "arrived": 1999, "all_arrived": False, "unrecorded": 2}
    killed = {**calm, "disturbance": "killed", "reason": "the policy's process was killed", "seconds_to_rest": 0.21}
    killed, before = {**killed, "disturbed": True}, {**killed, "disturbed": False}
    facts = {
        **{"commit": "abc", "date": "2026-11-16T12:00:00Z", "machine": {"processor": "CPU", "cores": 2}, "fps": 30.0},
        **{"ticks": 4000, "lateness_ms": [0.08, 0.19, 11.5], "episodes": [calm, missed, killed, before]},
    }
    page = " ".join(robot_clock.page(facts).split())
    assert (
        "**2 episodes**: the runner ended 2 as done; the outline was really covered above 0.95 at the end of 1 ["
        in page
    )
    assert "median 0.08 ms, one of a hundred above 0.19 ms, worst 11.5 ms of 4,000 ticks" in page
    assert "4,000 sent, 3,999 arrived; 1 of 2 episodes" in page and "2 steps that the controller followed" in page
    assert "| killed (ended before it came to that) |" in page
    assert "| killed | the policy's process was killed | 0.21 s | 9.0 rad/s² | 2000 of 2000 | 100, 0 missing |" in page
