"""Baseline policies without diffusion: the nearest demonstration, and weighted averages of neighbors."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from closedform.diffusion.mixture import is_mixture
from closedform.policies.backends.backend import Backend, Query
from closedform.policies.backends.reference import put
from closedform.policies.config import KernelConfig, PolicyConfig, VINNConfig
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan_batch import PlanBatch, unmeasured
from closedform.policies.saving import register_policy
from closedform.store.model import Model
from closedform.store.neighborhood import Neighborhood
from closedform.weights.penalty import Penalty

Weigh = Callable[[Model, Neighborhood, Penalty], np.ndarray | None]


class Average:
    """The backend that plans the average of the neighbors' chunks, without diffusion.

    Args:
        weigh: the weights (k,) of neighbors, which sum to 1; None if some distances are not finite.
    """

    def __init__(self, weigh: Weigh):
        self._weigh = weigh

    @property
    def n_steps(self) -> int:
        """0: there is no diffusion."""
        return 0

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """All plans, one after the other."""
        batch = query.unfilled(model)
        batch.n_steps[:], batch.ended[:] = 0, np.nan
        poses = model.transfer.poses(query.windows[:, -1])
        for b, features in enumerate(model.kernel.features(query.windows)):
            near = model.neighborhood(features, query.k, poses[b])
            share = self._weigh(model, near, query.penalty(b))
            if share is None:
                raise unmeasured(b)
            used = np.flatnonzero(share)
            candidates = model.normalized_chunks(near.rows[used], near.choice)
            batch.chunks[b] = share[used] @ candidates
            batch.mixed[b] = is_mixture(batch.chunks[b], candidates)
            put(batch, b, model, near, query, share)
        return batch


def _nearest(model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
    log_weights = near.log_weights(model, penalty, 1.0)
    if log_weights is None:
        return None
    weights = np.zeros(len(log_weights))
    weights[np.argmax(log_weights)] = 1.0
    return weights


def _by_kernel(model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
    log_weights = near.log_weights(model, penalty)
    return None if log_weights is None else _softmax(log_weights)


def _by_distance(model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
    energies = near.energies(model, penalty)
    if not np.isfinite(energies).all():
        return None
    return _softmax(-np.sqrt(np.maximum(energies, 0.0)))  # terms may take more than there is


def _softmax(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


@register_policy
class NearestNeighborPolicy(DemonstrationPolicy[PolicyConfig]):
    """Repeats the nearest demonstrated chunk: the paper's 1-NN policy (its appendix "1-NN Policy")."""

    config_class: ClassVar[type[PolicyConfig]] = PolicyConfig

    def _make_backend(self) -> Backend:
        return Average(_nearest)


@register_policy
class KernelRegressionPolicy(DemonstrationPolicy[KernelConfig]):
    """Averages the neighbors' chunks with the observation kernel's weights (Nadaraya and Watson).

    This is the closed-form policy without diffusion, which averages over modes instead of choosing one.
    """

    config_class: ClassVar[type[PolicyConfig]] = KernelConfig

    def _make_backend(self) -> Backend:
        return Average(_by_kernel)


@register_policy
class VINNPolicy(DemonstrationPolicy[VINNConfig]):
    """Averages the actions of the k nearest observations, with weights exp(-distance): VINN (Pari et al., 2021).

    The preset `paper` is VINN's own: 16 neighbors by Euclidean distance, and an action at a time.
    """

    config_class: ClassVar[type[PolicyConfig]] = VINNConfig

    def _make_backend(self) -> Backend:
        return Average(_by_distance)
