"""What results say about plans, and what a user is told about a policy."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, save_demos
from closedform.analysis.health import examine
from closedform.cli import main
from closedform.evaluation import EvaluationResult, StepResult, evaluate, roll_out
from closedform.evaluation.data_range import DataRange
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.notes import policy_notes, result_notes
from tests.evaluation.toy import Reach, reach_demos

ROOT = Path(__file__).parents[2]
WORLD, DRIFTS, LEAVES = (
    "only the world frame",
    "displacements drift",
    "leave the range",
)


class Elsewhere(Reach):
    """The hand begins where it never was."""

    def reset(self, seed):
        super().reset(seed)
        self.hand = self.hand + 5.0
        return np.concatenate([self.hand, self.target])


class OtherGoal(Reach):
    """Its target is observed in millimeters."""

    def reset(self, seed):
        return super().reset(seed) * [1, 1, 1000, 1000]

    def step(self, action):
        result = super().step(action)
        return StepResult(result.observation * [1, 1, 1000, 1000], result.score, result.success, result.done)


def walks(width=2, n_episodes=10, layouts=(None, None), displacements=False):
    """A body that goes wherever it is told."""
    rng, episodes = np.random.default_rng(0), []
    for _ in range(n_episodes):
        moves = 0.1 * rng.normal(size=(40, width))
        path = np.cumsum(moves, axis=0)
        episodes.append((path - moves, moves if displacements else path))
    return Demos(episodes, *layouts)


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(reach_demos())


def test_a_row_says_how_each_plan_was_made(policy):
    rollout = roll_out(Reach(), policy, 5)
    row = rollout.result()
    plans = [plan for _, plan in rollout.plans]
    assert [name for name, count in row.frames or () for _ in range(count)] == [plan.frame for plan in plans]
    assert [name for name, count in row.held or () for _ in range(count)] == [plan.held for plan in plans]
    assert row.n_effective == pytest.approx([plan.n_effective for plan in plans], abs=1e-3)
    assert plans[0].shrinkage == policy.model.kernel.shrinkage == pytest.approx(row.shrinkage, abs=1e-4)
    assert sum(row.frame_shares.values()) == pytest.approx(1) and row.held_share == 0
    assert replace(row, held=(("", 1), ("cup", 3))).held_share == 0.75
    assert EpisodeResult.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_rows_of_before_still_load():
    old = EvaluationResult.load(ROOT / "tests" / "data" / "results_0_1.json")
    row = old.episodes[0]
    assert (row.frames, row.held, row.n_effective, row.shrinkage, row.outside) == (None,) * 5
    assert not {"frames", "held", "n_effective", "shrinkage", "outside"} & set(row.to_json())
    assert old.notes == []


def test_observations_out_of_the_range_of_the_data_are_counted(policy):
    found = DataRange.of(policy)
    assert found is not None
    inside, first = policy.episodes[0].observations, policy.episodes[0].observations[0]
    assert found.outside(inside) == (0.0, None)
    far, near = np.array([0, 0, 9, 0]), np.array([0.01, 0, 0, 0])
    moved = np.stack([first, first + far, first - far, first + near])
    assert found.outside(moved) == (0.5, "entry 2 (target position)")


@pytest.mark.parametrize(("environment", "name"), [(Elsewhere, "hand position"), (OtherGoal, "target position")])
def test_failing_outside_the_range_of_the_data_is_said(policy, environment, name):
    (note,) = result_notes(list(evaluate(policy, environment, range(3))))
    assert LEAVES in note and f"({name})" in note
    assert result_notes(list(evaluate(policy, Reach, range(3)))) == []


@pytest.mark.parametrize(("of_failed", "of_others", "said"), [(0.5, 0.1, True), (0.5, 0.4, False), (0.04, 0.0, False)])
def test_what_happens_in_success_as_in_failure_is_not_noted(policy, of_failed, of_others, said):
    """Leaving the range explains a failure only where it is rare in success; and it is one episode that fails."""
    row = roll_out(Reach(), policy, 5).result()
    good = replace(row, success=True, outside=(of_others, "entry 0"))
    assert bool(result_notes([good] * 5 + [replace(row, success=False, outside=(of_failed, "entry 2"))])) == said
    assert result_notes([replace(good, outside=(1.0, "entry 0"))] * 5) == []
    copying = ClosedFormPolicy(reach_demos(), bandwidth=1e-6, tau=0.0)
    assert result_notes(list(evaluate(copying, Reach, range(2)))) == policy_notes(copying) == []


def test_ranges_do_not_count_what_is_ignored_and_know_all_features():
    layout = Layout.parse("hand position 2, - ignored 2")
    demos = reach_demos()
    for features in ("geometric", "identity", "scaled"):
        policy = ClosedFormPolicy(demos.with_layouts(layout, demos.action_layout), features=features)
        found = DataRange.of(policy)
        assert found is not None and found.names == ("entry 0 (hand position)", "entry 1 (hand position)")
        assert found.outside(np.array([[0.0, 0.0, 1e9, -1e9]])) == (0.0, None)
    assert DataRange.of(ClosedFormPolicy(demos, feature_map=lambda flat: flat[:, :1])) is None


def test_a_policy_without_bodies_says_that_only_the_world_is_left():
    plain = policy_notes(ClosedFormPolicy(walks()))
    assert [WORLD in note for note in plain] == [True]
    assert policy_notes(ClosedFormPolicy(walks(), frames="world")) == []  # as it was asked to be
    assert policy_notes(ClosedFormPolicy(reach_demos())) == []


@pytest.mark.filterwarnings("ignore:no layouts are declared")
def test_displacements_are_said_to_drift():
    layouts = Layout.parse("hand position 2"), Layout.parse("hand vector 2")
    for given in ((None, None), layouts):
        notes = policy_notes(ClosedFormPolicy(walks(layouts=given, displacements=True), "paper", n_neighbors=50))
        assert [DRIFTS in note for note in notes] == [True]
    assert policy_notes(ClosedFormPolicy(walks(), "paper", n_neighbors=50)) == []


def test_commands_say_it_on_stderr_and_in_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    save_demos(walks(), tmp_path / "walks")
    save_demos(reach_demos(), tmp_path / "reach")
    main(["fit", "walks", "-o", "policy", "--set", "bandwidth=1e-6", "tau=0"])
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if WORLD in line]
    assert all(line.startswith("closedform: note: ") for line in said if WORLD in line)
    main(["inspect", "walks", "--json"])
    out, err = capsys.readouterr()
    notes = json.loads(out)["notes"]
    assert any(WORLD in note for note in notes) and [line for line in err.splitlines() if WORLD in line]
    assert examine(reach_demos()).notes == []
    given = ["eval", "--env", "tests.evaluation.test_notes:OtherGoal", "--demos", "reach", "--workers", "1"]
    main([*given, "--episodes", "2", "--json", "results.json"])
    err = capsys.readouterr().err
    result = EvaluationResult.load("results.json")
    assert LEAVES in err and any(LEAVES in note for note in result.notes)
    main([*given, "--episodes", "2", "--json", "results.json"])  # what is complete says it again
    assert LEAVES in capsys.readouterr().err
