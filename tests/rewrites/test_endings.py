"""Endings: hands that end at one place stay there more precisely than in any single demonstration."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from tests.conftest import real_demos, slow_on_the_reference

ACTIONS = Layout.parse("hand position 2")


def reaches(rng, *, marked, n_episodes=30, n_steps=25, noise=0.03):
    """A hand goes from anywhere to about the same place, or to about where a marker is."""
    episodes = []
    for _ in range(n_episodes):
        start, marker = rng.uniform(-1, 1, (2, 2)) if marked else (rng.uniform(-1, 1, 2), np.zeros(2))
        end = marker + noise * rng.normal(size=2)
        hand = start + np.minimum(np.linspace(0, 1.3, n_steps + 1), 1)[:, None] * (end - start)
        seen = [hand[:-1], np.tile(marker, (n_steps, 1))] if marked else [hand[:-1]]
        episodes.append((np.hstack(seen), hand[1:]))
    layout = Layout.parse("hand position 2, marker position 2" if marked else "hand position 2")
    return Demos(episodes, layout, ACTIONS)


def missed(policy, *, marked):
    """How far from the goal a hand ends that does as it is told, on average over start states."""
    rng, found = np.random.default_rng(7), []
    for seed in range(12):
        hand, marker = rng.uniform(-0.8, 0.8, (2, 2)) if marked else (rng.uniform(-0.8, 0.8, 2), np.zeros(2))
        agent = policy.agent(seed=seed)
        for _ in range(60):
            hand = agent.act(np.concatenate([hand, marker]) if marked else hand)
        found.append(np.linalg.norm(hand - marker))
    return np.mean(found)


@slow_on_the_reference
@pytest.mark.parametrize("marked", [False, True])
def test_a_hand_ends_more_precisely_than_its_demonstrations(marked):
    demos = reaches(np.random.default_rng(0), marked=marked)
    ours = missed(ClosedFormPolicy(demos), marked=marked)
    assert ours < 0.015 and ours < 0.6 * missed(ClosedFormPolicy(demos, goals="shared"), marked=marked)


def stays(policy, episode):
    """The last of the actions that follow an episode's end."""
    last = policy.store.rows_at(np.array([episode]), np.array([len(policy.episodes[episode]) - 1]))
    return policy.store.encoded_chunks(last)[0, -1]


def test_hands_that_end_in_different_places_stay_at_their_own():
    rng = np.random.default_rng(0)
    paths = [np.linspace(0, 1, 26)[:, None] * rng.uniform(-1, 1, 2) for _ in range(12)]
    policy = ClosedFormPolicy(
        Demos([(path[:-1], path[1:]) for path in paths], Layout.parse("hand position 2"), ACTIONS)
    )
    np.testing.assert_allclose(stays(policy, 3), paths[3][-1])


def test_where_objects_have_goals_hands_stay_at_their_own_ends():
    demos = real_demos("pusht")[:8]
    policy = ClosedFormPolicy(demos)
    np.testing.assert_allclose(stays(policy, 3), demos[3].actions[-1])


def test_ends_move_as_episodes_come_and_go():
    demos = reaches(np.random.default_rng(1), marked=False, n_episodes=9)
    policy = ClosedFormPolicy(demos[:8])
    before = stays(policy, 0)
    np.testing.assert_allclose(before, np.median([e.actions[-1] for e in demos[:8]], axis=0))
    number = policy.add(demos[8])
    np.testing.assert_array_equal(stays(policy, 0), stays(ClosedFormPolicy(demos), 0))
    assert not np.array_equal(stays(policy, 0), before)
    policy.remove(number)
    np.testing.assert_array_equal(stays(policy, 0), before)
