"""Penalty: numbers added to the squared distances of a few rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Penalty:
    """Numbers to add to the squared distances of a few rows in one plan: a user's, or those of terms that remember.

    Attributes:
        rows: (m,), ascending.
        values: (m,)
    """

    rows: np.ndarray
    values: np.ndarray

    @classmethod
    def none(cls) -> Penalty:
        """No penalty."""
        return cls(np.empty(0, np.int64), np.empty(0))

    @classmethod
    def of(cls, dense: np.ndarray) -> Penalty:
        """From a dense array (n,) over all rows."""
        rows = np.flatnonzero(dense)
        return cls(rows, dense[rows])

    @classmethod
    def sum(cls, penalties: Sequence[Penalty]) -> Penalty:
        """Several together."""
        some = [each for each in penalties if len(each.rows)]
        if len(some) < 2:
            return some[0] if some else cls.none()
        rows, where = np.unique(np.concatenate([each.rows for each in some]), return_inverse=True)
        return cls(rows, np.bincount(where, np.concatenate([each.values for each in some]), len(rows)))

    def at(self, rows: np.ndarray) -> np.ndarray:
        """The penalties of some rows. (k,) -> (k,)."""
        if not len(self.rows):
            return np.zeros(len(rows))
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[found] == rows, self.values[found], 0.0)
