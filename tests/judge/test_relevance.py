"""Relevance: entries that say nothing lose their weight, and those that predict keep it; without selection."""

from functools import partial

import numpy as np
import pytest

import closedform
from closedform import Demos, Layout
from closedform.geometry.layout import Entry
from tests.conftest import planar_demos, slow_on_the_reference

NOTHING = 4
ClosedFormPolicy = partial(closedform.ClosedFormPolicy, selection=False)


def distracted(demos, seed=0):
    """Demonstrations with numbers added that wander about by themselves."""
    rng = np.random.default_rng(seed)
    layout = Layout((*demos.observation_layout.entries, *(Entry("other"),) * NOTHING))
    episodes = [(np.hstack([e.observations, rng.normal(size=(len(e), NOTHING))]), e.actions) for e in demos]
    return Demos(episodes, layout, demos.action_layout)


@pytest.fixture(scope="module")
def demos():
    return planar_demos(np.random.default_rng(0), n_episodes=60)


def test_what_says_nothing_counts_little_and_the_rest_as_before(demos):
    plain, policy = ClosedFormPolicy(demos), ClosedFormPolicy(distracted(demos))
    width = len(plain.model.kernel.relevance)
    weights = policy.model.kernel.relevance
    assert np.median(weights[-NOTHING:]) < 0.2
    assert np.array_equal(weights[:width], plain.model.kernel.relevance)
    assert np.array_equal(np.log2(weights), np.round(np.log2(weights)))


@slow_on_the_reference
def test_predictions_are_better_for_it(demos):
    from closedform.analysis.leave_one_out import leave_one_out

    def error(**parameters):
        policy = ClosedFormPolicy(distracted(demos), **parameters)
        return np.mean([left_out.rms_error for left_out in leave_one_out(policy, n_windows=5)])

    assert error() < 0.9 * error(relevance=False)


def test_weights_follow_the_episodes_exactly(demos):
    noisy = distracted(demos)
    grown, whole = ClosedFormPolicy(noisy[:50]), ClosedFormPolicy(noisy)
    ids = [grown.add(episode) for episode in noisy[50:]]
    query = noisy[3].observations[4]
    assert np.array_equal(grown.model.kernel.relevance, whole.model.kernel.relevance)
    np.testing.assert_array_equal(grown.plan(query, seed=0).actions, whole.plan(query, seed=0).actions)
    for number in ids:
        grown.remove(number)
    fewer = ClosedFormPolicy(noisy[:50])
    np.testing.assert_array_equal(grown.plan(query, seed=0).actions, fewer.plan(query, seed=0).actions)


@pytest.mark.parametrize("parameters", [{"relevance": False}, {"preset": "paper", "n_neighbors": 20}])
def test_it_can_be_left_out_and_the_paper_has_none(demos, parameters):
    assert ClosedFormPolicy(distracted(demos), **parameters).model.kernel.relevance.tolist() == [1.0] * (
        len(ClosedFormPolicy(distracted(demos), **parameters).model.kernel.scale)
    )


def test_few_episodes_tell_nothing(demos):
    assert set(ClosedFormPolicy(distracted(demos)[:5]).model.kernel.relevance) == {1.0}


def test_one_entry_alone_keeps_its_weight():
    rng = np.random.default_rng(0)
    noise = [(rng.normal(size=(30, 3)), rng.normal(size=(30, 2)).cumsum(0)) for _ in range(20)]
    assert set(ClosedFormPolicy(noise).model.kernel.relevance) == {1.0}
    assert max(ClosedFormPolicy(noise, drop_redundant=False).model.kernel.relevance) < 1
