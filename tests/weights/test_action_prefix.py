"""Real-time chunking: a plan continues what is left of the last chunk, by the exact conditional mixture."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormPolicy, Demos, Layout, NearestNeighborPolicy
from closedform.errors import ConfigError, DataError
from closedform.policies.plan import Plan
from closedform.weights.terms.action_prefix import CORRELATION, ActionPrefix
from tests.conftest import planar_demos

DEMOS = planar_demos(np.random.default_rng(0))
POSITION = Layout.of(("hand", "position", 2))


def fork():
    """From the same place, some demonstrations go left and some right, slowly at first."""
    rng, episodes = np.random.default_rng(1), []
    for side in (-1, 1, -1, 1, -1, 1):
        along = np.linspace(0, 1, 21)[:, None] * [side, 1.0] + rng.normal(scale=1e-3, size=(21, 2))
        episodes.append((along[:-1], along[1:]))
    return Demos(episodes, POSITION, POSITION)


@pytest.mark.parametrize("delay", [0, 1, 3, 6])
def test_a_plan_begins_with_what_is_executed_meanwhile(delay):
    agent = ClosedFormPolicy(DEMOS).agent(seed=0)
    seen = DEMOS.episodes[1].observations
    left = agent.plan(seen[0]).actions[4:10] + 0.01
    plan = agent.plan(seen[4], ActionPrefix(left, delay))
    assert plan.actions.shape == (12, 2)
    np.testing.assert_array_equal(plan.actions[:delay], left[:delay])
    assert not np.array_equal(plan.actions[delay], left[delay] if delay < 6 else left[-1])


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("delay", [1, 3])
def test_the_way_that_was_taken_is_kept(side, delay):
    """At the fork both ways are equally near; what is left of the last chunk decides, for every seed."""
    policy = ClosedFormPolicy(fork(), loop_memory=0.0, continuation=0.0, frames="world")
    left = np.linspace(0.05, 0.4, 8)[:, None] * [side, 1.0]
    ends, free = set(), set()
    for seed in range(12):
        ends.add(np.sign(policy.agent(seed).plan(np.zeros(2), ActionPrefix(left, delay)).actions[-1, 0]))
        free.add(np.sign(policy.agent(seed).plan(np.zeros(2)).actions[-1, 0]))
    assert ends == {side} and free == {-1, 1}


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def covariance(n):
    """tau^2 R of one number."""
    return 0.2**2 * CORRELATION ** np.abs(np.subtract.outer(np.arange(n), np.arange(n)))


def test_weights_are_those_of_the_conditional_mixture(both_ways):
    """Bayes' rule by hand: the weights of demonstrations times the likelihood of the executed actions."""
    policy = ClosedFormPolicy(DEMOS, frames="world", loop_memory=0.0, continuation=0.0, tau=0.2)
    seen, left = DEMOS.episodes[0].observations[5], DEMOS.episodes[3].actions[5:8]
    agent = policy.agent(seed=0)
    agent.observe(seen)
    left_over = ActionPrefix(left, 3)
    np.testing.assert_array_equal(left_over.counts, 1)
    state = policy.conditioned(agent.state, agent.window, left_over)
    model = policy.model
    near = model.near(agent.window, len(model))
    before = near.log_weights(model, agent.state.on(model.store).penalty)
    after = near.log_weights(model, state.penalty)
    assert before is not None and after is not None
    offset, scale = model.transfer.normalization(near.choice)
    chunks = model.normalized_chunks(near.rows, near.choice).reshape(len(near.rows), 12, 2)[:, :3]
    errors = (left - offset) * scale - chunks
    likelihood = -0.5 * np.einsum("kin,ij,kjn->k", errors, np.linalg.inv(covariance(3)), errors)
    np.testing.assert_allclose(softmax(after), softmax(before + likelihood), rtol=1e-6, atol=1e-12)
    assert np.abs(softmax(after) - softmax(before)).max() > 0.01


