"""Displacements are planned as the targets they command, and become displacements again."""

from dataclasses import replace

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.demos.chosen_layouts import choose_layouts
from closedform.demos.episode import Episode
from closedform.errors import ConfigError
from closedform.evaluation.evaluate import evaluate
from closedform.files import crc32
from closedform.policies.nearest_neighbor import NearestNeighborPolicy
from closedform.rewrites.targets import Displacement, Targets
from tests.evaluation.toy import Displaced, displaced_demos, reach_demos

TOY = "tests.evaluation.toy"
PART = Displacement(1, 0, 2, 0.05, 3.0, (-1.0, -1.0), (1.0, 1.0))
LAYOUTS = Layout.of(("hand", "position", 2), ("goal", "position", 2)), Layout.of(("hand", "vector", 2))


@pytest.fixture(scope="module")
def demos():
    """With the layouts that are found in them."""
    return choose_layouts(displaced_demos()).demos


@pytest.fixture(scope="module")
def policy(demos):
    return ClosedFormPolicy(demos)


def follow(part: Displacement, actions: np.ndarray, start: np.ndarray) -> Episode:
    """An episode of a body that follows exactly as `Targets` assumes, its position being the first numbers."""
    position, commanded, observations = start.copy(), start.copy(), []
    for action in actions:
        observations.append(position)
        commanded = commanded + part.scale * action[part.action_columns]
        position = position + (1 - part.keep) * (commanded - position)
    return Episode(np.array(observations), actions)


def test_scale_and_lag_are_found_and_only_where_the_layout_says_so(demos, policy):
    (part,) = policy.targets.displacements
    assert (part.action, part.observation, part.size) == (0, 0, 2)
    assert part.scale == pytest.approx(Displaced.gain, rel=0.1) and part.lag == pytest.approx(Displaced.lag, rel=0.2)
    assert Targets.find(displaced_demos()) is None  # nothing is declared
    assert policy.action_layout == demos.action_layout == Layout.of(("hand", "vector", 2))
    assert policy.model.spec.transfer.action_layout == Layout.of(("hand", "position", 2))
    assert all(a is b for a, b in zip(policy.episodes, demos.episodes, strict=True))


@pytest.mark.parametrize("lag", [0.0, 0.4, 3.0])
def test_targets_are_what_a_controller_adds_up_and_give_the_actions_back(lag):
    part, rng = replace(PART, lag=lag), np.random.default_rng(0)
    targets = Targets((part,))
    actions = rng.uniform(-1, 1, (40, 3))
    episode = follow(part, actions, np.array([3.0, -1.0]))
    converted = targets.episodes(episode)[0]
    added_up = episode.observations[0] + part.scale * np.cumsum(actions[:, 1:], axis=0)
    assert np.allclose(converted.actions[:, 1:], added_up) and np.array_equal(converted.actions[:, 0], actions[:, 0])
    if not lag:
        assert np.allclose(converted.actions[:-1, 1:], episode.observations[1:])
    lead = targets.begin()
    for step in range(30):
        chunk = targets.to_actions(converted.actions[step : step + 10], episode.observations[step], lead)
        assert np.allclose(chunk, actions[step : step + 10])
        lead = targets.acted(lead, actions[step])


def test_in_the_demonstrated_state_a_target_gives_its_action_however_the_body_moves():
    targets, rng = Targets((PART,)), np.random.default_rng(1)
    observations, actions = rng.normal(size=(30, 4)), rng.uniform(-1, 1, (30, 3))
    converted, lead = targets.episodes(Episode(observations, actions))[0], targets.begin()
    for step, action in enumerate(actions):
        assert np.allclose(targets.to_actions(converted.actions[step:], observations[step], lead)[0], action)
        lead = targets.acted(lead, action)


def test_actions_stay_in_the_demonstrated_range_and_make_up_for_it():
    targets = Targets((PART,))
    chunk = np.tile([7.0, 0.12, -0.12], (5, 1))
    actions = targets.to_actions(chunk, np.zeros(4))
    assert np.allclose(actions[:, 1], [1, 1, 0.4, 0, 0]) and np.allclose(actions[:, 2], -actions[:, 1])
    assert (actions[:, 0] == 7).all()
    many = targets.to_actions(np.broadcast_to(chunk, (3, 2, 5, 3)), np.zeros((3, 1, 4)))
    assert np.allclose(many, actions)


@pytest.mark.parametrize("n_execute", [1, 4])
def test_an_agent_knows_where_the_target_is_that_it_commanded(demos, n_execute):
    policy = ClosedFormPolicy(demos, n_execute=n_execute, n_diffusion_steps=10)
    environment, agent = Displaced(), policy.agent(seed=0)
    observation, executed = environment.reset(77), []
    for step in range(11):
        if step == 6:
            agent.plan(observation)  # earlier than it would, so that a part of a chunk is never executed
            action = agent.next_action()
        else:
            action = agent.act(observation)
        executed.append(action)
        observation = environment.step(action).observation
    assert policy.targets is not None
    expected = policy.targets.begin()
    for action in executed:
        expected = policy.targets.acted(expected, action)
    assert np.array_equal(agent.state.rewrites[-1], expected) and np.abs(expected).max() > 0
    agent.reset()
    assert not agent.state.rewrites[-1].any()


