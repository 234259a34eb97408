"""Redundancy: what is constant, a copy, or in another unit changes nothing, and noise is not blown up."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.geometry.layout import Entry
from closedform.weights.redundancy import copied
from tests.conftest import planar_demos

WIDTH = 4


def wander(seed, n_episodes=12, length=30):
    """Raw numbers, and actions that follow from some of them."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_episodes):
        x = rng.normal(size=WIDTH) + 0.1 * rng.normal(size=(length, WIDTH)).cumsum(0)
        episodes.append((x, np.tanh(x[:, :2] - x[:, 2:])))
    return episodes


def with_more(episodes, more):
    return [(np.hstack([x, more(x)]), a) for x, a in episodes]


def last_frame(x):
    return np.vstack([x[:1], x[:-1]])


MORE = {
    "zeros": lambda x: np.zeros((len(x), 25)),
    "constants": lambda x: np.tile([3.0, -7e5, 1e-9], (len(x), 1)),
    "the same numbers again": lambda x: x[:, [2, 0]],
    "copies of the last frame": last_frame,
    "stacked frames": lambda x: np.hstack([last_frame(x), last_frame(last_frame(x))]),
}


@pytest.mark.parametrize("what", MORE)
@pytest.mark.parametrize("features", ["geometric", "scaled"])
def test_constants_and_copies_change_no_plan(what, features, both_ways):
    episodes = wander(0)
    plain = ClosedFormPolicy(episodes, features=features, n_diffusion_steps=10)
    more = ClosedFormPolicy(with_more(episodes, MORE[what]), features=features, n_diffusion_steps=10)
    assert more.model.kernel.n_counted == WIDTH
    assert more.model.kernel.h == plain.model.kernel.h
    assert more.model.kernel.shrinkage == plain.model.kernel.shrinkage
    queries = wander(1, 1)[0][0][:5]
    for query, wide in zip(queries, with_more([(queries, None)], MORE[what])[0][0], strict=True):
        ours, theirs = plain.plan(query, seed=0), more.plan(wide, seed=0)
        np.testing.assert_allclose(theirs.actions, ours.actions, atol=1e-9)
        assert theirs.distance == pytest.approx(ours.distance, rel=1e-9)


def test_without_it_they_do():
    episodes = wander(0)
    plain, more = (ClosedFormPolicy(e, drop_redundant=False) for e in (episodes, with_more(episodes, MORE["zeros"])))
    assert more.model.kernel.h < 0.5 * plain.model.kernel.h


@pytest.mark.parametrize("unit", [1000.0, 1e-3, -1.0])
@pytest.mark.parametrize("features", ["geometric", "scaled"])
def test_units_change_nothing(features, unit, both_ways):
    unit = np.array([1.0, unit, 1.0, 1.0])
    episodes = wander(0)
    policy = ClosedFormPolicy(episodes, features=features, n_diffusion_steps=10)
    other = ClosedFormPolicy([(x * unit, a) for x, a in episodes], features=features, n_diffusion_steps=10)
    for query in (*wander(1, 1)[0][0][:5], episodes[0][0][0] + [0.0, 1e3, 0.0, 0.0]):
        ours, theirs = policy.plan(query, seed=0), other.plan(query * unit, seed=0)
        np.testing.assert_allclose(theirs.actions, ours.actions, atol=1e-9)
        assert theirs.distance == pytest.approx(ours.distance, rel=1e-9)


def test_a_unit_quaternion_that_hardly_turns_does_not_outweigh_what_moves():
    def settling(x):
        small = 1e-5 * np.random.default_rng(len(x)).normal(size=(len(x), 3))
        return np.hstack([small, np.sqrt(1 - np.sum(small * small, axis=1, keepdims=True))])

    episodes = wander(0)
    plain, more = ClosedFormPolicy(episodes, shrinkage=0), ClosedFormPolicy(with_more(episodes, settling), shrinkage=0)
    query, turned = episodes[0][0][3], [0.1, 0.0, 0.0, np.sqrt(0.99)]
    rotated = more.plan([*query, *turned], seed=0)
    assert rotated.episodes[0] == plain.plan(query, seed=0).episodes[0]
    assert rotated.distance < 5


def test_episodes_come_and_go_as_if_built_at_once():
    def sometimes(x):  # a copy in the first episodes only, and a number that is constant in most
        copy = x[:, :1] + (x[0, 0] > 0.5)
        return np.hstack([copy, np.full((len(x), 1), float(x[0, 1] > 1.0))])

    episodes = with_more(wander(3, 20), sometimes)
    layouts = Layout.plain(6), Layout.plain(2)
    policy, query = ClosedFormPolicy(Demos(episodes[:2], *layouts)), episodes[5][0][7]
    for episode in episodes[2:]:
        policy.add(episode)
    for gone in (0, 3, 4, 19, 7):
        policy.remove(gone)
        episodes_left = [episodes[i] for i in policy.episode_ids]
        whole = ClosedFormPolicy(Demos(episodes_left, *layouts))
        assert np.array_equal(policy.model.kernel.scale, whole.model.kernel.scale)
        assert policy.model.kernel.shrinkage == whole.model.kernel.shrinkage
        np.testing.assert_array_equal(policy.plan(query, seed=0).actions, whole.plan(query, seed=0).actions)
        assert policy.plan(query, seed=0).distance == whole.plan(query, seed=0).distance


def test_geometric_entries_are_left_out_as_a_whole_or_not_at_all():
    demos = planar_demos(np.random.default_rng(0), n_episodes=10)
    entries = demos.observation_layout.entries
    layout = Layout((*entries, Entry("position", size=2, body="post"), Entry("position", size=2, body="rail")))
    more = [
        (
            np.hstack([e.observations, np.full((len(e), 2), 7.0), e.observations[:, :1], np.zeros((len(e), 1))]),
            e.actions,
        )
        for e in demos
    ]
    scale = ClosedFormPolicy(Demos(more, layout, demos.action_layout)).model.kernel.scale
    assert (scale[-4:-2] == 0).all()
    assert (scale[-2:] > 0).all()
    assert (scale[:-4] > 0).all()


def test_numbers_that_swap_are_not_both_left_out():
    flip = np.array([[0.0, 1.0], [1.0, 0.0]] * 5)
    assert copied([flip]).tolist() == [False, False]
    jump = np.array(
        [[0.0, 1.0]] + [[1.0, 1.0]] * 5 + [[2.0, 2.0]]
    )  # the second is ahead of the first, only at the start
    assert copied([jump]).tolist() == [False, False]
    counter = np.arange(10.0)[:, None]
    assert copied([np.hstack([counter, counter + 1, counter])]).tolist() == [True, False, True]


@pytest.mark.parametrize("episodes", [[(np.zeros((1, 3)), np.zeros((1, 2)))], [(np.zeros((9, 3)), np.zeros((9, 2)))]])
def test_nothing_varies(episodes):
    assert np.isfinite(ClosedFormPolicy(episodes).plan(np.ones(3), seed=0).actions).all()
