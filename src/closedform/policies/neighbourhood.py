"""Neighbourhood: the demonstrations near one observation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform import kernels
from closedform.retrieval.frame import disagreement, voters
from closedform.retrieval.index import ExactIndex
from closedform.retrieval.metric import covariance_factor, squared_distances
from closedform.retrieval.store import Store


@dataclass(frozen=True)
class Neighbourhood:
    """The k nearest windows of a query.

    Attributes:
        query: (D_z,)
        rows: (k,), rows of the store, ascending.
        squared_distances: (k,), in the metric.
        frame: index of the frame in which the nearest ones agree best.
    """

    query: np.ndarray
    rows: np.ndarray
    squared_distances: np.ndarray
    frame: int

    def penalised(self, store: Store, penalty: np.ndarray, goal_weight: float) -> np.ndarray:
        """(k,), squared distances with what loop memory and goal add; `penalty` is (n_windows,) or empty."""
        squared = self.squared_distances + (penalty[self.rows] if penalty.size else 0.0)
        if not goal_weight:
            return squared
        features = store.index.columns[:, self.rows].T
        return squared + goal_weight * store.goal.penalty(self.query, features, store.row_episodes[self.rows])

    @property
    def distance(self) -> float:
        """How far the nearest window is."""
        return float(np.sqrt(self.squared_distances.min()))


def find_neighbourhood(store: Store, query: np.ndarray, k: int, metric: str) -> Neighbourhood:
    """Finds the k nearest rows (Euclidean), measures them in the metric and chooses the frame."""
    if kernels.enabled() and isinstance(store.index, ExactIndex):
        from closedform.kernels.search import retrieve

        factor = store.fixed_factor(metric)
        rows, squared = retrieve(store.index.columns, len(store), query, k, factor, store.spec.regularization)
    else:
        rows = store.index.query(query, k)
        features, factor = store.index.rows()[rows], store.fixed_factor(metric)
        if not factor.size:
            factor = covariance_factor(features, store.spec.regularization)
        squared = squared_distances(features, query, factor)
    return Neighbourhood(query, rows, squared, choose_frame(store, rows, squared))


def choose_frame(store: Store, rows: np.ndarray, squared: np.ndarray) -> int:
    """The frame in which the nearest neighbours' chunks vary least; of equals the first."""
    n_frames = len(store.spec.selected_frames)
    if n_frames == 1:
        return 0
    voting = voters(squared, store.row_episodes[rows])
    best, least = 0, np.inf
    for frame in range(n_frames):
        chunks = store.chunks(rows[voting], frame) * np.sqrt(store.scaling.weight)
        variance = disagreement(chunks.reshape(len(voting), -1), squared[voting], store.spec.selected_frames[frame])
        if variance < least * (1 - 1e-9) - 1e-12:
            best, least = frame, variance
    return best
