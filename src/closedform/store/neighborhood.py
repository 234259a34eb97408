"""Neighborhood: the demonstrations near one observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from closedform.kernels.records import Candidates
from closedform.weights.energy import energies, log_weights
from closedform.weights.penalty import Penalty

if TYPE_CHECKING:
    from closedform.store.model import Model


@dataclass(frozen=True)
class Neighborhood:
    """The k nearest windows of a query.

    Attributes:
        query: (D_z,)
        rows: (k,), rows of the store, ascending.
        squared_distances: (k,), in the metric.
        choice: (hands, 2), how to transfer them: the frame in which the nearest agree best, and the grasped body.
    """

    query: np.ndarray
    rows: np.ndarray
    squared_distances: np.ndarray
    choice: np.ndarray

    def log_weights(self, model: Model, penalty: Penalty, width: float | None = None) -> np.ndarray | None:
        """The observation kernel's log weights (k,), the largest being 0; None if they are not finite.

        Args:
            model: the model of these windows.
            penalty: the penalty of this plan.
            width: divides squared distances instead of 2 h^2.
        """
        kernel = model.kernel
        return log_weights(
            self.squared_distances, self.energies(model, penalty), 2 * kernel.h**2 if width is None else width
        )

    def energies(self, model: Model, penalty: Penalty) -> np.ndarray:
        """The squared distances (k,) plus all terms and the penalty of this plan; NaN or infinite if too large."""
        features = model.features_at(self.rows)
        candidates = Candidates(self.query, self.rows, features, model.store.row_episodes[self.rows])
        return energies(self.squared_distances, candidates, model.kernel.terms, penalty)

    @property
    def distance(self) -> float:
        """The distance of the nearest window."""
        return float(np.sqrt(self.squared_distances.min()))
