"""Environments as users write them: without `render`, without a graded score, and with actions of another kind."""

import json
from pathlib import Path

import numpy as np
import pytest

import closedform.evaluation
from closedform import ClosedFormError, Demos, Layout, make_policy, save_demos
from closedform.cli import main
from closedform.demos.conversion import to_displacements
from closedform.evaluation import StepResult, evaluate, roll_out
from closedform.evaluation.environment import check_fit
from closedform.evaluation.study import demos_for
from tests.evaluation.toy import Reach, reach_demos

HERE = "tests.evaluation.test_own_environment"
ROOT = Path(__file__).parents[2]
SCALE = 0.2


class Bare:
    """The least that an environment has: no `render`, and only whether the task is accomplished."""

    observation_layout = Reach.observation_layout
    action_layout = Reach.action_layout
    max_steps = 30
    rate = 10.0

    def __init__(self):
        self._reach = Reach()

    def reset(self, seed):
        return self._reach.reset(seed)

    def step(self, action):
        result = self._reach.step(action)
        return StepResult(result.observation, success=result.success, done=result.done)


class Displaced(Bare):
    """Takes displacements of the hand, as its layout says."""

    action_layout = Layout.of(("hand", "vector", 2))

    def step(self, action):
        return super().step(self._reach.hand + SCALE * action)


class DisplacedSaysSo(Displaced):
    """The same with nothing but numbers, and an attribute that says what they are."""

    observation_layout, action_layout = Layout.plain(4), Layout.plain(2)
    commands = "displacements"


class Mistaken(Bare):
    """Says something that nobody understands."""

    commands = "torques"


def paths(n_episodes=20):
    """A hand that is told where to be next on its way to the target, so that its commands can be seen in the data."""
    environment, rng, episodes = Reach(), np.random.default_rng(0), []
    for episode in range(n_episodes):
        observation = environment.reset(500 + episode)
        observations, actions = [], []
        for _ in range(15):
            way = observation[2:] - observation[:2]
            step = way * min(1.0, 0.15 / max(float(np.linalg.norm(way)), 1e-9)) + 0.02 * rng.normal(size=2)
            observations.append(observation)
            actions.append(observation[:2] + step)
            observation = environment.step(actions[-1]).observation
        episodes.append((np.array(observations), np.array(actions)))
    return Demos(episodes, Reach.observation_layout, Reach.action_layout, rate=10.0)


@pytest.fixture(autouse=True)
def importable(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)


def test_evaluate_and_make_policy_are_public():
    """What a user writes to evaluate in an environment of their own."""
    policy = make_policy("default", reach_demos(), ["n_action_steps=8"])
    results = list(evaluate(policy, Bare, seeds=range(3)))
    assert sorted(result.seed for result in results) == [0, 1, 2]
    assert all(result.success for result in results)
    assert {"evaluate", "Environment", "Renders", "StepResult"} <= set(closedform.evaluation.__all__)
    assert "make_policy" in closedform.__all__


def test_without_a_score_success_is_the_score():
    policy = make_policy("default", reach_demos())
    rollout = roll_out(Bare(), policy, 5)
    graded = roll_out(Reach(), policy, 5)
    assert rollout.success and rollout.score == 1.0 and set(rollout.scores[:-1]) == {0.0}
    np.testing.assert_array_equal(rollout.actions, graded.actions)


def test_without_render_there_are_results_and_reports_but_no_videos(tmp_path, capsys):
    save_demos(reach_demos(), tmp_path / "demos")
    given = ["eval", "--env", f"{HERE}:Bare", "--demos", "demos", "--episodes", "2", "--workers", "1"]
    main([*given, "--json", "results.json"])
    assert json.loads(Path("results.json").read_text())["complete"]
    with pytest.raises(SystemExit):
        main([*given, "--video", "1"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith("cannot be filmed: expected a method `render`, found none")
    pytest.importorskip("matplotlib")
    main(["report", "results.json", "-o", "page.html", "--env", f"{HERE}:Bare"])
    assert "has no method <code>render</code>" in Path("page.html").read_text()


@pytest.mark.filterwarnings("ignore:no layouts are declared")
@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("environment", [Displaced, DisplacedSaysSo])
def test_targets_are_refused_where_displacements_are_taken(tmp_path, declared, environment):
    demos = paths()
    shown = demos if declared else Demos(list(demos))
    save_demos(shown, tmp_path / "demos")
    with pytest.raises(ClosedFormError, match=r"displacements, found positions; convert .*--actions displacements"):
        demos_for(environment(), "demos")
    with pytest.raises(ClosedFormError, match="displacements, found positions; build it from demonstrations with"):
        check_fit(environment(), make_policy("default", shown), "the policy")
    save_demos(to_displacements(demos, SCALE), tmp_path / "converted")
    converted, place = demos_for(environment(), "converted"), environment()
    seen = [place.reset(500), *(place.step(action).observation for action in converted[0].actions[:-1])]
    np.testing.assert_allclose(seen, demos[0].observations, atol=1e-6)  # it does what was demonstrated


@pytest.mark.filterwarnings("ignore:no layouts are declared")
@pytest.mark.parametrize("declared", [True, False])
def test_displacements_are_refused_where_targets_are_taken(tmp_path, declared):
    demos = to_displacements(paths(), SCALE)
    demos = demos if declared else Demos(list(demos))
    save_demos(demos, tmp_path / "demos")
    with pytest.raises(ClosedFormError, match=r"positions, found displacements; convert .*--actions absolute"):
        demos_for(Bare(), "demos")
    policy = make_policy("default", demos)
    with pytest.raises(ClosedFormError, match="positions, found displacements; build it from demonstrations with"):
        check_fit(Bare(), policy, "the policy")


def test_an_environment_that_says_nothing_known_is_refused(tmp_path):
    save_demos(reach_demos(), tmp_path / "demos")
    with pytest.raises(ClosedFormError, match="commands are targets or displacements, found 'torques'"):
        demos_for(Mistaken(), "demos")
