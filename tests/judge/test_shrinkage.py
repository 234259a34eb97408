"""Shrinkage: the data choose it where one predicts surely better, and always the same one."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy
from closedform.judge.shrinkage import CANDIDATES
from closedform.weights.metric import usual_shrinkage
from tests.conftest import planar_demos

N_EPISODES, LENGTH = 16, 40


def one_small_number_decides(seed=0, n_episodes=N_EPISODES):
    """Numbers that wander far together, and their difference, which hardly varies and is all that matters."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_episodes):
        far = rng.uniform(-5, 5, size=(1, 1)) + 0.3 * rng.normal(size=(LENGTH, 1)).cumsum(0)
        small = rng.uniform(-1, 1) + np.linspace(0, rng.normal(), LENGTH)[:, None]
        episodes.append((np.hstack([far, far + 0.3 * small, far - 0.3 * small]), np.hstack([small, -small])))
    return episodes


def useless_numbers(seed=0, n_episodes=N_EPISODES):
    """Two numbers that matter and vary a lot, and many that vary little and say nothing."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_episodes):
        x = rng.normal(size=2) + 0.1 * rng.normal(size=(LENGTH, 2)).cumsum(0)
        noise = rng.normal(size=(LENGTH, 10))
        noise[:2] = [[8.0] * 10, [-8.0] * 10]  # so that what is scaled to [-1, 1] varies little
        episodes.append((np.hstack([x, noise]), np.tanh(x)))
    return episodes


def test_where_what_varies_little_decides_there_is_none():
    policy = ClosedFormPolicy(one_small_number_decides())
    assert policy.model.kernel.shrinkage == 0


def test_where_what_varies_little_says_nothing_it_is_the_usual_one():
    kernel = ClosedFormPolicy(useless_numbers(), relevance=False).model.kernel
    assert kernel.chosen is None
    assert kernel.shrinkage == usual_shrinkage(kernel.n_counted, N_EPISODES) > max(CANDIDATES)


def test_the_choice_predicts_better():
    from closedform.analysis.leave_one_out import leave_one_out

    def error(**parameters):
        policy = ClosedFormPolicy(one_small_number_decides(), n_diffusion_steps=10, **parameters)
        return np.mean([left_out.rms_error for left_out in leave_one_out(policy, n_windows=5)])

    assert error() < 0.8 * error(choose_shrinkage=False)


def test_it_is_deterministic_and_the_same_when_loaded(tmp_path):
    episodes = one_small_number_decides()
    policy, again = ClosedFormPolicy(episodes), ClosedFormPolicy(episodes)
    policy.save(tmp_path / "policy")
    loaded = ClosedFormPolicy.load(tmp_path / "policy")
    query = episodes[2][0][5]
    assert policy.model.kernel.chosen == again.model.kernel.chosen == loaded.model.kernel.chosen == 0
    for other in (again, loaded):
        np.testing.assert_array_equal(other.plan(query, seed=1).actions, policy.plan(query, seed=1).actions)


def test_an_indexed_policy_keeps_its_choice(tmp_path):
    pytest.importorskip("faiss")
    episodes = one_small_number_decides()
    policy = ClosedFormPolicy(episodes, index="faiss")
    policy.save(tmp_path / "policy")
    loaded = ClosedFormPolicy.load(tmp_path / "policy")
    assert policy.model.kernel.chosen == loaded.model.kernel.chosen == 0
    assert loaded.model.kernel.shrinkage == 0


def test_it_follows_the_episodes_exactly():
    episodes = one_small_number_decides(n_episodes=20)
    grown, query = ClosedFormPolicy(episodes[:5]), episodes[2][0][5]
    assert grown.model.kernel.chosen is None  # few episodes tell nothing
    for episode in episodes[5:]:
        grown.add(episode)
        whole = ClosedFormPolicy(grown.episodes)
        assert grown.model.kernel.shrinkage == whole.model.kernel.shrinkage
    for gone in (0, 12, 19):
        grown.remove(gone)
        whole = ClosedFormPolicy(grown.episodes)
        assert grown.model.kernel.shrinkage == whole.model.kernel.shrinkage
        np.testing.assert_array_equal(grown.plan(query, seed=0).actions, whole.plan(query, seed=0).actions)


@pytest.mark.parametrize(
    "parameters",
    [{"choose_shrinkage": False}, {"shrinkage": 0.4}, {"preset": "paper", "n_neighbors": 20}, {"metric": "euclidean"}],
)
def test_it_is_not_chosen(parameters):
    policy = ClosedFormPolicy(planar_demos(np.random.default_rng(0), n_episodes=12), **parameters)
    assert policy.model.kernel.chosen is None
    if "shrinkage" in parameters:
        assert policy.model.kernel.shrinkage == 0.4


def test_without_evidence_it_is_smaller_only_if_episodes_outnumber_features():
    """Ten episodes of noise: in four numbers a covariance can be estimated from them, in twenty it cannot."""

    def chosen(n_numbers, seed):
        rng, sizes = np.random.default_rng(seed), np.geomspace(1, 0.2, n_numbers)
        episodes = [(sizes * rng.normal(size=(LENGTH, n_numbers)), rng.normal(size=(LENGTH, 2))) for _ in range(10)]
        policy = ClosedFormPolicy(episodes, features="identity", relevance=False, selection=False)
        return policy.model.kernel.chosen

    usual = {n: sum(chosen(n, seed) is None for seed in range(10)) for n in (4, 20)}
    assert usual[4] <= 4 and usual[20] >= 6
