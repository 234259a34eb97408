"""Mirror symmetries that demonstrations show are found, and those that they do not show are not."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, NearestNeighborPolicy, load_policy
from closedform.evaluation.notes import policy_notes
from tests.conftest import planar_demos

OBSERVATIONS, ACTIONS = Layout.parse("hand position 2, block position 2, block angle"), Layout.parse("hand position 2")
GOAL = np.array([0.3, -0.2, 0.6])


def pushes(seed, n_episodes=14, n_steps=40, *, mirrored=True, offset=0.0):
    """A hand that brings a block to one pose, going round it on the nearer side, or if not `mirrored` on the left.

    Args:
        seed: of the starts.
        n_episodes, n_steps: how many.
        mirrored: whether the block's own y axis is a mirror for what the hand does.
        offset: added to the block's angle in the observations.
    """
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_episodes):
        start = GOAL + rng.uniform(-1, 1, 3) * (1, 1, 1.5)
        share = np.linspace(0, 1, n_steps + 1)[:, None]
        block = start + (GOAL + rng.normal(scale=0.005, size=3) - start) * share
        turn = GOAL[2] - start[2]
        side = np.sign(turn) if mirrored else 1.0
        way = block[:, 2] - np.pi / 2 + side * (0.4 + 1.2 * share[:, 0] + 0.5 * abs(turn))
        hand = block[:, :2] + 0.4 * np.stack([np.cos(way), np.sin(way)], 1)
        seen = np.concatenate([hand, block + np.array([0, 0, offset])], 1)
        episodes.append((seen[:-1], hand[1:]))
    return Demos(episodes, OBSERVATIONS, ACTIONS)


def found(demos, **parameters):
    policy = ClosedFormPolicy(demos, **parameters)
    return [entry.symmetry for entry in policy.observation_layout.entries if entry.symmetry is not None]


@pytest.mark.parametrize("seed", range(3))
def test_a_mirror_that_demonstrations_show_is_found(seed):
    assert found(pushes(seed)) == ["mirror_x"]  # x changes its sign
    assert found(pushes(seed, offset=np.pi / 2)) == ["mirror_y"]


@pytest.mark.parametrize("seed", range(3))
def test_what_demonstrations_do_not_show_is_not_found(seed):
    assert found(pushes(seed, mirrored=False)) == []
    assert found(pushes(seed, offset=np.pi / 4)) == []  # along another axis than the body's own
    assert found(planar_demos(np.random.default_rng(seed), 12)) == []  # nothing can be predicted


def test_what_was_found_is_said_saved_and_can_be_turned_off(tmp_path):
    demos = pushes(0)
    policy = ClosedFormPolicy(demos)
    assert policy.found_symmetry and policy.n_windows == 2 * ClosedFormPolicy(demos, find_symmetry=False).n_windows
    assert any("block looks the same in a mirror (mirror_x)" in note for note in policy_notes(policy))
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    observation = demos[3].observations[5] + 0.01
    np.testing.assert_array_equal(loaded.plan(observation, seed=1).actions, policy.plan(observation, seed=1).actions)
    assert loaded.observation_layout == policy.observation_layout != demos.observation_layout
    for options in ({"find_symmetry": False}, {"symmetry": False}, {"features": "scaled"}):
        assert found(demos, **options) == []
    assert not NearestNeighborPolicy(demos, "paper").found_symmetry


def test_it_is_found_as_if_it_had_been_declared():
    demos = pushes(0)
    declared = demos.with_layouts(Layout.parse("hand position 2, block position 2, block angle 1 mirror_x"), ACTIONS)
    observation = demos[2].observations[7] + 0.01
    plans = [ClosedFormPolicy(each).plan(observation, seed=0) for each in (demos, declared)]
    np.testing.assert_array_equal(plans[0].actions, plans[1].actions)
    assert not ClosedFormPolicy(declared).found_symmetry


@pytest.mark.parametrize("n_episodes", [9, 51])
def test_few_episodes_do_not_show_it_and_many_do_not_need_it(n_episodes):
    assert found(pushes(0, n_episodes)) == []


@pytest.mark.parametrize(
    "observations",
    [
        "hand position 2, block position 2, block angle, - other",
        "hand position 2, block position 2, block angle, hand angle",
        "hand position 2, block position 2, - vector 2",
    ],
)
def test_what_cannot_be_mirrored_in_the_plane_is_left_alone(observations):
    layout = Layout.parse(observations)
    wide = Demos(
        [(np.concatenate([e.observations, e.observations[:, :1]], 1)[:, : layout.width], e.actions) for e in pushes(0)],
        layout,
        ACTIONS,
    )
    assert found(wide) == []


def test_the_mirror_of_the_t_is_found_in_human_demonstrations(pusht):
    assert found(pusht[:25]) == ["mirror_x"]
    turned = [(e.observations + np.array([0, 0, 0, 0, np.pi / 4]), e.actions) for e in pusht[:25]]
    assert found(Demos(turned, pusht.observation_layout, pusht.action_layout, pusht.rate)) == []
