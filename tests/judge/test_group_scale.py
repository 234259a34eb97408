"""Crowding: numbers of no known meaning that move together do not outweigh what has one."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout

N_JOINTS = 30
LAYOUT = f"hand position 2, block position 2, - other {N_JOINTS}"


def reaching(n_joints=N_JOINTS, together=True, n_episodes=12):
    """A hand goes to a block; joints follow from where the hand is, or have nothing to do with each other."""
    rng = np.random.default_rng(0)
    mixing, phases = rng.normal(size=(2, n_joints)), rng.uniform(0, 6, n_joints)
    episodes = []
    for _ in range(n_episodes):
        block, start = rng.uniform(-1, 1, size=(2, 2))
        hand = start + np.linspace(0, 1, 30)[:, None] * (block - start)
        joints = np.sin(hand @ mixing + phases) if together else rng.normal(size=(30, n_joints))
        episodes.append((np.hstack([hand, np.tile(block, (30, 1)), joints]), np.vstack([hand[1:], block])))
    layout = Layout.parse(LAYOUT.replace(str(N_JOINTS), str(n_joints)))
    return Demos(episodes, observation_layout=layout, action_layout=Layout.parse("hand position 2"))


def weights(demos, **parameters):
    policy = ClosedFormPolicy(demos, n_diffusion_steps=5, selection=False, **parameters)
    return policy.model.kernel.relevance


def test_joints_that_follow_from_the_hand_count_less_and_nothing_else_does():
    found = weights(reaching())
    assert set(found[4:]) <= {0.5, 0.25, 0.125}
    np.testing.assert_array_equal(found[:4], 1)


@pytest.mark.parametrize("demos", [reaching(3), reaching(together=False)], ids=["few", "independent"])
def test_few_and_independent_numbers_are_no_crowd(demos, monkeypatch):
    monkeypatch.setattr("closedform.judge.relevance.entry_weights", lambda spec, store, features: 1.0)
    np.testing.assert_array_equal(weights(demos), 1)


def test_a_number_and_itself_a_step_earlier_are_no_crowd():
    one, two = (weights(reaching(), n_obs_steps=n) for n in (1, 2))
    np.testing.assert_array_equal(two, np.tile(one, 2))


def test_how_many_more_there_are_hardly_matters():
    """What the joints add to a typical squared distance, relative to hand and block, with 20 and with 80 of them."""

    def share(n_joints):
        kernel = ClosedFormPolicy(reaching(n_joints), selection=False, n_diffusion_steps=5).model.kernel
        observations = reaching(n_joints).all_observations()
        spread = np.var((kernel.spec.feature_map.lift(observations[:, None]) - kernel.offset) * kernel.scale, axis=0)
        return spread[4:].sum() / spread[:4].sum()

    assert share(80) < 2 * share(20)
    crowded = ClosedFormPolicy(reaching(80), relevance=False, selection=False).model.kernel
    assert np.all(crowded.relevance == 1)


def test_where_nothing_has_a_known_meaning_all_keep_their_weight():
    demos = reaching()
    plain = Demos(list(demos), action_layout=demos.action_layout)
    np.testing.assert_array_equal(weights(plain, features="geometric"), 1)
