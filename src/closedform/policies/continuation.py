"""Continuation: an agent goes on with the demonstration that it follows, unless another is clearly nearer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store

_ON_IT = 160.0  # squared bandwidths that an agent on a demonstration keeps to it for


class Continuation:
    """Where the demonstrations of the last plan go on, and how much nearer these windows count.

    A plan is made of the nearest windows, and a moment later others may be nearest: an agent that changes between
    demonstrations follows none of them, and one that stops pushing to begin again gets nowhere. So the windows that are
    `n_execute` steps after those of the last plan count as nearer than they are,

        d_j^2 - c s (1 - v_j),    s = d^2 + 160 h^2 exp(-d^2 / (2 h^2)),

    with d the distance of the last plan's nearest window and h the bandwidth. Off the demonstrations, another one has
    to be nearer by as much as the distance was; an agent that is on one, within the bandwidth, stays on it while others
    are within several bandwidths, too. All of it fades where the loop memory says that window j was used lately (v_j,
    at most 1), so that loops do not come back. `continuation`, c, is the parameter.

    Args:
        weight: c; 0 for none.
        n_execute: actions executed of each plan.
        stay: whether an episode's last window goes on with itself.
    """

    def __init__(self, weight: float, n_execute: int, *, stay: bool = False):
        self.weight = weight
        self._n_execute, self._stay = n_execute, stay
        self._rows, self._shares, self._scale = np.empty(0, np.int64), np.empty(0), 0.0

    def gains(self, used: Penalty) -> tuple[np.ndarray, np.ndarray]:
        """The rows (m,) that count as nearer, and by how much; `used` is how much each was used."""
        fresh = np.maximum(1 - used.at(self._rows), 0)
        return self._rows, self.weight * self._scale * fresh * self._shares

    def remember(self, rows: np.ndarray, weights: np.ndarray, store: Store, scale: float) -> None:
        """Takes note of the rows (m,) of a plan, their weights (m,), and the scale s."""
        if not self.weight:
            return
        spread = self._n_execute // 2
        last = (np.cumsum(store.counts)[store.row_episodes[rows]] - 1)[:, None]
        offsets = np.arange(-spread, spread + 1)
        ahead = rows[:, None] + self._n_execute + offsets
        shares = (1 - np.abs(offsets) / (spread + 1)) * weights[:, None]
        if self._stay:
            ahead = np.minimum(ahead, last)
        inside = ahead <= last
        self._rows, where = np.unique(ahead[inside], return_inverse=True)
        self._shares, self._scale = np.zeros(len(self._rows)), scale
        np.maximum.at(self._shares, where, shares[inside] / weights.max())

    def follow(self, old: Store, store: Store) -> None:
        """Finds the rows again in a store with other episodes."""
        self._rows, self._shares = find_again(old, store, self._rows, self._shares)


def continuation_scale(distance: float, h: float) -> float:
    """s, of the distance of a plan's nearest window and the bandwidth, both in units of the metric."""
    return distance**2 + _ON_IT * h**2 * math.exp(-0.5 * min(distance / h, 1e3) ** 2)


def find_again(old: Store, store: Store, rows: np.ndarray, *values: np.ndarray) -> tuple[Any, ...]:
    """The rows of a store in another one, and the values of those that are there."""
    found = store.rows_at(old.episode_ids[old.row_episodes[rows]], old.row_steps[rows], old.images_of(rows))
    return found[found >= 0], *(each[found >= 0] for each in values)
