"""Baseline policies without diffusion: the nearest demonstration, and weighted averages of neighbors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from closedform.diffusion.mixture import is_mixture
from closedform.policies.config import KernelConfig, PolicyConfig, VINNConfig
from closedform.policies.demonstration_policy import ConfigT, DemonstrationPolicy
from closedform.policies.generated import Generated, unmeasured
from closedform.policies.saving import register_policy
from closedform.retrieval.model import Model
from closedform.retrieval.neighborhood import Neighborhood
from closedform.retrieval.penalty import Penalty


class _WeightedAverage(DemonstrationPolicy[ConfigT]):
    """Plans the average of the neighbors' chunks, with weights that depend on their distances alone."""

    def _weigh(self, model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
        """The weights (k,) of neighbors, which sum to 1; None if some distances are not finite."""
        raise NotImplementedError

    def _generate(
        self,
        model: Model,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        began: float | None = None,
    ) -> Generated:
        chunks, choices, distances, rows, weights, mixed = [], [], [], [], [], []
        k = self.n_neighbors(model)
        poses = model.transfer.poses(windows[:, -1])
        for b, query in enumerate(model.kernel.features(windows)):
            near = model.neighborhood(query, k, poses[b])
            share = self._weigh(model, near, penalty)
            if share is None:
                raise unmeasured(b)
            used = np.flatnonzero(share)
            candidates = model.normalized_chunks(near.rows[used], near.choice)
            chunks.append(share[used] @ candidates)
            mixed.append(is_mixture(chunks[-1], candidates))
            choices.append(near.choice)
            distances.append(near.distance)
            missing = k - len(near.rows)
            rows.append(np.pad(near.rows, (0, missing), constant_values=-1))
            weights.append(np.pad(share, (0, missing)))
        return Generated(
            chunks=np.repeat(np.array(chunks)[:, None], n_samples, axis=1),
            choices=np.array(choices),
            distances=np.array(distances),
            rows=np.array(rows),
            weights=np.repeat(np.array(weights)[:, None], n_samples, axis=1),
            n_steps=np.empty((len(chunks), 0), np.int64),
            ended=np.empty((len(chunks), 0)),
            mixed=np.array(mixed)[:, None],
        )


@register_policy
class NearestNeighborPolicy(_WeightedAverage[PolicyConfig]):
    """Repeats the nearest demonstrated chunk: the paper's 1-NN policy (its appendix "1-NN Policy")."""

    config_class: ClassVar[type[PolicyConfig]] = PolicyConfig

    def _weigh(self, model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
        log_weights = near.log_weights(model, penalty, 1.0)
        if log_weights is None:
            return None
        weights = np.zeros(len(log_weights))
        weights[np.argmax(log_weights)] = 1.0
        return weights


@register_policy
class KernelRegressionPolicy(_WeightedAverage[KernelConfig]):
    """Averages the neighbors' chunks with the observation kernel's weights (Nadaraya and Watson).

    This is the closed-form policy without diffusion, which averages over modes instead of choosing one.
    """

    config_class: ClassVar[type[PolicyConfig]] = KernelConfig

    def _weigh(self, model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
        log_weights = near.log_weights(model, penalty)
        return None if log_weights is None else _softmax(log_weights)


@register_policy
class VINNPolicy(_WeightedAverage[VINNConfig]):
    """Averages the actions of the k nearest observations, with weights exp(-distance): VINN (Pari et al., 2021).

    The preset `paper` is VINN's own: 16 neighbors by Euclidean distance, and an action at a time.
    """

    config_class: ClassVar[type[PolicyConfig]] = VINNConfig

    def _weigh(self, model: Model, near: Neighborhood, penalty: Penalty) -> np.ndarray | None:
        penalized = near.penalized(model, penalty)
        if not np.isfinite(penalized).all():
            return None
        return _softmax(-np.sqrt(np.maximum(penalized, 0.0)))  # terms may take more than there is


def _softmax(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()