def test_targets_reach_where_displacements_do_not(demos):
    success = {}
    for choice in ("auto", "off"):
        policy = ClosedFormPolicy(demos, targets=choice, relation_weight=0.0, n_diffusion_steps=10, n_perturbations=4)
        success[choice] = sum(row.success for row in evaluate(policy, f"{TOY}:Displaced", range(500, 506)))
    assert success["auto"] >= 5 and success["off"] <= 2


def test_targets_transfer_to_where_nothing_was_demonstrated(demos):
    policy = ClosedFormPolicy(demos, n_diffusion_steps=10)
    observation = demos[3].observations[20]
    moved = observation + 5.0
    here, there = (policy.plan(o, seed=0) for o in (observation, moved))
    assert policy.plan(moved, seed=0).frame != "world"
    assert np.allclose(here.actions[0], there.actions[0], atol=0.7)  # nobody runs back to the demonstrations
    assert np.abs(there.actions).max() <= 1


def test_actions_that_are_targets_already_are_planned_as_before():
    demos = reach_demos()
    plans = []
    for choice in ("auto", "off"):
        policy = ClosedFormPolicy(demos, targets=choice)
        assert policy.targets is None
        plans.append(policy.plan(demos[0].observations[2], seed=1).actions)
    assert np.array_equal(*plans)


def test_the_paper_plans_displacements(demos):
    assert ClosedFormPolicy(demos, "paper", n_neighbors=100).targets is None
    assert NearestNeighborPolicy(demos, "paper", n_neighbors=100).targets is None
    assert ClosedFormPolicy(demos, index="exact").targets is not None
    with pytest.raises(ConfigError, match="targets: expected one of auto, off, found 'on'"):
        ClosedFormPolicy(demos, targets="on")


def test_random_actions_are_not_taken_for_displacements():
    rng = np.random.default_rng(0)
    episodes = [(np.cumsum(rng.normal(size=(40, 4)), 0), rng.normal(size=(40, 2))) for _ in range(5)]
    assert ClosedFormPolicy(Demos(episodes, *LAYOUTS)).targets is None


def test_reference_and_kernels_agree(policy, demos, monkeypatch):
    plans = []
    for disable in ("0", "1"):
        monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", disable)
        plans.append(policy.plan(demos[1].observations[9], seed=3))
    assert plans[0].frame == plans[1].frame
    assert np.allclose(plans[0].actions, plans[1].actions, atol=1e-3)
    samples = policy.sample(demos[1].observations[:3], 2, seed=0)
    assert samples.shape == (3, 2, 12, 2) and np.abs(samples).max() <= 1


def test_episodes_come_and_go(demos):
    policy, less = ClosedFormPolicy(demos), ClosedFormPolicy(demos)
    added = policy.add(demos[2])
    policy.remove(added)
    observation = demos[5].observations[4]
    assert np.array_equal(policy.plan(observation, seed=0).actions, less.plan(observation, seed=0).actions)


def test_saved_policies_plan_the_same(policy, demos, tmp_path):
    policy.save(tmp_path / "policy")
    again = ClosedFormPolicy.load(tmp_path / "policy")
    assert again.targets == policy.targets and again.fingerprint() == policy.fingerprint()
    observation = demos[5].observations[4]
    assert np.array_equal(again.plan(observation, seed=0).actions, policy.plan(observation, seed=0).actions)
    assert crc32([again.episodes[0].actions]) == crc32([demos[0].actions])


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        [{"action": 0}],
        [{**Targets((PART,)).to_json()[0], "action": 0, "scale": 0.0}],
        [{**Targets((PART,)).to_json()[0], "action": 0, "lag": float("nan")}],
        [{**Targets((PART,)).to_json()[0], "action": 0, "low": 3}],
        [{**Targets((PART,)).to_json()[0], "action": 0, "observation": 2}],
        [{**Targets((PART,)).to_json()[0], "action": 0}] * 2,
    ],
)
def test_what_does_not_fit_the_layouts_is_refused(wrong):
    with pytest.raises(ConfigError, match="targets: expected"):
        Targets.from_json(wrong, *LAYOUTS)
    right = [{**Targets((PART,)).to_json()[0], "action": 0}]
    assert Targets.from_json(right, *LAYOUTS).to_json() == [
        {**right[0], "low": tuple(right[0]["low"]), "high": tuple(right[0]["high"])}
    ]