@given(st.integers(1, 11), st.integers(0, 1000))
@settings(max_examples=20)
def test_the_rest_is_the_conditional_mean(delay, seed):
    """Of a Gaussian with that covariance around the planned chunk, given the executed actions."""
    rng = np.random.default_rng(seed)
    chunk, left = rng.normal(size=(12, 2)), rng.normal(size=(delay, 2))
    nothing = np.empty(0, np.int64)
    plan = Plan(chunk, "world", nothing, nothing, np.empty(0), 0.0)
    joined = ActionPrefix(left, delay).join(plan, POSITION).actions
    whole = covariance(12)
    known = np.linalg.solve(whole[:delay, :delay], left - chunk[:delay])
    np.testing.assert_allclose(joined[delay:], chunk[delay:] + whole[delay:, :delay] @ known, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(joined[:delay], left)
    np.testing.assert_array_equal(plan.actions, chunk)


def test_angles_go_on_the_short_way_and_other_rotations_and_switches_change():
    layout = Layout.of(("hand", "angle"), ("hand", "position", 2), (None, "binary"))
    nothing = np.empty(0, np.int64)
    plan = Plan(np.zeros((4, 4)), "world", nothing, nothing, np.empty(0), 0.0)
    joined = ActionPrefix(np.array([[2 * np.pi - 0.1, 1, 0, 1]]), 1).join(plan, layout).actions
    np.testing.assert_allclose(joined[1], [-0.1 * CORRELATION, CORRELATION, 0, 0])


def test_later_actions_count_less():
    counts = ActionPrefix(np.zeros((8, 2)), 3).counts
    assert (counts[:3] == 1).all() and (np.diff(counts[2:]) < 0).all() and 0 < counts[-1] < 0.1
    assert ActionPrefix(np.zeros((4, 2)), 4).counts.tolist() == [1] * 4 and not len(
        ActionPrefix(np.zeros((0, 2)), 0).counts
    )


def test_nothing_left_over_changes_nothing():
    policy, seen = ClosedFormPolicy(DEMOS), DEMOS.episodes[1].observations
    plan = policy.agent(seed=2).plan(seen[3], ActionPrefix(np.zeros((0, 2)), 0))
    np.testing.assert_array_equal(plan.actions, policy.agent(seed=2).plan(seen[3]).actions)


def test_an_episode_added_meanwhile_is_no_harm():
    policy, seen = ClosedFormPolicy(DEMOS), DEMOS.episodes[1].observations
    agent = policy.agent(seed=0)
    agent.plan(seen[0])
    agent.observe(seen[4])
    state = policy.conditioned(agent.state, agent.window, ActionPrefix(DEMOS.episodes[1].actions[4:8], 2))
    before = state.penalty
    policy.add(DEMOS.episodes[0])
    policy.remove(0)
    after = state.on(policy.store).penalty
    assert len(after.rows) and after.rows.max() < len(policy.store) and (np.diff(after.rows) > 0).all()
    assert len(after.rows) < len(before.rows)
    assert policy.step(agent.window, state, agent.rng)[0].actions.shape == (12, 2)


def test_what_cannot_be_continued_is_one_line():
    seen = DEMOS.episodes[0].observations[0]
    for left, delay, message in (
        (np.zeros((3, 2)), 4, "at most the 3 actions that are left over, found 4"),
        (np.zeros((3, 2)), -1, "delay: expected"),
        (np.zeros(3), 0, r"found shape \(3,\)"),
        (np.full((3, 2), np.nan), 0, "expected finite actions"),
        (np.zeros((3, 5)), 0, r"actions of 2 numbers, found shape \(3, 5\)"),
        (np.zeros((13, 2)), 0, "at most 12 actions"),
    ):
        with pytest.raises(DataError, match=message):
            ClosedFormPolicy(DEMOS).agent(seed=0).plan(seen, ActionPrefix(left, delay))
    for policy in (NearestNeighborPolicy(DEMOS), ClosedFormPolicy(DEMOS, tau=0.0)):
        with pytest.raises(ConfigError, match="expected a ClosedFormPolicy with tau"):
            policy.agent(seed=0).plan(seen, ActionPrefix(np.zeros((3, 2)), 1))
