"""Recall: what approximate search finds of what exact search finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError

BLOCK = 100_000  # rows whose features are computed at once
N_QUERIES = 200  # windows that recall is measured on
_CARRIES_WEIGHT = 1e-3  # of the largest weight
_FOR_THE_METRIC = 0.8  # the required recall of all neighbors, from which the local metric is computed

Search = Callable[[np.ndarray, int, int], Any]  # queries (q, D), neighbors each, lists to visit -> rows (q, k), or -1


@dataclass(frozen=True)
class Recall:
    """The recall of an index relative to exact search, for windows whose own episode is left out.

    Attributes:
        target: the requested recall of neighbors that carry weight.
        weighty: the measured recall of neighbors that carry weight.
        all: the measured recall of all k neighbors, from which the metric is computed.
        n_queries: windows that it was measured on.
        n_probes, n_lists: lists that a query visits, and how many there are.
        seconds: that the build took.
    """

    target: float
    weighty: float
    all: float
    n_queries: int
    n_probes: int
    n_lists: int
    seconds: float


@dataclass(frozen=True)
class Judged:
    """Queries with the neighbors that exact search finds for them in other episodes: the ground truth for recall.

    Attributes:
        queries: (q, D), float32.
        own: (q,), the episode of each.
        near: q arrays of the k nearest rows, ascending.
        weighty: the same, only those that carry weight.
        episodes: (n,), the episode of each row.
        asked: how many neighbors to ask for, so that k remain when those of the query's own episode are dropped.
    """

    queries: np.ndarray
    own: np.ndarray
    near: list[np.ndarray]
    weighty: list[np.ndarray]
    episodes: Any
    asked: int

    @classmethod
    def exactly(
        cls,
        features: Any,
        k: int,
        weigh: Callable[[np.ndarray, np.ndarray], np.ndarray],
        episodes: Any,
        longest: int,
        progress: Callable[[str, float], object],
        n_queries: int = N_QUERIES,
    ) -> Judged:
        """Searches all rows, with the arguments of `FaissIndex.build`, for `n_queries` of them."""
        faiss, n = import_faiss(), len(features)
        asked = min(n, k + longest)
        chosen = np.unique(np.linspace(0, n - 1, min(n_queries, n)).astype(np.int64))
        queries = features[chosen]
        asking = single(queries)
        distances, rows = np.empty((len(chosen), 0), np.float32), np.empty((len(chosen), 0), np.int64)
        for start in range(0, n, BLOCK):
            progress("measuring recall", start / n)
            block = single(features[start : start + BLOCK])
            nearer, found = faiss.knn(asking, block, min(asked, len(block)))
            distances, rows = np.concatenate([distances, nearer], 1), np.concatenate([rows, found + start], 1)
            if rows.shape[1] > asked:
                kept = np.argpartition(distances, asked - 1, axis=1)[:, :asked]
                distances, rows = (np.take_along_axis(array, kept, 1) for array in (distances, rows))
        own, near, weighty = episodes[chosen], [], []
        for index, query in enumerate(queries):
            order = rows[index][np.argsort(distances[index])]
            others = order[episodes[order] != own[index]][:k]
            near.append(np.sort(others))
            weighty.append(near[-1][weigh(query, near[-1]) > _CARRIES_WEIGHT] if len(others) else others)
        return cls(asking, own, near, weighty, episodes, asked)

    def recall_with_fewest_lists(self, search: Search, n_lists: int, target: float, began: float) -> Recall:
        """The recall of visiting the fewest lists that reach the target and give about the metric of exact search.

        Args:
            search: the search to judge.
            n_lists: how many lists there are.
            target: the required recall of neighbors that carry weight.
            began: when the build began, of `time.perf_counter`.
        """

        def suffices(n_probes: int) -> bool:
            weighty, found = self.recall_of(search, n_probes)
            return weighty >= target and found >= _FOR_THE_METRIC

        n_probes = 1
        while n_probes < n_lists and not suffices(n_probes):
            n_probes *= 2
        low, high = n_probes // 2, min(n_probes, n_lists)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if suffices(middle) else (middle, high)
        weighty, found = self.recall_of(search, high)
        return Recall(target, weighty, found, len(self.queries), high, n_lists, time.perf_counter() - began)

    def recall_of(self, search: Search, n_probes: int) -> tuple[float, float]:
        """The recall of the neighbors that carry weight and of all neighbors, averaged over queries."""
        rows = search(self.queries, self.asked, n_probes)
        shares = []
        for found, own, near, weighty in zip(rows, self.own, self.near, self.weighty, strict=True):
            found = found[found >= 0]
            found = found[self.episodes[found] != own][: len(near)]
            if len(near):
                shares.append([np.isin(wanted, found).mean() for wanted in (weighty, near)])
        means = np.mean(shares, axis=0) if shares else (1.0, 1.0)
        return float(means[0]), float(means[1])


def import_faiss() -> Any:
    """The package faiss; a clear error if it is not installed."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "ann", "the index 'faiss'") from error
    return faiss


def single(features: np.ndarray) -> np.ndarray:
    """Features in the precision of an index."""
    return np.ascontiguousarray(features, np.float32)
