"""EngineIndex: nearest-neighbor search in the fleet's store itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.fleet.fleet_table import reading
from closedform.store.recall import Recall
from closedform.store.windows import Windows

COLUMNS = ("row", "vector")


@dataclass(frozen=True)
class EngineIndex:
    """Inverted lists of LanceDB, of which a query visits only a few.

    Attributes:
        uri: the fleet, for messages.
        table: LanceDB's table, with a row number and the features of each window.
        recall: its measured recall.
        features: (n, D), of all rows, computed on demand from episodes that are fetched.
        windows: the rows.
        hidden: (E,), episodes that no query finds.
    """

    uri: str
    table: Any
    recall: Recall
    features: Any
    windows: Windows
    hidden: np.ndarray

    def rows(self) -> Any:
        """(n, D), the features."""
        return self.features

    def hiding(self, episodes: np.ndarray) -> EngineIndex:
        """The index without some episodes, given by their indices."""
        hidden = self.hidden.copy()
        hidden[episodes] = True
        return replace(self, hidden=hidden)

    def n_compared(self, k: int) -> int:
        """How many rows the planner compares a query with for k neighbors: only those found."""
        return k

    def query(self, query: np.ndarray, k: int) -> np.ndarray:
        """The rows found near the query, ascending."""
        return self.search(query, k)[0]

    def search(self, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows found near a query (D,), ascending, and their features (m, D)."""
        rows, features = nearest(self.table, self.uri, query, k, self.recall.n_probes)
        order = np.argsort(rows)
        rows, features = rows[order], features[order]
        if len(rows) and not 0 <= rows[0] <= rows[-1] < len(self.windows):
            raise DataError(f"{self.uri}: expected {len(self.windows)} windows, found others: the table was replaced")
        shown = ~self.hidden[self.windows.episodes(rows)]
        if not shown.any():
            raise DataError(
                "an observation cannot be compared with the demonstrations: none was found near it; is it in their "
                "units?"
            )
        return rows[shown], features[shown]


def nearest(table: Any, uri: str, query: np.ndarray, k: int, n_probes: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that the engine finds in some lists, the nearest first, and their features."""
    with reading(uri):
        asked = table.search(np.asarray(query, np.float32), vector_column_name="vector").nprobes(n_probes)
        found = asked.limit(k).select([*COLUMNS, "_distance"]).to_arrow().combine_chunks()
        rows = found["row"].to_numpy()
        features = found["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(len(rows), -1)
    return rows, features.astype(np.float64)
