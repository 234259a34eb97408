"""Agents: history, receding horizon, randomness and loop memory."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, NearestNeighborPolicy
from closedform.weights.state import Used
from tests.conftest import random_demos


@pytest.fixture
def demos():
    return random_demos(np.random.default_rng(0), 5, 40, 3, 2)


def test_a_chunk_is_executed_before_the_next_plan(both_ways, demos):
    policy = ClosedFormPolicy(demos, n_action_steps=6, n_execute=4)
    agent = policy.agent(seed=0)
    observations = np.random.default_rng(1).normal(size=(9, 3))
    plans = []
    for t, observation in enumerate(observations):
        action = agent.act(observation)
        assert action.shape == (2,)
        if t % 4 == 0:
            plans.append(agent.last_plan)
        assert agent.last_plan is plans[-1]
        np.testing.assert_array_equal(action, plans[-1].actions[t % 4])
    assert len({id(plan) for plan in plans}) == 3


def test_history_begins_with_the_first_observation_repeated(both_ways, demos):
    policy = ClosedFormPolicy(demos, n_obs_steps=3, n_action_steps=4, n_execute=2, loop_memory=0.0, continuation=0.0)
    observations = np.random.default_rng(2).normal(size=(5, 3))
    agent, generator = policy.agent(seed=7), np.random.default_rng(7)
    for t in range(5):
        agent.act(observations[t])
        if t % 2 == 0:
            window = observations[np.clip([t - 2, t - 1, t], 0, None)]
            assert agent.last_plan is not None
            np.testing.assert_array_equal(agent.last_plan.actions, policy.plan(window, seed=generator).actions)


def test_history_survives_an_environment_that_reuses_its_array(demos):
    policy = NearestNeighborPolicy(demos, n_obs_steps=2, n_action_steps=1, n_execute=1)
    observations = np.random.default_rng(3).normal(size=(6, 3))
    fresh, reused, buffer = policy.agent(), policy.agent(), np.empty(3)
    for observation in observations:
        buffer[:] = observation
        np.testing.assert_array_equal(fresh.act(observation), reused.act(buffer))


def test_planning_by_hand_replaces_the_chunk(demos):
    agent = ClosedFormPolicy(demos, n_action_steps=4, n_execute=4).agent(seed=0)
    agent.act(np.zeros(3))
    plan = agent.plan(np.ones(3))
    np.testing.assert_array_equal(agent.act(np.ones(3)), plan.actions[0])


def test_the_same_seed_runs_the_same_episode(both_ways, demos):
    policy = ClosedFormPolicy(demos, bandwidth=0.5)
    observations = np.random.default_rng(4).normal(size=(20, 3))

    def run(agent):
        return [agent.act(observation) for observation in observations]

    agent = policy.agent(seed=3)
    first = run(agent)
    np.testing.assert_array_equal(first, run(policy.agent(seed=3)))
    assert not np.array_equal(first, run(policy.agent(seed=4)))
    agent.reset()  # goes on with its own random numbers, as a gymnasium environment does
    second = run(agent)
    assert not np.array_equal(first, second)
    agent.reset(seed=3)
    np.testing.assert_array_equal(first, run(agent))


def two_ways_out():
    """A demonstration that stays where it is, right at the query, and one a little further away that leaves."""
    stay, leave = (np.zeros((4, 1)), np.zeros((4, 1))), (np.ones((4, 1)), np.ones((4, 1)))
    return Demos([stay, leave])


@pytest.mark.parametrize("policy_class", [ClosedFormPolicy, NearestNeighborPolicy])
def test_loop_memory_leaves_a_loop(both_ways, policy_class):
    """Seeing the same observation again and again, the agent turns to the other demonstration."""

    def steps_until_it_leaves(loop_memory):
        policy = policy_class(two_ways_out(), n_action_steps=2, n_execute=2, loop_memory=loop_memory, hold_at_end=False)
        agent = policy.agent(seed=0)
        return next((t for t in range(200) if agent.act([0.0])[0] > 0.9), 200)

    assert steps_until_it_leaves(0.0) == 200
    assert 2 <= steps_until_it_leaves(2.0) < steps_until_it_leaves(1.0) < 40
    assert steps_until_it_leaves(0.2) == 200  # what fades faster than it adds up does not drive an agent away


def test_loop_memory_fades(demos):
    policy = NearestNeighborPolicy(demos, n_action_steps=2, n_execute=2)
    agent = policy.agent(seed=0)
    first = agent.plan(demos[0].observations[5])
    row = np.array([5])
    used = [agent.state.penalty.at(row)[0]]
    for _ in range(20):
        agent.plan(demos[1].observations[20])
        used.append(agent.state.penalty.at(row)[0])
    assert (first.episodes[0], first.steps[0]) == (0, 5)
    assert used[0] == policy.config.loop_memory**2
    assert (np.diff(used) < 0).all() and used[20] == pytest.approx(0.5 * used[0])


def test_loop_memory_follows_episodes_that_come_and_go(demos):
    policy = NearestNeighborPolicy(demos, n_action_steps=2, n_execute=2)
    agent = policy.agent(seed=0)
    agent.plan(demos[2].observations[7])
    before = agent.state.on(policy.store).penalty.at(np.arange(policy.n_windows))
    assert before.any()
    added = policy.add(demos[0])
    policy.remove(1)
    after = agent.state.on(policy.store).penalty.at(np.arange(policy.n_windows))
    np.testing.assert_array_equal(after[:40], before[:40])
    np.testing.assert_array_equal(after[40:160], before[80:])
    np.testing.assert_array_equal(after[160:], 0)
    assert added == 5 and agent.plan(demos[2].observations[7]).actions.shape == (2, 2)


def path_demos(n_points):
    """A quarter of a circle that ends at rest; an action is the next position."""
    angle = np.linspace(0, np.pi / 2, n_points)
    circle = np.stack([np.cos(angle), np.sin(angle)], 1)
    paths = [size * circle + [0, 1 - size] for size in (0.9, 1.0, 1.1)]
    return Demos([(path, np.concatenate([path[1:], path[-1:]])) for path in paths], Layout.plain(2), Layout.plain(2))


@pytest.mark.parametrize("n_points", [40, 200])
def test_a_policy_that_has_arrived_stays(both_ways, n_points):
    def away(rest):
        """How far from the end it is at most, after the time that a demonstration takes and as much again."""
        agent, position = ClosedFormPolicy(path_demos(n_points), hold_at_end=rest).agent(seed=0), np.array([0.97, 0.02])
        distances = []
        for _ in range(3 * n_points):
            position = agent.act(position)
            distances.append(np.linalg.norm(position - [0, 1]))
        return max(distances[2 * n_points :])

    assert away(rest=True) < 0.06 and away(rest=False) > 0.3


def ease(n_points):
    """Progress from 0 to 1 that is slow at both ends, as people move."""
    return (1 - np.cos(np.linspace(0, np.pi, n_points))) / 2


def arc_demos(n_points):
    """Three quarters of circles that begin and end slowly at common points; an action is the next position."""
    angle = 1.5 * np.pi * ease(n_points)
    paths = [np.stack([size * np.cos(angle), size * np.sin(angle)], 1) for size in (0.97, 1.0, 1.03)]
    return Demos([(path, np.concatenate([path[1:], path[-1:]])) for path in paths])


def test_the_pace_is_the_demonstrated_one_at_any_sampling_rate(both_ways):
    def duration(n_points, **parameters):
        """Steps until the last twentieth of the path, in those of a demonstration."""
        policy = ClosedFormPolicy(arc_demos(n_points), n_diffusion_steps=20, n_perturbations=8, **parameters)
        agent, position = policy.agent(seed=0), np.array([1.01, 0.0])
        demonstrated = int(np.flatnonzero(ease(n_points) > 0.95)[0])
        for step in range(3 * n_points):
            position = agent.act(position)
            if np.arctan2(position[1], position[0]) % (2 * np.pi) > 0.95 * 1.5 * np.pi and step > n_points // 10:
                return step / demonstrated
        return np.inf

    coarse, fine = duration(60), duration(600)
    assert 0.8 < coarse < 1.2 and 0.8 < fine < 1.2
    assert duration(600, loop_delay=False, continuation=0.0) < 0.7


def test_an_agent_goes_on_with_the_demonstration_that_it_follows(both_ways):
    """Between two demonstrations that are both within the bandwidth, it follows one."""
    steps = np.linspace(0, 1, 80)
    paths = [np.stack([steps, np.full(80, height)], 1) for height in (-0.02, 0.02, -1.0, 1.0)]
    demos = Demos([(path, np.concatenate([path[1:], path[-1:]])) for path in paths])

    def changes(continuation):
        agent = ClosedFormPolicy(demos, continuation=continuation, metric="euclidean").agent(seed=0)
        followed = [agent.plan([x, 0.002 * (-1) ** i]).episodes[0] for i, x in enumerate(steps[:60:4])]
        return np.count_nonzero(np.diff(followed))

    assert changes(0.5) == 0 and changes(0.0) > 5


def used(policy, *rows):
    """What a plan made of these rows alike used, one standard deviation away from them."""
    return Used(policy.store, np.array(rows), np.full(len(rows), 1 / len(rows)), 1.0, policy.model.kernel.h)


def test_a_continuation_that_was_used_lately_counts_for_nothing(demos):
    policy = NearestNeighborPolicy(demos, n_action_steps=2, n_execute=2, loop_memory=0.0)
    state = policy.begin().after(used(policy, 5))
    once = state.penalty.at(np.array([7]))[0]
    assert once < 0
    again = state.after(used(policy, 7)).after(used(policy, 5)).penalty.at(np.array([7]))[0]
    assert again > 0.05 * once


def test_what_waits_and_what_continues_follow_episodes_that_come_and_go():
    """A memory whose store loses its first episode says the same of the others as before."""
    policy = ClosedFormPolicy(arc_demos(200))
    state, store = policy.begin(), policy.store
    rows, n = np.arange(300, 321), int(store.counts[0])
    for _ in range(2):
        state = state.after(used(policy, *rows))
    before = state.penalty.at(np.arange(len(store)))
    assert (before[:n] == 0).all() and (before < 0).any() and not (before > 0).any()  # nothing is left behind yet
    policy.remove(0)
    state = state.on(policy.store)
    np.testing.assert_array_equal(state.penalty.at(np.arange(len(policy.store))), before[n:])
    for _ in range(5):
        state = state.after(used(policy, *(rows - n)))
    receded = np.flatnonzero(state.penalty.at(np.arange(len(policy.store))) > 0)
    np.testing.assert_array_equal(receded, np.arange(308, 313) - n)
