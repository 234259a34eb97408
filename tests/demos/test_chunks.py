"""Windows are those of the paper, and padding continues an episode sensibly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closedform import Episode, Layout
from closedform.demos.chunks import cut


def episode_of(n_steps):
    steps = np.arange(n_steps, dtype=float)[:, None]
    return Episode(steps + np.array([0, 100]), 10 * steps + np.array([0, 1000]))


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 6))
def test_windows_are_the_papers(n_steps, n_obs_steps, n_action_steps):
    episode = episode_of(n_steps)
    chunks = cut(episode, n_obs_steps, n_action_steps, action_layout=Layout.plain(2))
    assert chunks.steps.tolist() == list(range(n_obs_steps - 1, n_steps - n_action_steps + 1))
    for window, t in zip(chunks.observations, chunks.steps, strict=True):
        np.testing.assert_array_equal(window, episode.observations[t - n_obs_steps + 1 : t + 1])
        np.testing.assert_array_equal(chunks.actions[t : t + n_action_steps], episode.actions[t : t + n_action_steps])


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 6))
def test_padding_repeats_both_ends(n_steps, n_obs_steps, n_action_steps):
    episode = episode_of(n_steps)
    chunks = cut(episode, n_obs_steps, n_action_steps, padding=True, action_layout=Layout.plain(2))
    assert chunks.steps.tolist() == list(range(n_steps))
    for window, t in zip(chunks.observations, chunks.steps, strict=True):
        before = np.clip(np.arange(t - n_obs_steps + 1, t + 1), 0, None)
        after = np.clip(np.arange(t, t + n_action_steps), None, n_steps - 1)
        np.testing.assert_array_equal(window, episode.observations[before])
        np.testing.assert_array_equal(chunks.actions[t : t + n_action_steps], episode.actions[after])


def test_displacements_are_continued_with_rest():
    layout = Layout.of(("hand", "vector", 2), (None, "binary"))
    episode = Episode(np.zeros((2, 1)), np.array([[1.0, 2.0, 1.0], [3.0, 4.0, 1.0]]))
    chunks = cut(episode, 1, 3, padding=True, action_layout=layout)
    np.testing.assert_array_equal(chunks.actions[2:], [[0, 0, 1], [0, 0, 1]])


def test_windows_do_not_copy_observations():
    episode = episode_of(1000)
    chunks = cut(episode, 4, 8, action_layout=Layout.plain(2))
    assert np.shares_memory(chunks.observations, episode.observations)
    assert np.shares_memory(chunks.actions, episode.actions)


@pytest.mark.parametrize("padding", [False, True])
def test_an_empty_episode_gives_no_window(padding):
    chunks = cut(Episode(np.empty((0, 2)), np.empty((0, 2))), 2, 3, padding=padding, action_layout=Layout.plain(2))
    assert len(chunks.steps) == len(chunks.observations) == 0
