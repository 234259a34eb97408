"""Penalty: numbers added to the squared distances of a few rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from closedform.kernels.records import Candidates, PenaltyTerm
from closedform.retrieval.term import Term


@dataclass(frozen=True)
class Penalty(Term):
    """Numbers to add to the squared distances of a few rows, in one plan: a user's, or those of the loop memory.

    Attributes:
        rows: (m,), ascending.
        values: (m,)
    """

    hook: ClassVar[str | None] = "penalty"

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

    def __call__(self, candidates: Candidates) -> np.ndarray:
        """(k,)"""
        return self.at(candidates.rows)

    def at(self, rows: np.ndarray) -> np.ndarray:
        """The penalties of some rows. (k,) -> (k,)."""
        if not len(self.rows):
            return np.zeros(len(rows))
        found = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return np.where(self.rows[found] == rows, self.values[found], 0.0)

    def record(self) -> PenaltyTerm:
        """Rows and values."""
        return PenaltyTerm(self.rows, self.values)
