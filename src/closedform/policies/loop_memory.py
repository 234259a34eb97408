"""LoopMemory: demonstrations recede once they were used, so that an agent does not repeat itself."""

from __future__ import annotations

import numpy as np

from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store

_HALF_LIFE = 20  # plans after which half of what is remembered has faded
_FORGOTTEN = 1e-6  # what is left of it after 400 plans


class LoopMemory:
    """How much each demonstrated window was used lately.

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

    Args:
        distance: m.
        n_execute: actions executed of each plan.
        rest: whether the last windows of an episode are exempt.

    Attributes:
        lead: how far the controller's target is ahead of the hands, see `Targets`; None where that does not matter.
    """

    def __init__(self, distance: float, n_execute: int, *, rest: bool = False):
        self._squared = distance**2
        self._rest = rest
        self._spread = n_execute // 2
        self._store: Store | None = None
        self.lead: np.ndarray | None = None
        self._rows, self._used = np.empty(0, np.int64), np.empty(0)

    def penalty(self, store: Store) -> Penalty:
        """What to add to the squared distances of the store's rows."""
        if self._store is None:
            return Penalty.none()
        self._follow(store)
        return Penalty(self._rows, self._squared * self._used)

    def remember(self, rows: np.ndarray, weights: np.ndarray, store: Store) -> None:
        """Takes note of the rows (m,) that a plan was made of, and of their weights (m,)."""
        if not self._squared:
            return
        self._follow(store)
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

    def _follow(self, store: Store) -> None:
        """Finds what is remembered again in a store with other episodes."""
        old, self._store = self._store, store
        if store is old or old is None:
            return
        ids, steps = old.episode_ids[old.row_episodes[self._rows]], old.row_steps[self._rows]
        rows = store.rows_at(ids, steps, old.images_of(self._rows))
        self._rows, self._used = rows[rows >= 0], self._used[rows >= 0]
