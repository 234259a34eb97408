"""Policies without diffusion, to compare with: the nearest demonstration, and an average of near ones."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from closedform.policies.config import KernelConfig, PolicyConfig
from closedform.policies.demonstration_policy import ConfigT, DemonstrationPolicy, Generated
from closedform.policies.neighbourhood import find_neighbourhood
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store


class _WeightedAverage(DemonstrationPolicy[ConfigT]):
    """A chunk that is the average of the neighbours' chunks, with weights that depend on their distances alone."""

    def _weigh(self, squared_distances: np.ndarray, n_features: int) -> np.ndarray:
        raise NotImplementedError

    def _generate(
        self,
        store: Store,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        began: float | None = None,
    ) -> Generated:
        chunks, carries, distances, rows, weights = [], [], [], [], []
        k = self._n_neighbors(store)
        for query in store.features_of(windows):
            near = find_neighbourhood(store, query, k, self.config.metric)
            share = self._weigh(near.penalised(store, penalty, self.config.goal_weight), len(query))
            used = np.flatnonzero(share)
            chunks.append(share[used] @ store.normalised_chunks(near.rows[used], near.carry))
            carries.append(near.carry)
            distances.append(near.distance)
            missing = k - len(near.rows)
            rows.append(np.pad(near.rows, (0, missing), constant_values=-1))
            weights.append(np.pad(share, (0, missing)))
        return Generated(
            chunks=np.repeat(np.array(chunks)[:, None], n_samples, axis=1),
            carries=np.array(carries),
            distances=np.array(distances),
            rows=np.array(rows),
            weights=np.repeat(np.array(weights)[:, None], n_samples, axis=1),
            n_steps=np.empty((len(chunks), 0), np.int64),
            ended=np.empty((len(chunks), 0)),
        )


class NearestNeighborPolicy(_WeightedAverage[PolicyConfig]):
    """Repeats the nearest demonstrated chunk: the paper's 1-NN policy (its appendix "1-NN Policy")."""

    config_class: ClassVar[type[PolicyConfig]] = PolicyConfig

    def _weigh(self, squared_distances: np.ndarray, n_features: int) -> np.ndarray:
        weights = np.zeros(len(squared_distances))
        weights[np.argmin(squared_distances)] = 1.0
        return weights


class KernelRegressionPolicy(_WeightedAverage[KernelConfig]):
    """Averages the neighbours' chunks with the observation kernel's weights (Nadaraya and Watson).

    This is the locally weighted regression of VINN (Pari et al., 2021) with the paper's metric: what is left of the
    closed-form policy without diffusion, so that it averages over modes where the other one chooses.
    """

    config_class: ClassVar[type[PolicyConfig]] = KernelConfig

    def _weigh(self, squared_distances: np.ndarray, n_features: int) -> np.ndarray:
        h = self.config.bandwidth / math.sqrt(n_features)
        weights = np.exp(-(squared_distances - squared_distances.min()) / (2 * h * h))
        return weights / weights.sum()
