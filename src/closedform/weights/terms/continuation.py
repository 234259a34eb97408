"""Continuation: an agent goes on with the demonstration that it follows, unless another is clearly nearer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from closedform.parameters import Parameters, parameter
from closedform.weights.penalty import Penalty
from closedform.weights.state import RememberingTerm, State, Used, find_again, spread
from closedform.weights.terms.loop_memory import LoopMemory

if TYPE_CHECKING:
    from closedform.store.store import Store

_ON_IT = 160.0  # squared bandwidths that an agent on a demonstration keeps to it for


@dataclass(frozen=True)
class ContinuationParameters(Parameters):
    """The parameters of `Continuation`."""

    continuation: float = parameter(
        0.5,
        0.0,
        "what it costs to leave the demonstration that is being followed, relative to how near it is; 0 is the paper.",
        between=(0, 1e6),
    )


@dataclass(frozen=True)
class Continuation(RememberingTerm):
    """Where the demonstrations of the last plan go on, and how much nearer these windows count.

    A plan is made of the nearest windows, and a moment later others may be nearest: an agent that changes between
    demonstrations follows none of them, and one that stops pushing to begin again gets nowhere. So the windows that are
    `n_execute` steps after those of the last plan count as nearer than they are,

        d_j^2 - c s (1 - v_j),    s = d^2 + 160 h^2 exp(-d^2 / (2 h^2)),

    with d the distance of the last plan's nearest window and h the bandwidth. Off the demonstrations, another one has
    to be nearer by as much as the distance was; an agent that is on one, within the bandwidth, stays on it while others
    are within several bandwidths, too. All of it fades where the loop memory says that window j was used lately (v_j,
    at most 1), so that loops do not come back. `continuation`, c, is the parameter.

    Attributes:
        weight: c.
        n_execute: actions executed of each plan.
        hold_at_end: whether an episode's last window goes on with itself.
        rows, shares: (m,), the windows ahead, ascending, and their share of the gain.
        scale: s.
    """

    weight: float
    n_execute: int
    hold_at_end: bool = False
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    shares: np.ndarray = field(default_factory=lambda: np.empty(0))
    scale: float = 0.0

    def penalty(self, state: State) -> Penalty:
        """-c s (1 - v_j), by the share of each window."""
        memory = state.find(LoopMemory)
        used = Penalty.none() if memory is None else Penalty(memory.rows, memory.used)
        fresh = np.maximum(1 - used.at(self.rows), 0)
        return Penalty(self.rows, -(self.weight * self.scale * fresh * self.shares))

    def after(self, used: Used) -> Continuation:
        """Looks where the demonstrations of a plan go on."""
        store, rows, weights, distance, h = used
        last = (np.cumsum(store.counts)[store.row_episodes[rows]] - 1)[:, None]
        ahead, shares = spread(rows, weights, self.n_execute, self.n_execute // 2)
        if self.hold_at_end:
            ahead = np.minimum(ahead, last)
        inside = ahead <= last
        found, where = np.unique(ahead[inside], return_inverse=True)
        most = np.zeros(len(found))
        np.maximum.at(most, where, shares[inside] / weights.max())
        scale = distance**2 + _ON_IT * h**2 * math.exp(-0.5 * min(distance / h, 1e3) ** 2)
        return replace(self, rows=found, shares=most, scale=scale)

    def moved(self, old: Store, new: Store) -> Continuation:
        """The same windows in a store with other episodes."""
        rows, shares = find_again(old, new, self.rows, self.shares)
        return replace(self, rows=rows, shares=shares)
