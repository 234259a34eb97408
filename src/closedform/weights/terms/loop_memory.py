"""LoopMemory: recently used demonstrations count as farther away, so that an agent does not loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from closedform.parameters import Parameters, parameter
from closedform.weights.penalty import Penalty
from closedform.weights.state import RememberingTerm, State, Used, find_again, spread

if TYPE_CHECKING:
    from closedform.store.store import Store

_HALF_LIFE = 20  # plans after which half of what is remembered has faded
_FORGOTTEN = 1e-6  # what remains of it after 400 plans
_REACH = 3.0  # standard deviations that the windows of a demonstration are spread over in a plan, which it has to pass


@dataclass(frozen=True)
class LoopMemoryParameters(Parameters):
    """The parameters of `LoopMemory`."""

    loop_memory: float = parameter(
        1.0,
        0.0,
        "distance penalty on recently used demonstrations, in units of the metric, to escape loops; 0 is the paper.",
        between=(0, 1e6),
    )
    hold_at_end: bool = parameter(
        True,
        False,
        "whether a policy that has arrived stays: the last windows of demonstrations are never penalized, unless "
        "objects have a goal (`goal_weight`); off in the paper.",
    )
    loop_delay: bool = parameter(
        True,
        False,
        "whether demonstrations recede only once they would have moved on at their own speed; off in the paper.",
    )


@dataclass(frozen=True)
class LoopMemory(RememberingTerm):
    """How much each demonstrated window was used recently.

    In sparse regions the same demonstration is nearest again and again and the policy loops (the paper's "Failure
    Modes"). Here every plan leaves its weights behind: window i was used

        v_i = sum over past plans p of 2^(-age_p / 20) * w_i(p),

    w_i(p) being its weight in plan p. Windows less than half an executed stretch before or after it do mostly the same
    and are used with it, the less the further away. A used window then counts as further away than it is,

        d_i^2 + m^2 v_i:

    one that just made the whole plan recedes to at least m in units of the metric, where 1 is one standard deviation of
    the neighborhood. So the next-best demonstration takes over if it is about as near, and where nothing else is
    near the same one may be used again.
    `loop_memory`, m, is the parameter; 0 is the paper's policy.

    Windows whose chunk reaches the end of their episode say to stay there. With `hold_at_end` they never recede, so
    that a policy that has arrived stays where it is.

    To move along a demonstration at its own speed is no loop. Where it is sampled finely, many of its windows are
    within the bandwidth and make a plan together; if those receded, only the ones ahead would be left, and the policy
    would outrun the demonstration. With `loop_delay` they count as used only when the demonstration itself, which moves
    on by `n_execute` windows a plan, has left them behind, and then at their mean. Where a plan has one window of a
    demonstration, that is at once.

    Attributes:
        distance: m.
        n_execute: actions executed of each plan.
        hold_at_end: whether the last windows of an episode are exempt.
        loop_delay: whether windows recede only once their demonstration would have left them.
        rows, used: (m,), the windows that were used, ascending, and how much: v_i.
        waiting: rows, uses, and how many plans until they count.
    """

    distance: float
    n_execute: int
    hold_at_end: bool = False
    loop_delay: bool = False
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    used: np.ndarray = field(default_factory=lambda: np.empty(0))
    waiting: tuple[np.ndarray, np.ndarray, np.ndarray] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64))
    )

    def penalty(self, state: State) -> Penalty:
        """m^2 v_i."""
        return Penalty(self.rows, self.distance**2 * self.used)

    def after(self, used: Used) -> LoopMemory:
        """Fades what is remembered, and adds what a plan used."""
        (store, rows, weights, _, _), waiting = used, self.waiting
        if self.loop_delay:
            rows, weights, waiting = self._left_behind(rows, weights, store)
        episodes = store.row_episodes[rows]
        last = np.cumsum(store.counts)[episodes]
        around, share = spread(rows, weights, 0, self.n_execute // 2)
        end = last - (store.spec.n_action_steps - 1 if self.hold_at_end and store.spec.padding else 0)
        inside = (around >= (last - store.counts[episodes])[:, None]) & (around < end[:, None])
        rows, where = np.unique(np.concatenate([self.rows, around[inside]]), return_inverse=True)
        faded = np.bincount(where, np.concatenate([self.used * 0.5 ** (1 / _HALF_LIFE), share[inside]]), len(rows))
        kept = faded > _FORGOTTEN
        return replace(self, rows=rows[kept], used=faded[kept], waiting=waiting)

    def moved(self, old: Store, new: Store) -> LoopMemory:
        """The same windows in a store with other episodes."""
        rows, used = find_again(old, new, self.rows, self.used)
        return replace(self, rows=rows, used=used, waiting=find_again(old, new, *self.waiting))

    def _left_behind(
        self, rows: np.ndarray, weights: np.ndarray, store: Store
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The rows whose use counts from now on, of this plan and of earlier ones, their weights, and what waits."""
        order = np.argsort(rows)
        rows, weights = rows[order], weights[order]
        apart = (np.diff(rows) > self.n_execute) | (np.diff(store.row_episodes[rows]) != 0)
        passage = np.concatenate([[0], np.cumsum(apart)])  # a demonstration may come by more than once
        total = np.bincount(passage, weights)
        mean = np.bincount(passage, weights * rows) / total
        variance = np.bincount(passage, weights * (rows - mean[passage]) ** 2) / total
        plans = np.rint(_REACH * np.sqrt(variance) / self.n_execute).astype(np.int64)
        later, at_once = plans > 0, plans[passage] == 0
        whole = np.rint(mean[later]).astype(np.int64), total[later], plans[later]
        waiting, used, left = (np.concatenate(both) for both in zip(self.waiting, whole, strict=True))
        due = left == 0
        still = waiting[~due], used[~due], left[~due] - 1
        return np.concatenate([rows[at_once], waiting[due]]), np.concatenate([weights[at_once], used[due]]), still
