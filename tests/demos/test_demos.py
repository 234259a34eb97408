"""Demonstrations that cannot be used are refused with the reason and the place."""

import numpy as np
import pytest
import torch

from closedform import ClosedFormError, Demos, Episode, Layout


def pair(n_steps=5, d_o=3, d_a=2):
    return np.zeros((n_steps, d_o)), np.ones((n_steps, d_a))


def test_pairs_episodes_lists_and_tensors_are_all_episodes():
    observations, actions = pair()
    demos = Demos(
        [
            (observations, actions),
            Episode(observations, actions),
            (observations.tolist(), actions.astype(int)),
            (torch.zeros(5, 3), torch.ones(5, 2, requires_grad=True)),
        ]
    )
    assert len(demos) == 4 and demos.n_steps == 20
    for episode in demos:
        np.testing.assert_array_equal(episode.actions, actions)
    assert [len(episode) for episode in demos[1:3]] == [5, 5]
    assert demos[1:3].observation_layout == demos.observation_layout


def test_an_episode_keeps_its_numbers_when_the_callers_array_changes():
    observations, actions = pair()
    episode = Episode(observations, actions)
    observations[:] = 7
    assert (episode.observations == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        episode.observations[0] = 1


def with_value(value, step, index):
    observations, actions = pair()
    observations[step, index] = value
    return observations, actions


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([], "at least one episode, found none"),
        ([pair(), pair(d_o=4)], "episode 1: expected observations of 3 numbers, found 4"),
        ([pair(), pair(d_a=1)], "episode 1: expected actions of 2 numbers, found 1"),
        ([pair(), with_value(np.nan, 2, 1)], "episode 1: observations must be finite, found nan at step 2, entry 1"),
        ([with_value(np.inf, 4, 0)], "episode 0: observations must be finite, found inf at step 4, entry 0"),
        ([(np.zeros((5, 3)), np.ones((4, 2)))], r"episode 0: .* 5 observations and 4 actions; .* observations\[:-1\]$"),
        ([(np.zeros((6, 3)), np.ones((4, 2)))], "episode 0: .* 6 observations and 4 actions$"),
        ([(np.zeros(5), np.ones(5))], r"episode 0: observations .* found shape \(5,\)"),
        ([([["a"]], [[1]])], "episode 0: observations must be an array of real numbers, found dtype <U1"),
        ([([[1, 2], [3]], [[1], [2]])], "rows of unequal length"),
        ([np.zeros((3, 3))], "episode 0: expected an Episode or a pair"),
        ([5], "episode 0: expected an Episode or a pair .* found int"),
    ],
)
def test_bad_demonstrations_are_refused(episodes, message):
    with pytest.raises(ClosedFormError, match=message):
        Demos(episodes)


def test_quaternions_must_have_unit_length():
    layout = Layout.of(("hand", "quaternion"))
    observations = np.tile([0.0, 0.0, 0.0, 1.0], (4, 1))
    Demos([(observations, np.zeros((4, 1)))], layout)
    observations[2] = 0
    with pytest.raises(ClosedFormError, match=r"unit length at entry 0 .* found length 0 at step 2"):
        Demos([(observations, np.zeros((4, 1)))], layout)


def test_layouts_must_fit():
    with pytest.raises(ClosedFormError, match="episode 0: expected observations of 2 numbers, found 3"):
        Demos([pair()], Layout.of(("hand", "position", 2)))


def test_pusht_is_read(pusht):
    assert len(pusht) == 206 and pusht.n_steps == 25650
    assert pusht.observation_layout.bodies == ("agent", "block")


def test_stretches_that_meet_a_condition_become_episodes():
    demos = Demos(
        [(np.arange(6.0)[:, None], np.zeros((6, 1))), (np.arange(10.0, 14)[:, None], np.ones((4, 1)))], tasks=["a", "b"]
    )
    values = demos.all_observations()[:, 0]
    found = demos.where((values != 2) & (values < 13))
    assert [episode.observations[:, 0].tolist() for episode in found] == [[0, 1], [3, 4, 5], [10, 11, 12]]
    assert found.tasks == ("a", "a", "b")
    with pytest.raises(ClosedFormError, match="that meets the condition, found none of 10"):
        demos.where(values > 99)
    for wrong in (values, values[:3] > 0):
        with pytest.raises(ClosedFormError, match="expected true or false for each of 10 steps"):
            demos.where(wrong)
