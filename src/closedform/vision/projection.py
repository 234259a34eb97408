"""Projection: the few directions of many features that tell what will be done and seen next, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
_N_FOLDS = 5
_SPACING = 2  # steps between the actions that are predicted
_SMALLEST = 1e-6  # of the largest standard deviation: features that vary less say nothing


@dataclass(frozen=True)
class Projection:
    """z = matrix^T (features - offset - slope state).

    Reduced-rank regression (Izenman, 1975, "Reduced-rank regression for the multivariate linear model") of the next
    actions and of the features some steps later. From all of them, what the state says by itself is subtracted first.
    Each direction has the length of what it predicts, so that distances between z count what matters.

    Attributes:
        offset: (F,)
        slope: (D_s, F), of the features by the state.
        matrix: (F, d)
        ridge: the strength of regularization, chosen on episodes that were held out.
        explained: the fraction of the variance of the targets that was predicted in them.
    """

    offset: np.ndarray
    slope: np.ndarray
    matrix: np.ndarray
    ridge: float = 0.0
    explained: float = 0.0

    @classmethod
    def fit(
        cls,
        features: Sequence[np.ndarray],
        states: Sequence[np.ndarray],
        actions: Sequence[np.ndarray],
        rank: int = 12,
        horizon: int = 16,
        on: Sequence[str] = ("actions", "features"),
    ) -> Self:
        """Fits to episodes.

        Args:
            features: (T, F) of each episode.
            states: (T, D_s), what is observed besides.
            actions: (T, D_a)
            rank: d, at most the number of features.
            horizon: how many steps of actions are predicted; features are predicted at half of it.
            on: what is predicted.
        """
        offset, slope, scaled, scale = _without_state(features, states)
        blocks = []
        if "actions" in on:
            chunks = [_later(one, range(0, horizon, _SPACING)) for one in actions]
            blocks.append(_without_state(chunks, states)[2])
        if "features" in on:
            at = np.concatenate([np.arange(len(one)) for one in features])
            end = np.concatenate([np.full(len(one), len(one) - 1) for one in features])
            blocks.append(scaled[np.minimum(at + horizon // 2, end) - at + np.arange(len(at))])
        targets = np.concatenate([block / np.sqrt(np.square(block).sum(axis=1).mean()) for block in blocks], axis=1)
        folds = np.concatenate([np.full(len(one), number % _N_FOLDS) for number, one in enumerate(features)])
        grams = [_gram(scaled[folds == fold], targets[folds == fold]) for fold in np.unique(folds)]
        explained, ridge = max((_held_out(grams, ridge, rank), ridge) for ridge in RIDGES)
        matrix, _ = _regress(*_total(grams)[:2], ridge, rank)
        return cls(offset, slope, matrix / scale[:, None], ridge, explained)

    def __call__(self, features: np.ndarray, state: np.ndarray) -> np.ndarray:
        """(..., F) and (..., D_s) -> (..., d)."""
        return (features - self.offset - state @ self.slope) @ self.matrix


def _without_state(
    values: Sequence[np.ndarray], states: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What a linear function of the state leaves of values: its offset and slope, the rest scaled, and the scale."""
    y, x = np.concatenate(list(values)).astype(float), np.concatenate(list(states)).astype(float)
    solution, *_ = np.linalg.lstsq(np.c_[np.ones(len(x)), x], y, rcond=None)
    offset, slope = solution[0], solution[1:]
    rest = y - offset - x @ slope
    spread = rest.std(axis=0)
    scale = np.where(spread > _SMALLEST * spread.max(), spread, np.inf)
    return offset, slope, rest / scale, scale


def _later(values: np.ndarray, steps: range) -> np.ndarray:
    """(T, D) -> (T, len(steps) D), the values some steps later, where the last is repeated."""
    last = len(values) - 1
    return np.concatenate([values[np.minimum(np.arange(last + 1) + step, last)] for step in steps], axis=1)


_Gram = tuple[np.ndarray, np.ndarray, float, int]  # sums of x x^T, x t^T and |t|^2, and of how many rows


def _gram(x: np.ndarray, t: np.ndarray) -> _Gram:
    return x.T @ x, x.T @ t, float(np.square(t).sum()), len(x)


def _total(grams: Sequence[_Gram]) -> _Gram:
    xx, xt, tt, n = zip(*grams, strict=True)
    return np.sum(xx, axis=0), np.sum(xt, axis=0), sum(tt), sum(n)


def _regress(xx: np.ndarray, xt: np.ndarray, ridge: float, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions (F, d), each as long as what it predicts, and how they predict the targets, (d, T)."""
    values, vectors = np.linalg.eigh(xx)
    whiten = vectors / np.sqrt(np.maximum(values, 0) + ridge * values[-1])
    left, sizes, right = np.linalg.svd(whiten.T @ xt, full_matrices=False)
    return whiten @ left[:, :rank] * sizes[:rank], right[:rank]


def _held_out(grams: Sequence[_Gram], ridge: float, rank: int) -> float:
    """The fraction of the targets' variance that is predicted in folds that were not fitted to."""
    error = total = 0.0
    for fold, (xx, xt, tt, _) in enumerate(grams):
        rest = [gram for number, gram in enumerate(grams) if number != fold] or grams
        fitted, how = _regress(*_total(rest)[:2], ridge, rank)
        predicted = fitted @ how
        error += tt - 2 * float((predicted * xt).sum()) + float((predicted * (xx @ predicted)).sum())
        total += tt
    return 1 - error / total
