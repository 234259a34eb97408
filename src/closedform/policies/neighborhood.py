"""Neighborhood: the demonstrations near one observation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform import kernels
from closedform.retrieval.frame import disagreement, voters
from closedform.retrieval.index import ExactIndex
from closedform.retrieval.metric import covariance_factor, squared_distances
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store


@dataclass(frozen=True)
class Neighborhood:
    """The k nearest windows of a query.

    Attributes:
        query: (D_z,)
        rows: (k,), rows of the store, ascending.
        squared_distances: (k,), in the metric.
        choice: (hands, 2), the frame in which the nearest ones agree best and the body that is held.
    """

    query: np.ndarray
    rows: np.ndarray
    squared_distances: np.ndarray
    choice: np.ndarray

    def penalized(self, store: Store, penalty: Penalty, goal_weight: float) -> np.ndarray:
        """(k,), squared distances with what loop memory and goal add."""
        squared = self.squared_distances + penalty.at(self.rows)
        if not goal_weight:
            return squared
        features = store.index.rows()[self.rows]
        with np.errstate(over="ignore", invalid="ignore"):  # which `log_weights` finds out
            return squared + goal_weight * store.goal.penalty(self.query, features, store.row_episodes[self.rows])

    def log_weights(self, penalized: np.ndarray, width: float) -> np.ndarray | None:
        """-penalized / width, the largest being 0; None where distances or weights cannot be told.

        Args:
            penalized: (k,), what `penalized` returned.
            width: 2 h^2.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            measured = self.squared_distances / width < np.inf
            log_weights = -(penalized - penalized.min()) / width
        # The largest is 0, or not a number where all of them are infinitely far.
        return log_weights if measured.all() and not np.isnan(log_weights).any() else None

    @property
    def distance(self) -> float:
        """How far the nearest window is."""
        return float(np.sqrt(self.squared_distances.min()))


def find_neighborhood(store: Store, query: np.ndarray, k: int, metric: str) -> Neighborhood:
    """Finds the k nearest rows (Euclidean), measures them in the metric and chooses how to transfer them."""
    if kernels.enabled() and isinstance(store.index, ExactIndex):
        from closedform.kernels.search import retrieve

        rows, squared = retrieve(store.index.columns, len(store), query, k, store.metric_record(metric, 0.0))
    else:
        rows = store.index.query(query, k)
        features, factor = store.index.rows()[rows], store.fixed_factor(metric)
        if not factor.size:
            factor = covariance_factor(features, store.spec.regularization, store.shrinkage)
        squared = squared_distances(features, query, factor)
    return Neighborhood(query, rows, squared, choose_transfer(store, rows, squared))


def choose_transfer(store: Store, rows: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """For each hand what it holds and the frame in which the nearest neighbors' chunks vary least; (hands, 2).

    What a hand holds moves with it, so that its frame is left out; instead, the targets are those of what it holds.
    Of frames that are equally good it is the first.
    """
    spec = store.spec
    if len(spec.selected_frames) == 1 and not any(hand.holds for hand in spec.hands):
        return np.array([(0, -1)] * len(spec.hands))
    voting = voters(squared, store.row_episodes[rows])
    choice = store.as_recorded
    for h, hand in enumerate(spec.hands):
        choice[h, 1] = majority(store.held[rows[voting]][:, h])
        least = np.inf
        for f, frame in enumerate(spec.selected_frames):
            if frame.body >= 0 and frame.body == choice[h, 1]:
                continue
            tried = choice.copy()
            tried[h, 0] = f
            chunks = (store.chunks(rows[voting], tried) * np.sqrt(store.scaling.weight))[..., hand.columns]
            variance = disagreement(chunks.reshape(len(voting), -1), squared[voting], frame)
            if variance < least * (1 - 1e-9) - 1e-12:
                choice[h, 0], least = f, variance
    return choice


def majority(held: np.ndarray) -> int:
    """The body that more than half of some demonstrations hold; -1 if there is none."""
    bodies, counts = np.unique(held, return_counts=True)
    return int(bodies[np.argmax(counts)]) if 2 * counts.max() > len(held) else -1
