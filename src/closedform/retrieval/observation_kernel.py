"""ObservationKernel: who counts, given what is observed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from closedform.demos.episode import Episode
from closedform.kernels.records import Candidates, Metric, Terms
from closedform.retrieval.feature_map import FeatureMap, scaled
from closedform.retrieval.goal import Goal
from closedform.retrieval.metric import covariance_factor, squared_distances
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.redundancy import without_redundant
from closedform.retrieval.shrinkage import usual_shrinkage
from closedform.retrieval.statistics import Statistics
from closedform.retrieval.term import Term

if TYPE_CHECKING:
    from closedform.retrieval.store import Store


@dataclass(frozen=True)
class KernelSpec:
    """What an observation kernel is asked to be.

    Attributes:
        feature_map: from observation windows to features.
        metric: one of `METRICS`.
        bandwidth: sqrt(D_z) h.
        regularization: lambda, added to the covariance of features.
        shrinkage: of this covariance; None to have it follow from the data.
        relevance: whether entries of observations that make predictions worse count less.
        choose_shrinkage: whether the data choose it where it is None; see `choose_shrinkage`.
        distinct: whether numbers that are constant or copies of others are no features; see `without_redundant`.
        rotation_weight: the length of a rotation's unit vectors in features.
        terms: what else counts, before it is fitted.
    """

    feature_map: FeatureMap
    metric: str = "local_mahalanobis"
    bandwidth: float = 0.09
    regularization: float = 1e-4
    shrinkage: float | None = 0.0
    relevance: bool = False
    choose_shrinkage: bool = False
    distinct: bool = False
    rotation_weight: float = 0.4
    terms: tuple[Term, ...] = ()

    @property
    def chooses(self) -> bool:
        """Whether the data choose the shrinkage."""
        return self.choose_shrinkage and self.shrinkage is None and self.metric != "euclidean"


@dataclass(frozen=True)
class ObservationKernel:
    """How much each demonstrated window counts for an observation.

    With z the features of the observation and z_i those of window i, its weight is

        exp(-(|L^-1 (z_i - z)|^2 + terms_i) / (2 h^2)),    h = bandwidth / sqrt(D),

    where L L^T is the covariance of the neighbors' features, drawn toward a sphere (`shrinkage`), plus lambda I, and D
    features count: those whose scale is not 0.

    Attributes:
        spec: what was asked for.
        offset, scale: (D_z,), z = (lift(o) - offset) * scale; the scale has `relevance` in it.
        relevance: (D_z,), powers of two; see `entry_weights`.
        chosen: the shrinkage that predicts surely better than the usual one; None if there is no such.
        shrinkage: how far covariances are drawn toward a sphere.
        factor: (D_z, D_z), the Cholesky factor of a metric that is the same everywhere; (0, 0) for the local one.
        terms: fitted to the demonstrations.
    """

    spec: KernelSpec
    offset: np.ndarray
    scale: np.ndarray
    relevance: np.ndarray
    chosen: float | None = None
    shrinkage: float = 0.0
    factor: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    terms: tuple[Term, ...] = ()

    @classmethod
    def scaled_for(cls, spec: KernelSpec, statistics: Statistics, episodes: Sequence[Episode]) -> ObservationKernel:
        """With the scale that features of these statistics call for, all of them relevant; to be fitted."""
        offset, scale = spec.feature_map.scaling(statistics)
        if spec.distinct:
            scale = without_redundant(spec.feature_map, statistics, episodes, scale, spec.rotation_weight)
        return cls(spec, offset, scale, np.ones(len(scale)))

    def weighed(self, relevance: np.ndarray) -> ObservationKernel:
        """With other relevances, (D_z,); they are powers of two, so that no bit of the scale is lost."""
        return replace(self, scale=self.scale * (relevance / self.relevance), relevance=relevance)

    def has_scale_of(self, other: ObservationKernel) -> bool:
        """Whether features are scaled alike, relevance aside."""
        own, others = self.scale / self.relevance, other.scale / other.relevance
        return np.array_equal(self.offset, other.offset) and np.array_equal(own, others)

    def fitted(self, store: Store, features: Callable[[], np.ndarray]) -> ObservationKernel:
        """With what has to be known of all demonstrations.

        The shrinkage is what the user says, else what was chosen, else the usual one.

        Args:
            store: the demonstrations.
            features: returns those (n, D_z) of rows that tell the covariance of all.
        """
        shrinkage = self.chosen if self.spec.shrinkage is None else self.spec.shrinkage
        if shrinkage is None:
            shrinkage = usual_shrinkage(self.n_counted, len(store.recorded))
        kernel = replace(self, shrinkage=shrinkage, factor=np.empty((0, 0)), terms=())
        if self.spec.metric == "euclidean":
            kernel = replace(kernel, factor=np.eye(len(self.scale)))
        elif self.spec.metric == "global_mahalanobis":
            with np.errstate(over="ignore", invalid="ignore"):  # which shows as distances that are not finite
                kernel = replace(kernel, factor=kernel.local_factor(features()))
        return replace(kernel, terms=tuple(term.fit(store, kernel) for term in self.spec.terms))

    def features(self, windows: np.ndarray) -> np.ndarray:
        """The features of observation windows, refused if they are not finite. (n, N_o, D_o) -> (n, D_z)."""
        return scaled(self.spec.feature_map.lift(windows), self.offset, self.scale, "observation")

    @cached_property
    def n_counted(self) -> int:
        """D, how many features count."""
        return max(int(np.count_nonzero(self.scale)), 1)

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
        """What neighbors weigh by their distances alone, the largest being 1. (D_z,), (k, D_z) -> (k,)."""
        squared = self.squared_distances(query, features)
        return np.exp(-(squared - squared.min()) / (2 * self.h * self.h))

    def penalized(self, squared: np.ndarray, candidates: Candidates, penalty: Penalty) -> np.ndarray:
        """Squared distances (k,) with what all terms add."""
        for term in (penalty, *self.terms):
            squared = squared + term(candidates)
        return squared

    def log_weights(self, squared: np.ndarray, penalized: np.ndarray, width: float | None = None) -> np.ndarray | None:
        """-penalized / (2 h^2), the largest being 0; None where distances or weights cannot be told.

        Args:
            squared: (k,), distances in the metric.
            penalized: (k,), with what terms add.
            width: instead of 2 h^2.
        """
        width = 2 * self.h**2 if width is None else width
        with np.errstate(over="ignore", invalid="ignore"):
            measured = squared / width < np.inf
            log_weights = -(penalized - penalized.min()) / width
        # The largest is 0, or not a number where all of them are infinitely far.
        return log_weights if measured.all() and not np.isnan(log_weights).any() else None

    @cached_property
    def unhooked(self) -> tuple[Term, ...]:
        """The terms that the compiled planners do not know themselves."""
        return tuple(term for term in self.terms if term.hook is None)

    @cached_property
    def record(self) -> Metric:
        """The metric as the compiled planners read it."""
        share = len(self.scale) / self.n_counted
        return Metric(self.factor, self.spec.regularization, self.shrinkage, 1 / (2 * self.h**2), share)

    @cached_property
    def hooked(self) -> Terms:
        """The terms that the compiled planners know, without a plan's penalty."""
        nothing = Terms(Goal(0.0).record(), Penalty.none().record())
        return nothing._replace(**{term.hook: term.record() for term in self.terms if term.hook is not None})

    def term_records(self, penalty: Penalty) -> Terms:
        """The terms that the compiled planners know, for a plan."""
        return self.hooked._replace(penalty=penalty.record())
