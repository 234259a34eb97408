"""Elimination: how often it errs, by simulation through the code that sweeps run, and how soon it acts."""

import numpy as np
import pytest

from closedform.errors import ConfigError, DataError
from closedform.evaluation.elimination import Elimination

LOOK, N_EPISODES, N_SWEEPS = 10, 200, 600


def scores_of(kind, means, rng):
    """Paired scores, (configurations, episodes): a part of each is shared by all configurations of a seed."""
    shape = (len(means), N_EPISODES)
    if kind == "success":
        return (0.5 * rng.random(N_EPISODES) + 0.5 * rng.random(shape) < means[:, None]).astype(float)
    if kind == "nearly always":  # most differences are zero
        return np.where(rng.random(shape) < 0.05, 0.0, 1.0)
    noise = 0.2 * rng.standard_normal(N_EPISODES) + 0.2 * rng.standard_normal(shape)
    return np.clip(means[:, None] + noise, 0, 1)


def swept(scores, alpha=0.05):
    elimination = Elimination(len(scores), alpha)
    for start in range(0, scores.shape[1], LOOK):
        elimination.add(scores[elimination.left, start : start + LOOK])
    return elimination


@pytest.mark.parametrize("kind", ["success", "nearly always", "score"])
def test_equal_configurations_are_eliminated_no_more_often_than_stated(kind):
    rng = np.random.default_rng(0)
    wrong = sum(bool(swept(scores_of(kind, np.full(4, 0.5), rng)).eliminated) for _ in range(N_SWEEPS))
    assert wrong / N_SWEEPS <= 0.05


def test_the_simulation_would_notice_a_test_that_looks_too_often():
    """The same sweeps with a paired t-test at each look, uncorrected, err several times as often as they state."""
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(N_SWEEPS):
        first, *others = scores_of("score", np.full(4, 0.5), rng)
        differences = np.array(others) - first
        for n in range(LOOK, N_EPISODES + 1, LOOK):
            seen = differences[:, :n]
            if np.any(np.abs(seen.mean(1)) > 1.96 * seen.std(1, ddof=1) / np.sqrt(n)):
                wrong += 1
                break
    assert wrong / N_SWEEPS > 0.15


def test_no_configuration_is_eliminated_by_one_that_is_not_better():
    rng, means = np.random.default_rng(1), np.array([0.3, 0.5, 0.5, 0.6])
    wrong = 0
    for _ in range(N_SWEEPS):
        gone = swept(scores_of("score", means, rng)).eliminated
        wrong += any(means[one.by] <= means[one.index] for one in gone)
    assert wrong / N_SWEEPS <= 0.05


def test_clearly_worse_ones_go_early_and_the_best_stays():
    rng, means = np.random.default_rng(2), np.array([0.2, 0.55, 0.75, 0.8])
    stays, after = 0, []
    for _ in range(100):
        elimination = swept(scores_of("score", means, rng))
        stays += 3 in elimination.left
        after += [one.n_episodes for one in elimination.eliminated if one.index == 0]
    assert stays == 100 and len(after) == 100 and np.median(after) <= 40


def test_at_least_one_is_always_left_and_the_order_of_episodes_does_not_matter():
    rng = np.random.default_rng(3)
    for _ in range(100):
        scores = rng.random((5, 40)) * rng.random((5, 1))
        first, second = (Elimination(5, 0.5) for _ in range(2))
        first.add(scores)
        second.add(scores[:, rng.permutation(40)])
        assert first.left == second.left and scores.mean(1).argmax() in first.left


def test_scores_that_are_no_scores_are_refused():
    with pytest.raises(DataError, match=r"expected scores from 0 to 1, found 0 to 3; compare by success"):
        Elimination(2).add(np.array([[0.0], [3.0]]))
    with pytest.raises(ConfigError, match="alpha: expected more than 0"):
        Elimination(2, 0.0)
