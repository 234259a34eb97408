"""Baseline policies without diffusion: the nearest demonstration, and a weighted average of neighbors."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from closedform.diffusion.mixture import is_mixture
from closedform.policies.backends.backend import Backend, Query
from closedform.policies.backends.reference import put
from closedform.policies.config import KernelConfig, PolicyConfig
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan_batch import PlanBatch, unmeasured
from closedform.policies.saving import register_policy
from closedform.store.model import Model


class Average:
    """The backend that plans the average of the neighbors' chunks, without diffusion.

    Args:
        weigh: the weights (k,) of neighbors, which sum to one, for their log weights.
        width: divides squared distances instead of 2 h^2.
    """

    def __init__(self, weigh: Callable[[np.ndarray], np.ndarray], width: float | None = None):
        self._weigh, self._width = weigh, width

    @property
    def n_steps(self) -> int:
        """0: there is no diffusion."""
        return 0

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """All plans, one after the other."""
        batch = query.unfilled(model)
        batch.n_steps[:], batch.ended[:] = 0, np.nan
        for b, features in enumerate(model.kernel.features(query.windows)):
            near = model.neighborhood(features, query.k)
            log_weights = near.log_weights(model, query.penalty(b), self._width)
            if log_weights is None:
                raise unmeasured(b)
            share = self._weigh(log_weights)
            used = np.flatnonzero(share)
            candidates = model.normalized_chunks(near.rows[used], near.choice)
            batch.chunks[b] = share[used] @ candidates
            batch.mixed[b] = is_mixture(batch.chunks[b], candidates)
            put(batch, b, model, near, query, share)
        return batch


def _nearest(log_weights: np.ndarray) -> np.ndarray:
    weights = np.zeros(len(log_weights))
    weights[np.argmax(log_weights)] = 1.0
    return weights


def _shared(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights)
    return weights / weights.sum()


@register_policy
class NearestNeighborPolicy(DemonstrationPolicy[PolicyConfig]):
    """Repeats the nearest demonstrated chunk: the paper's 1-NN policy (its appendix "1-NN Policy")."""

    config_class: ClassVar[type[PolicyConfig]] = PolicyConfig

    def _make_backend(self) -> Backend:
        return Average(_nearest, width=1.0)


@register_policy
class KernelRegressionPolicy(DemonstrationPolicy[KernelConfig]):
    """Averages the neighbors' chunks with the observation kernel's weights (Nadaraya and Watson).

    This is the locally weighted regression of VINN (Pari et al., 2021) with the paper's metric: the closed-form policy
    without diffusion, which averages over modes instead of choosing one.
    """

    config_class: ClassVar[type[PolicyConfig]] = KernelConfig

    def _make_backend(self) -> Backend:
        return Average(_shared)
