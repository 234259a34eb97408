"""Comparison: two evaluations, paired by episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.errors import DataError
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import bootstrap_ci95


@dataclass(frozen=True)
class Comparison:
    """Two evaluations, paired by seed.

    Attributes:
        n: the number of common episodes.
        score, success: the mean difference, second minus first.
        score_ci95, success_ci95: their 95% intervals (bootstrap over episodes).
        wins, ties, losses: the number of episodes in which the second scored higher, the same or lower.
        differences: (seed, difference in score), largest differences first.
    """

    n: int
    score: float
    score_ci95: tuple[float, float]
    success: float
    success_ci95: tuple[float, float]
    wins: int
    ties: int
    losses: int
    differences: list[tuple[int, float]]


def compare(first: EvaluationResult, second: EvaluationResult) -> Comparison:
    """Compares two results in the same environment over their common seeds.

    Args:
        first: what is compared with.
        second: what is compared; differences are second minus first.
    """
    if first.subject.env != second.subject.env:
        raise DataError(
            f"expected results in the same environment, found {first.subject.env!r} and {second.subject.env!r}"
        )
    rows, others = ({episode.seed: episode for episode in result.episodes} for result in (first, second))
    seeds = sorted(rows.keys() & others.keys())
    if not seeds:
        raise DataError(
            f"expected episodes with the same seeds, found {min(rows)} to {max(rows)} and {min(others)} to "
            f"{max(others)}"
        )
    score = np.array([float(others[seed].score) - float(rows[seed].score) for seed in seeds])
    success = np.array([float(others[seed].success) - float(rows[seed].success) for seed in seeds])
    order = np.argsort(-np.abs(score), kind="stable")
    return Comparison(
        n=len(seeds),
        score=float(score.mean()),
        score_ci95=bootstrap_ci95(score),
        success=float(success.mean()),
        success_ci95=bootstrap_ci95(success),
        wins=int(np.sum(score > 1e-9)),
        ties=int(np.sum(np.abs(score) <= 1e-9)),
        losses=int(np.sum(score < -1e-9)),
        differences=[(seeds[i], float(score[i])) for i in order if abs(score[i]) > 1e-9],
    )
