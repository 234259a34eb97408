"""Penalty: what makes some rows count as further away than they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Penalty(NamedTuple):
    """Numbers to add to the squared distances of a few rows.

    Attributes:
        rows: (m,), ascending.
        values: (m,)
    """

    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def none(cls) -> Penalty:
        """Nothing to add."""
        return cls(np.empty(0, np.int64), np.empty(0))

    @classmethod
    def of(cls, dense: np.ndarray) -> Penalty:
        """Of numbers for all rows."""
        rows = np.flatnonzero(dense)
        return cls(rows, dense[rows])

    def at(self, rows: np.ndarray) -> np.ndarray:
        """What to add for some rows. (k,) -> (k,)."""
        if not len(self.rows):
            return np.zeros(len(rows))
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[found] == rows, self.values[found], 0.0)
