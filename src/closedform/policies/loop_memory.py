"""LoopMemory: demonstrations recede once they were used, so that an agent does not repeat itself."""

from __future__ import annotations

import numpy as np

from closedform.policies.plan import Plan
from closedform.retrieval.store import Store

HALF_LIFE = 20  # plans after which half of what is remembered has faded


class LoopMemory:
    """How much each demonstrated window was used lately.

    In sparse regions the same demonstration is nearest again and again and the policy loops (the paper's "Failure
    Modes"). Here every plan leaves its weights behind: window i was used

        v_i = sum over past plans p of 2^(-age_p / 20) * w_i(p),

    w_i(p) being its weight in plan p. Windows less than half an executed stretch before or after it do mostly the same
    and are used with it, the less the further away. A used window then counts as further away than it is,

        d_i^2 + m^2 v_i:

    one that just made the whole plan recedes to at least m in units of the metric, where 1 is one standard deviation of
    the neighbourhood. So the next-best demonstration takes over if it is about as near, and where nothing else is
    near the same one may be used again.
    `loop_memory`, m, is the only parameter; 0 is the paper's policy.

    Args:
        distance: m.
        n_execute: actions executed of each plan.
    """

    def __init__(self, distance: float, n_execute: int):
        self._squared = distance**2
        self._spread = n_execute // 2
        self._store: Store | None = None
        self._used = np.empty(0)

    def penalty(self, store: Store) -> np.ndarray:
        """What to add to the squared distance of each of the store's rows; empty if there is nothing to add."""
        if self._store is None:
            return np.empty(0)
        self._follow(store)
        return self._squared * self._used

    def remember(self, plan: Plan, store: Store) -> None:
        """Takes note of the demonstrations that a plan made use of."""
        if not self._squared:
            return
        self._follow(store)
        self._used *= 0.5 ** (1 / HALF_LIFE)
        episodes = np.searchsorted(store.episode_ids, plan.episodes)
        starts = np.cumsum(store.counts) - store.counts
        first_step = 0 if store.spec.padding else store.spec.n_obs_steps - 1
        for offset in range(-self._spread, self._spread + 1):
            windows = plan.steps - first_step + offset
            inside = (windows >= 0) & (windows < store.counts[episodes])
            share = 1 - abs(offset) / (self._spread + 1)
            np.add.at(self._used, (starts[episodes] + windows)[inside], share * plan.weights[inside])

    def _follow(self, store: Store) -> None:
        """Carries what is remembered over to a store with other episodes."""
        if store is self._store:
            return
        used = np.zeros(len(store))
        if self._store is not None:
            old_ends, ends = np.cumsum(self._store.counts), np.cumsum(store.counts)
            _, old, new = np.intersect1d(self._store.episode_ids, store.episode_ids, return_indices=True)
            for i, j in zip(old, new, strict=True):
                used[ends[j] - store.counts[j] : ends[j]] = self._used[old_ends[i] - store.counts[j] : old_ends[i]]
        self._store, self._used = store, used
