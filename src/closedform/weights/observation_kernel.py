"""ObservationKernel: the weights of demonstrations, given an observation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from closedform.demos.episode import Episode
from closedform.kernels.records import Candidates, Metric
from closedform.weights.energy import energies, log_weights
from closedform.weights.feature_map import FeatureMap, GeometricFeatures, IdentityFeatures, scaled
from closedform.weights.feature_statistics import Statistics
from closedform.weights.metric import LEFT_OUT, covariance_factor, squared_distances, usual_shrinkage
from closedform.weights.penalty import Penalty
from closedform.weights.redundancy import Redundancy, without_redundant
from closedform.weights.term import Term
from closedform.weights.terms.goal import Goal
from closedform.weights.terms.relation import Relation

if TYPE_CHECKING:
    from closedform.store.store import Store


@dataclass(frozen=True)
class KernelSpec:
    """The parameters of an observation kernel.

    Attributes:
        feature_map: from observation windows to features.
        metric: one of `METRICS`.
        bandwidth: sqrt(D_z) h.
        regularization: lambda, added to the covariance of features.
        shrinkage: of this covariance; None to choose it from the data.
        relevance: whether observation entries that make predictions worse are weighted less.
        selection: whether to drop numbers without which predictions are better; see `select_features`.
        choose_shrinkage: whether leave-one-out error chooses it if it is None; see `choose_shrinkage`.
        drop_redundant: whether to drop numbers that are constant or copies of others; see `without_redundant`.
        rotation_weight: the length of a rotation's unit vectors in features.
        terms: additional terms, not yet fitted.
    """

    feature_map: FeatureMap
    metric: str = "local_mahalanobis"
    bandwidth: float = 0.09
    regularization: float = 1e-4
    shrinkage: float | None = 0.0
    relevance: bool = False
    selection: bool = False
    choose_shrinkage: bool = False
    drop_redundant: bool = False
    rotation_weight: float = 0.4
    terms: tuple[Term, ...] = ()

    @property
    def weighs(self) -> bool:
        """Whether the data choose what counts how much."""
        return self.relevance or self.selection

    @property
    def chooses(self) -> bool:
        """Whether the data choose the shrinkage."""
        return self.choose_shrinkage and self.shrinkage is None and self.metric != "euclidean"


@dataclass(frozen=True)
class ObservationKernel:
    """The weight of each demonstrated window for an observation.

    With z the features of the observation and z_i those of window i, its weight is

        exp(-(|L^-1 (z_i - z)|^2 + terms_i) / (2 h^2)),    h = bandwidth / sqrt(D),

    where L L^T is the covariance of the neighbors' features, shrunk toward a sphere (`shrinkage`), plus lambda I, and D
    is the number of features whose scale is not 0 and that were not dropped.

    Attributes:
        spec: its parameters.
        offset, scale: (D_z,), z = (lift(o) - offset) * scale; the scale includes `relevance`.
        relevance: (D_z,), powers of two; see `entry_weights` and `select_features`.
        chosen: the shrinkage that predictions call for; None for the usual one.
        shrinkage: how far covariances are shrunk toward a sphere.
        factor: (D_z, D_z), the Cholesky factor of a metric that is the same everywhere; (0, 0) for the local one.
        terms: fitted to the demonstrations.
        redundancy: which observed numbers are redundant.
    """

    spec: KernelSpec
    offset: np.ndarray
    scale: np.ndarray
    relevance: np.ndarray
    chosen: float | None = None
    shrinkage: float = 0.0
    factor: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    terms: tuple[Term, ...] = ()
    redundancy: Redundancy | None = None

    @classmethod
    def scaled_for(
        cls,
        spec: KernelSpec,
        statistics: Statistics,
        episodes: Sequence[Episode],
        known: Redundancy | None = None,
    ) -> ObservationKernel:
        """An unfitted kernel, scaled for features of these statistics, with all relevances 1.

        Args:
            spec: its parameters.
            statistics: of the features before scaling.
            episodes: the demonstrations.
            known: the redundancy of a kernel whose first episodes may be the same.
        """
        offset, scale = spec.feature_map.scaling(statistics)
        redundancy = None
        if spec.drop_redundant:
            if isinstance(spec.feature_map, GeometricFeatures | IdentityFeatures):
                redundancy = Redundancy.of(spec.feature_map, episodes, known)
            scale = without_redundant(spec.feature_map, statistics, redundancy, scale, spec.rotation_weight)
        return cls(spec, offset, scale, np.ones(len(scale)), redundancy=redundancy)

    def weighed(self, relevance: np.ndarray) -> ObservationKernel:
        """With other relevances, (D_z,); they are powers of two, so that the scale stays exact."""
        return replace(self, scale=self.scale * (relevance / self.relevance), relevance=relevance)

    def has_scale_of(self, other: ObservationKernel) -> bool:
        """Whether features are scaled the same, apart from relevance."""
        own, others = self.scale / self.relevance, other.scale / other.relevance
        return np.array_equal(self.offset, other.offset) and np.array_equal(own, others)

    def fitted(self, store: Store, features: Callable[[], np.ndarray]) -> ObservationKernel:
        """The kernel fitted to all demonstrations.

        The shrinkage is the user's, else the chosen one, else the usual one.

        Args:
            store: the demonstrations.
            features: returns features (n, D_z) to estimate the global covariance from.
        """
        shrinkage = self.chosen if self.spec.shrinkage is None else self.spec.shrinkage
        if shrinkage is None:
            shrinkage = usual_shrinkage(self.n_counted, len(store.recorded))
        kernel = replace(self, shrinkage=shrinkage, factor=np.empty((0, 0)), terms=())
        if self.spec.metric == "euclidean":
            kernel = replace(kernel, factor=np.eye(len(self.scale)))
        elif self.spec.metric == "global_mahalanobis":
            with np.errstate(over="ignore", invalid="ignore"):  # distances are then not finite
                kernel = replace(kernel, factor=kernel.local_factor(features()))
        terms = (term.fit(store, kernel) for term in self.spec.terms)
        return replace(kernel, terms=tuple(term for term in terms if not term.idle))

    def features(self, windows: np.ndarray) -> np.ndarray:
        """The features of observation windows, with an error if not finite. (n, N_o, D_o) -> (n, D_z)."""
        return scaled(self.spec.feature_map.lift(windows), self.offset, self.scale, "observation")

    @cached_property
    def n_counted(self) -> int:
        """D, how many features count."""
        return max(len(self.counted), 1)

    @cached_property
    def counted(self) -> np.ndarray:
        """(D,), which features count."""
        return np.flatnonzero((self.scale != 0) & (self.relevance > LEFT_OUT))

    @cached_property
    def h(self) -> float:
        """The bandwidth in units of the metric."""
        return self.spec.bandwidth / math.sqrt(self.n_counted)

    def local_factor(self, features: np.ndarray) -> np.ndarray:
        """L of a neighborhood. (k, D_z) -> (D_z, D_z)."""
        return covariance_factor(features, self.spec.regularization, self.shrinkage, self.n_counted)

    def factor_of(self, features: np.ndarray) -> np.ndarray:
        """L of the metric for a query whose neighbors have these features (k, D_z)."""
        return self.factor if self.factor.size else self.local_factor(features)

    def squared_distances(self, query: np.ndarray, features: np.ndarray) -> np.ndarray:
        """In the metric of these neighbors. (D_z,), (k, D_z) -> (k,)."""
        return squared_distances(features, query, self.factor_of(features))

    def weights(self, query: np.ndarray, features: np.ndarray) -> np.ndarray:
        """The weights of neighbors by distance alone, the largest being 1. (D_z,), (k, D_z) -> (k,)."""
        squared = self.squared_distances(query, features)
        return np.exp(-(squared - squared.min()) / (2 * self.h * self.h))

    def log_weights(self, squared: np.ndarray, candidates: Candidates, penalty: Penalty) -> np.ndarray | None:
        """The log weights (k,) of windows at squared distances (k,) in the metric; see `energy`."""
        return log_weights(squared, energies(squared, candidates, self.terms, penalty), 2 * self.h**2)

    @cached_property
    def record(self) -> Metric:
        """The metric as the compiled planners read it."""
        share = len(self.scale) / self.n_counted
        return Metric(self.factor, self.spec.regularization, self.shrinkage, 1 / (2 * self.h**2), share)

    @cached_property
    def _compiled(self) -> dict[type[Goal] | type[Relation], Goal | Relation]:
        """The terms that have a compiled form, by their kind; idle ones add nothing."""
        found: dict[type[Goal] | type[Relation], Goal | Relation] = {Goal: Goal(0.0), Relation: Relation(0.0)}
        return found | {type(term): term for term in self.terms if isinstance(term, Goal | Relation)}

    @cached_property
    def compiled(self) -> tuple[NamedTuple, ...]:
        """The records of the terms that have a compiled form."""
        return tuple(term.record() for term in self._compiled.values())

    @cached_property
    def uncompiled(self) -> tuple[Term, ...]:
        """The other terms."""
        return tuple(term for term in self.terms if not any(term is one for one in self._compiled.values()))
