"""LoopMemory: recently used demonstrations count as farther away, so that an agent does not loop."""

from __future__ import annotations

import numpy as np

from closedform.policies.continuation import Continuation, find_again
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store

_HALF_LIFE = 20  # plans after which half of what is remembered has faded
_FORGOTTEN = 1e-6  # what remains of it after 400 plans
_REACH = 3.0  # standard deviations that the windows of a demonstration are spread over in a plan, which it has to pass


class LoopMemory:
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

    Windows whose chunk reaches the end of their episode say to stay there. With `rest` they never recede, so that a
    policy that has arrived stays where it is.

    To move along a demonstration at its own speed is no loop. Where it is sampled finely, many of its windows are
    within the bandwidth and make a plan together; if those receded, only the ones ahead would be left, and the policy
    would outrun the demonstration. With `pace` they count as used only when the demonstration itself, which moves on
    by `n_execute` windows a plan, has left them behind, and then at their mean. Where a plan has one window of a
    demonstration, that is at once.

    Args:
        distance: m.
        n_execute: actions executed of each plan.
        rest: whether the last windows of an episode are exempt.
        pace: whether windows recede only once their demonstration would have left them.
        continuation: what it costs to leave a demonstration, see `Continuation`.

    Attributes:
        lead: how far the controller's target is ahead of the hands, see `Targets`; None where that does not matter.
    """

    def __init__(
        self,
        distance: float,
        n_execute: int,
        *,
        rest: bool = False,
        pace: bool = False,
        continuation: float = 0.0,
    ):
        self._squared = distance**2
        self._rest, self._pace = rest, pace
        self._n_execute, self._spread = n_execute, n_execute // 2
        self._store: Store | None = None
        self.lead: np.ndarray | None = None
        self._rows, self._used = np.empty(0, np.int64), np.empty(0)
        self._waiting = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)  # rows, uses, plans until they count
        self._continuation = Continuation(continuation, n_execute, stay=rest)
        self._penalty = Penalty.none()

    def penalty(self, store: Store) -> Penalty:
        """The penalty on the squared distances of the store's rows."""
        if self._store is not None:
            self._follow(store)
        return self._penalty

    def remember(self, rows: np.ndarray, weights: np.ndarray, store: Store, scale: float = 0.0) -> None:
        """Records the rows (m,) behind a plan, and their weights (m,).

        The scale is what `Continuation.remember` takes.
        """
        if not (self._squared or self._continuation.weight):
            return
        self._follow(store)
        self._continuation.remember(rows, weights, store, scale)
        if self._pace:
            rows, weights = self._left_behind(rows, weights, store)
        episodes = store.row_episodes[rows]
        last = np.cumsum(store.counts)[episodes]
        offsets = np.arange(-self._spread, self._spread + 1)
        around = rows[:, None] + offsets
        share = (1 - np.abs(offsets) / (self._spread + 1)) * weights[:, None]
        end = last - (store.spec.n_action_steps - 1 if self._rest and store.spec.padding else 0)
        inside = (around >= (last - store.counts[episodes])[:, None]) & (around < end[:, None])
        rows = np.concatenate([self._rows, around[inside]])
        used = np.concatenate([self._used * 0.5 ** (1 / _HALF_LIFE), share[inside]])
        self._rows, where = np.unique(rows, return_inverse=True)
        self._used = np.bincount(where, used, len(self._rows))
        kept = self._used > _FORGOTTEN
        self._rows, self._used = self._rows[kept], self._used[kept]
        self._penalty = self._penalize()

    def _penalize(self) -> Penalty:
        """The penalty for what is remembered; made after a plan, so that the next one need not wait for it."""
        if not self._continuation.weight:
            return Penalty(self._rows, self._squared * self._used)
        ahead, gains = self._continuation.gains(Penalty(self._rows, self._used))
        rows, where = np.unique(np.concatenate([self._rows, ahead]), return_inverse=True)
        values = np.concatenate([self._squared * self._used, -gains])
        return Penalty(rows, np.bincount(where, values, len(rows)))

    def _left_behind(self, rows: np.ndarray, weights: np.ndarray, store: Store) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose use counts from now on, of this plan and of earlier ones, and their weights."""
        order = np.argsort(rows)
        rows, weights = rows[order], weights[order]
        apart = (np.diff(rows) > self._n_execute) | (np.diff(store.row_episodes[rows]) != 0)
        passage = np.concatenate([[0], np.cumsum(apart)])  # a demonstration may come by more than once
        total = np.bincount(passage, weights)
        mean = np.bincount(passage, weights * rows) / total
        variance = np.bincount(passage, weights * (rows - mean[passage]) ** 2) / total
        plans = np.rint(_REACH * np.sqrt(variance) / self._n_execute).astype(np.int64)
        later, at_once = plans > 0, plans[passage] == 0
        whole = np.rint(mean[later]).astype(np.int64), total[later], plans[later]
        waiting, used, left = (np.concatenate(both) for both in zip(self._waiting, whole, strict=True))
        due = left == 0
        self._waiting = waiting[~due], used[~due], left[~due] - 1
        return np.concatenate([rows[at_once], waiting[due]]), np.concatenate([weights[at_once], used[due]])

    def _follow(self, store: Store) -> None:
        """Maps the remembered windows to a store with other episodes."""
        old, self._store = self._store, store
        if store is old or old is None:
            return
        self._rows, self._used = find_again(old, store, self._rows, self._used)
        self._waiting = find_again(old, store, *self._waiting)
        self._continuation.follow(old, store)
        self._penalty = self._penalize()
