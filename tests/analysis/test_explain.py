"""Explanations: what is shown is what was done."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, NearestNeighborPolicy, save_demos
from closedform.analysis.explain import LEVELS, eventful_step, explain, explain_rollout
from closedform.analysis.explain_figure import draw_explanation
from closedform.analysis.familiarity import measure_familiarity
from closedform.cli import main
from closedform.errors import ConfigError
from closedform.evaluation.rollout import roll_out
from closedform.figures import GHOST, POLICY
from closedform.figures import LEVELS as LEVELS_COLORS
from tests.conftest import planar_demos
from tests.evaluation.toy import Reach, reach_demos


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(planar_demos(np.random.default_rng(0), n_episodes=12), bandwidth=0.8)


@pytest.fixture(scope="module")
def familiarity(policy):
    return measure_familiarity(policy, n_windows=40)


@pytest.mark.parametrize("frames", ["auto", "world", "block", "block.position"])
def test_the_plan_is_the_average_of_the_chunks_shown(frames):
    policy = ClosedFormPolicy(planar_demos(np.random.default_rng(0), n_episodes=12), bandwidth=0.8, frames=frames)
    shown = explain(policy, [0.4, 0.1, 0.2, 0.0, 0.3], measure_familiarity(policy, n_windows=40), seed=3)
    average = np.tensordot(shown.plan.weights, shown.transferred, 1)
    assert average == pytest.approx(shown.plan.actions, abs=1e-5)
    assert len(shown.plan.weights) > 1


def test_samples_start_as_noise_and_end_as_chunks(policy, familiarity):
    observation = [0.4, 0.1, 0.2, 0.0, 0.3]
    shown = explain(policy, observation, familiarity, n_samples=8)
    assert shown.levels == pytest.approx(LEVELS, abs=0.01) and shown.evolution.shape == (4, 8, 12, 2)
    spread = shown.evolution.std(axis=1).mean(axis=(1, 2))  # between samples
    assert np.all(np.diff(spread[:3]) < 0) and spread[3] < 0.5 * spread[0]
    assert np.abs(shown.evolution[-1] - shown.plan.actions).max() < 0.5


def test_the_nearest_are_of_different_episodes_and_sorted(policy, familiarity):
    shown = explain(policy, policy.episodes[4].observations[7], familiarity)
    assert shown.nearest[0] == (4, 7, pytest.approx(0.0, abs=1e-6))
    assert len({episode for episode, _, _ in shown.nearest}) == len(shown.nearest) == len(shown.nearest_transferred)
    assert np.all(np.diff([distance for _, _, distance in shown.nearest]) >= 0)
    facts = json.loads(json.dumps(shown.to_json()))
    assert facts["alarm"] is False and facts["demonstrations"][0]["weight"] > 0


def test_a_step_of_a_rollout_is_explained_with_what_the_agent_remembers():
    policy = ClosedFormPolicy(reach_demos())
    familiarity = measure_familiarity(policy, n_windows=40)
    shown = explain_rollout(Reach(), policy, familiarity, seed=4, step=3)
    environment, agent = Reach(), policy.agent(seed=4)
    observation = environment.reset(4)
    for _ in range(4):
        observation = environment.step(agent.act(observation)).observation
    plan = agent.plan(observation)
    assert np.array_equal(plan.actions, shown.plan.actions) and np.array_equal(plan.weights, shown.plan.weights)
    with pytest.raises(ConfigError, match=r"ended after .* steps: expected a step before that, found 29"):
        explain_rollout(Reach(), policy, familiarity, seed=4, step=29)


def _rollout_of(n_steps: int):
    """An episode of some length with a plan of eight actions at every fourth step, and no score."""
    plan = ClosedFormPolicy(reach_demos()).plan(Reach().reset(4), seed=0)
    plans = [(step, replace(plan, actions=np.zeros((8, 2)), distance=0.0)) for step in range(0, n_steps, 4)]
    rollout = roll_out(Reach(), ClosedFormPolicy(reach_demos()), 4)
    return replace(rollout, actions=np.zeros((n_steps, 2)), scores=np.zeros(n_steps), plans=plans)


def test_the_explained_moment_is_the_one_that_raises_the_score_most():
    rollout = _rollout_of(30)
    for step, _ in rollout.plans:
        scores = 0.1 * (np.arange(30) > 12)
        scores[step + 1 :] += 0.4  # of the state after the second action of that plan
        expected = step if step + 8 <= 30 else 12  # what happens at the very end is over before its plan is
        assert eventful_step(replace(rollout, scores=scores)) == expected


def test_without_a_score_it_is_the_one_farthest_from_the_demonstrations():
    rollout = _rollout_of(30)
    far = [(step, replace(plan, distance=float(step * (step <= 16)))) for step, plan in rollout.plans]
    assert eventful_step(replace(rollout, plans=far)) == 16


def test_a_short_episode_is_explained_by_what_there_is():
    rollout = _rollout_of(6)
    assert eventful_step(replace(rollout, scores=np.array([0, 0, 0, 0, 0.2, 1.0]))) == 4


def test_policies_without_diffusion_have_no_samples_to_show():
    policy = NearestNeighborPolicy(planar_demos(np.random.default_rng(0)))
    shown = explain(policy, [0.4, 0.1, 0.2, 0.0, 0.3], measure_familiarity(policy, n_windows=40))
    assert shown.levels == () and len(shown.transferred) == 1


def test_the_command_draws_and_prints(tmp_path, capsys):
    save_demos(reach_demos(), tmp_path / "demos")
    common = ["explain", "--demos", str(tmp_path / "demos"), "-o", str(tmp_path / "e.png")]
    main([*common, "--observation", "0", "0", "9", "9"])
    assert "OUT OF RANGE" in capsys.readouterr().out
    assert (tmp_path / "e.png").read_bytes().startswith(b"\x89PNG")
    assert "The plan for one observation" in (tmp_path / "e.html").read_text()
    main([*common, "--env", "tests.evaluation.toy:Reach", "--seed", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["demonstrations"]
    text = (tmp_path / "e.html").read_text()
    assert "data:video/mp4" in text and "http" not in text
    with pytest.raises(SystemExit):
        main(common)
    assert "expected --observation NUMBERS, or --env NAME" in capsys.readouterr().err


@pytest.mark.parametrize("step", [0, 4])
def test_text_figure_and_page_judge_a_plan_alike(step, tmp_path, capsys, monkeypatch):
    """A first plan by starts, later ones by all moments, at every place; and the page stays at the plan explained."""
    save_demos(reach_demos(), tmp_path / "demos")
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.set", lambda self, **said: drawn.append(said.get("title", "")))
    common = ["explain", "--demos", str(tmp_path / "demos"), "-o", str(tmp_path / "e.png"), "--step", str(step)]
    main([*common, "--env", "tests.evaluation.toy:Reach", "--seed", "3"])
    text, page = capsys.readouterr().out, (tmp_path / "e.html").read_text()
    policy = ClosedFormPolicy(reach_demos())
    familiarity, plans = measure_familiarity(policy), roll_out(Reach(), policy, 3).plans
    usual, plan = familiarity.at(first=step == 0), dict(plans)[step]
    (title,) = [title for title in drawn if "alarm beyond" in title]
    assert usual.describe() in text and usual.describe() in title
    assert familiarity.threshold != familiarity.at(first=True).threshold
    assert text.splitlines()[1].startswith(usual.level(plan.distance)) and usual.scale(plan.distance) in text
    assert usual.scale(plan.distance) in title.replace("\n", " ") and title.lower().startswith(
        usual.level(plan.distance)
    )
    found = re.search('<script type="application/json" id="rollouts">(.*?)</script>', page)
    assert found is not None
    (group,) = json.loads(found[1])
    assert group["start"] == step
    for shown, (t, each) in zip(group["rollouts"][0]["plans"], plans, strict=True):
        judge = familiarity.at(first=t == 0)
        assert shown["level"] == judge.level(each.distance)
        assert shown["farther"] == pytest.approx(judge.share_farther(each.distance), abs=1e-3)


def test_figures_and_pages_have_the_same_colors():
    css = (files("closedform.analysis") / "page" / "page.css").read_text()
    colors = dict(reversed(re.findall(r"--(\w+): (#\w+)", css)))  # the first, which are those of light pages
    assert (colors["ghost"], colors["policy"]) == (GHOST, POLICY)
    assert list(LEVELS_COLORS.values()) == [colors["good"], colors["warn"], colors["bad"]]


@pytest.mark.parametrize("name", ["$x^{$", "\udcff"])
def test_names_are_drawn_as_they_are(name):
    demos = reach_demos()
    layouts = Layout.of((name, "position", 2), ("target", "position", 2)), Layout.of((name, "position", 2))
    policy = ClosedFormPolicy(Demos(demos, *layouts))
    familiarity = measure_familiarity(policy, n_windows=20)
    explanation = explain(policy, [0.1, 0.2, 0.3, 0.4], familiarity)
    shown = replace(explanation, plan=replace(explanation.plan, frame=name, held=name))
    assert draw_explanation(shown, policy.action_layout, None, name).startswith(b"\x89PNG")
    far = replace(explanation, familiarity=replace(familiarity, distances=familiarity.distances * 1e200))
    assert draw_explanation(far, policy.action_layout, None, name).startswith(b"\x89PNG")
