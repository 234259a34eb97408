"""FaissIndex: approximate search in large sets of demonstrations (extra `ann`)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError
from closedform.retrieval.index import ExactIndex

FLAT_BELOW = 40_000  # an inverted file wants 39 training points a list; below this it has too few lists to help


class FaissIndex:
    """faiss behind the index protocol: exact (`Flat`) when small, an inverted file (`IVF`) when large.

    Distances are compared in float32; features are kept in float64 for the metric. The inverted file is trained on the
    rows it is built from; rows added later go into the same lists.

    Args:
        features: (n, D)
        n_probes: how many of an inverted file's lists a query looks through.
    """

    def __init__(self, features: np.ndarray, n_probes: int = 32):
        try:
            import faiss
        except ImportError as error:
            raise MissingExtraError("faiss-cpu", "ann", "the index 'faiss'") from error
        self._n_probes = n_probes
        self._rows = ExactIndex(features)
        self._lock = threading.Lock()  # faiss may not be searched while it is changed
        n, width = features.shape
        if n < FLAT_BELOW:
            faiss_index: Any = faiss.IndexFlatL2(width)
        else:
            n_lists = int(np.sqrt(n))
            self._quantizer = faiss.IndexFlatL2(width)
            faiss_index = faiss.IndexIVFFlat(self._quantizer, width, n_lists)
            sample = features[:: max(1, n // (64 * n_lists))]
            faiss_index.train(np.ascontiguousarray(sample, np.float32))
            faiss_index.nprobe = n_probes
        faiss_index.add(np.ascontiguousarray(features, np.float32))
        self._faiss = faiss_index

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> np.ndarray:
        """(D, >= n), contiguous; the features of row i are column i."""
        return self._rows.columns

    def rows(self) -> np.ndarray:
        """(n, D), the features, in float64."""
        return self._rows.rows()

    def add(self, features: np.ndarray) -> FaissIndex:
        """Appends rows; an older index on the same faiss data ignores them. A branched history is rebuilt."""
        rows = self._rows.add(features)
        if self._faiss.ntotal != len(self):
            return FaissIndex(rows.rows(), self._n_probes)
        with self._lock:
            self._faiss.add(np.ascontiguousarray(features, np.float32))
        grown = object.__new__(FaissIndex)
        grown.__dict__.update(self.__dict__)
        grown._rows = rows
        return grown

    def remove(self, keep: np.ndarray) -> FaissIndex:
        """Rebuilds from what is kept: faiss's own removal would change the data older indexes read."""
        return FaissIndex(self.rows()[keep], self._n_probes)

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The rows found near the query, at most k, in ascending order."""
        with self._lock:
            extra = self._faiss.ntotal - len(self)  # rows added since, which this index does not have
            _, rows = self._faiss.search(
                np.ascontiguousarray(query[None], np.float32), min(k + extra, self._faiss.ntotal)
            )
        rows = rows[0]
        return np.sort(rows[(rows >= 0) & (rows < len(self))][:k])
