"""Index, and ExactIndex: exact nearest-neighbor search by comparing a query with every row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from closedform import kernels

if TYPE_CHECKING:
    from closedform.store.recall import Recall


class Index(Protocol):
    """Finds the rows whose features are nearest to those of a query."""

    @property
    def recall(self) -> Recall | None:
        """The recall relative to exact search; None if the search is exact."""
        ...

    def rows(self) -> Any:
        """(n, D), the features, an array or computed on demand."""
        ...

    def n_compared(self, k: int) -> int:
        """How many rows the planner compares a query with for k neighbors."""
        ...

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The rows found near a query (D,), ascending: k, or all if there are fewer."""
        ...


class ExactIndex:
    """Exact search by comparing with every row; among rows at the same distance the earlier ones win.

    An index is immutable: `add` and `remove` return a new one, and a thread that is planning keeps reading the old one.

    Each coordinate is stored contiguously, so that the search streams through memory, with room to grow, so that adding
    an episode copies only the episode.

    Args:
        features: (N, D_z), one row for each window.
    """

    def __init__(self, features: np.ndarray):
        width = features.shape[1]
        self._buffer = np.empty((width, len(features) + len(features) // 4 + 64))
        self._buffer[:, : len(features)] = features.T
        self._end = [len(features)]  # rows written so far; shared by all indexes on this buffer
        self._length = len(features)

    def __len__(self) -> int:
        return self._length

    @property
    def recall(self) -> None:
        """None: the search is exact."""
        return None

    @property
    def columns(self) -> np.ndarray:
        """(D, >= n), contiguous; columns beyond the n-th may belong to newer indexes."""
        return self._buffer

    def rows(self) -> np.ndarray:
        """(n, D), the features."""
        return self._buffer[:, : self._length].T

    def add(self, features: np.ndarray) -> ExactIndex:
        """Appends rows: in place if this is the newest index on its buffer and there is room, else by copying."""
        n, m = len(self), len(features)
        if self._end[0] != n or n + m > self._buffer.shape[1]:
            return ExactIndex(np.concatenate([self.rows(), features]))
        self._buffer[:, n : n + m] = features.T
        self._end[0] = n + m
        grown = object.__new__(ExactIndex)
        grown._buffer, grown._end, grown._length = self._buffer, self._end, n + m
        return grown

    def remove(self, keep: np.ndarray) -> ExactIndex:
        """Copies the rows where `keep` is true."""
        index = object.__new__(ExactIndex)
        rows = np.flatnonzero(keep)
        index._buffer = np.empty((len(self._buffer), len(rows) + len(rows) // 4 + 64))
        for column, old in zip(index._buffer, self._buffer, strict=True):
            column[: len(rows)] = np.take(old, rows, axis=0)
        index._end, index._length = [len(rows)], len(rows)
        return index

    def n_compared(self, k: int) -> int:
        """How many rows the planner compares a query with for k neighbors: all."""
        return len(self)

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The k nearest rows, ascending, or all if there are fewer.

        Sums are over columns in order, as in the compiled search, so that both agree to the last bit.
        """
        if kernels.enabled():
            from closedform.kernels.search import nearest_rows

            rows = np.empty(len(self), np.int64)
            return rows[: nearest_rows(self._buffer, len(self), query, k, np.empty(len(self)), rows)]
        distances = np.zeros(len(self))
        for column, coordinate in zip(self.rows().T, query, strict=True):
            difference = column - coordinate
            distances += difference * difference
        if k >= len(self):
            return np.arange(len(self))
        return np.sort(np.argsort(distances, kind="stable")[:k])
