"""Goal: where demonstrations end, and which windows make the motion that is still needed to get there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import ROTATIONS
from closedform.kernels.records import Candidates, GoalTerm
from closedform.parameters import Parameters, parameter
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.term import Term

if TYPE_CHECKING:
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

_LEAST_SPREAD = 1e-3  # of ends, in features: assumed where all ends are the same
_CONSISTENT = 1.4826  # times the median absolute deviation is a normal distribution's standard deviation
_STILL = 0.01  # standard deviation within an episode, in features: what varies less does not move
_CLOSER = 4.0  # how many times less the ends must vary around a body for that body to be their goal
_FEWEST_EPISODES = 5  # to tell that from chance


@dataclass(frozen=True)
class GoalParameters(Parameters):
    """The parameters of `Goal`."""

    goal_weight: float = parameter(
        0.3,
        0.0,
        "preference for demonstrations whose remaining object motion leads to the shared goal; 0 is the paper.",
        between=(0, 1e6),
    )
    goals: str = parameter(
        "observed",
        "shared",
        "where goals are: observed (at a body that is never moved, if ends vary far less around it; hands have goals "
        "where nothing else moves) or shared (of objects, the same in all episodes).",
        choices=("observed", "shared"),
    )


@dataclass(frozen=True)
class Goal(Term):
    """Where the objects are when demonstrations end: the poses of the bodies that actions do not command.

    No two demonstrations end at quite the same place, but the median of their ends is known well. From window i to the
    end of its episode, the objects move by r_i. The motion still needed is r, from where they are now to the median of
    all ends. The less the two agree, the farther away a window counts,

        d_i^2 + g log(t + |r_i - r|^2),

    in units of the spread of ends. The logarithm makes halving a difference worth the same at any size: far from
    the goal it is a mild preference, and close to it precision beyond that of any single demonstration.

    If the goal is another one in every episode, the observation has to tell: if ends vary far less as seen from a body
    that is never moved, such as a marker of the goal, the motion needed leads to where that body is now, plus the
    median of the differences. What is never moved has no goal itself.

    Attributes:
        weight: g.
        observed: whether goals may be where another body is; otherwise they are shared by all episodes.
        columns: (G,), the features of these poses in the newest observation; empty if there are no such bodies.
        ends: (E, G), of each episode.
        middle: (G,), the median of the ends.
        scale: (G,), one over their spread.
        tolerance: t, the squared error of the median itself.
        references, ratios: (G,), the feature that ends are measured from, and its unit; a ratio of 0 if from nothing.
    """

    weight: float
    observed: bool = True
    columns: Any = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Any = field(default_factory=lambda: np.empty((0, 0)))
    middle: Any = field(default_factory=lambda: np.empty(0))
    scale: Any = field(default_factory=lambda: np.empty(0))
    tolerance: float = 1.0
    references: Any = field(default_factory=lambda: np.empty(0, np.int64))
    ratios: Any = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, parameters: GoalParameters) -> Goal | None:
        """The term for some parameters; None if they turn it off."""
        return cls(parameters.goal_weight, parameters.goals == "observed") if parameters.goal_weight else None

    def fit(self, store: Store, kernel: ObservationKernel) -> Goal:
        """Fits the goal to demonstrations; it needs geometric features, in which motions can be added."""
        feature_map = kernel.spec.feature_map
        last_observations, n_obs_steps = store.last_observations, store.spec.n_obs_steps
        moved, resting = self.poses(store, kernel)
        if not moved or not isinstance(feature_map, GeometricFeatures):
            return Goal(self.weight, self.observed, ends=np.empty((len(last_observations), 0)))
        columns = np.concatenate(moved)
        ended: np.ndarray = np.isfinite(last_observations).all(axis=1)  # pyright: ignore[reportAssignmentType]
        last = np.repeat(last_observations[ended][:, None], n_obs_steps, axis=1)
        lifted = (feature_map.lift(last) - kernel.offset) * kernel.scale
        recorded = lifted[(np.arange(len(ended)) % store.n_copies == 0)[ended]]
        chosen = [_reference(recorded, block, resting, kernel.scale) for block in moved]
        references, ratios = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
        seen = lifted[:, columns] - ratios * lifted[:, references]  # from where they are measured
        found = _one_goal(seen, store.n_turned) if store.n_turned > 1 else seen
        ends = np.zeros((len(ended), len(columns)))
        ends[ended] = lifted[:, columns] + (found - seen)
        middle = np.median(found, axis=0)
        sizes = [len(block) for block in moved]
        pooled = np.repeat([of.mean() for of in np.split(robust_variance(found), np.cumsum(sizes)[:-1])], sizes)
        return replace(
            self,
            columns=columns,
            ends=ends,
            middle=middle,
            scale=1 / np.sqrt(pooled + _LEAST_SPREAD**2),
            tolerance=len(columns) / len(found),
            references=references,
            ratios=ratios,
        )

    def poses(self, store: Store, kernel: ObservationKernel) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The features of the poses that are moved in some episode, and of those that never are; none of hands."""
        feature_map, n_obs_steps = kernel.spec.feature_map, store.spec.n_obs_steps
        if not isinstance(feature_map, GeometricFeatures):
            return [], []
        newest = len(kernel.offset) // n_obs_steps * (n_obs_steps - 1)
        blocks = [newest + block for block in _pose_columns(feature_map.encoding, store.spec.action_layout.bodies)]
        if not self.observed:
            return blocks, []
        with np.errstate(over="ignore", invalid="ignore"):
            variance = store.variance_within * np.square(kernel.scale / kernel.relevance)
        still = [bool(variance[block].sum() <= _STILL**2) for block in blocks]
        moved = [block for block, resting in zip(blocks, still, strict=True) if not resting]
        return moved, [block for block, resting in zip(blocks, still, strict=True) if resting]

    def __call__(self, candidates: Candidates) -> Any:
        """g log(t + |r_i - r|^2), less its smallest value."""
        xp = array_namespace(candidates.features)
        still = self.ends[candidates.episodes] - candidates.features[..., self.columns]
        goal = self.middle + self.ratios * candidates.query[..., self.references]
        needed = (goal - candidates.query[..., self.columns])[..., None, :]
        difference = xp.log(self.tolerance + xp.sum(((still - needed) * self.scale) ** 2, axis=-1))
        return self.weight * (difference - xp.min(difference, axis=-1, keepdims=True))

    @property
    def idle(self) -> bool:
        """Whether there are no objects whose end could be a goal."""
        return not len(self.columns)

    def record(self) -> GoalTerm:
        """The fields that the compiled planners read."""
        places = self.columns, self.ends, self.middle, self.scale
        return GoalTerm(self.weight, *places, self.tolerance, self.references, self.ratios)


def robust_variance(ends: np.ndarray) -> np.ndarray:
    """The variance (G,) of ends (E, G), as the median absolute deviation tells it."""
    return np.square(_CONSISTENT * np.median(np.abs(ends - np.median(ends, axis=0)), axis=0))


def nearest_reference(ends: np.ndarray, places: list[np.ndarray]) -> int | None:
    """Which of some places (E, G) the ends (E, G) follow, since they vary far less around it; None if none of them."""
    found, least = None, robust_variance(ends).sum() / _CLOSER
    if len(ends) >= _FEWEST_EPISODES:
        for index, place in enumerate(places):
            variance = robust_variance(ends - place).sum()
            if variance < least:
                found, least = index, variance
    return found


def _reference(
    ends: np.ndarray, block: np.ndarray, resting: list[np.ndarray], scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The features that the ends of a pose are measured from, and the units of these; ratios of 0 for none.

    Args:
        ends: (E, D_z), all features at the end of each recorded episode.
        block: the features of the pose.
        resting: those of the poses that are never moved.
        scale: (D_z,), of features; positions in the same unit may be scaled differently.
    """
    alike = [other for other in resting if len(other) == len(block) and scale[other].all()]
    ratios = [scale[block] / scale[other] for other in alike]
    places = [ratio * ends[:, other] for ratio, other in zip(ratios, alike, strict=True)]
    found = nearest_reference(ends[:, block], places)
    return (block, np.zeros(len(block))) if found is None else (alike[found], ratios[found])


def _one_goal(ends: np.ndarray, n_turned: int) -> np.ndarray:
    """Ends (E, G) as if all images ended in the same pose: where bodies are turned, each has a goal of its own.

    Only the difference between an end and its goal counts, so ends are moved by the difference between goals.

    Args:
        ends: of each episode, followed by its images.
        n_turned: how many of these come first and are not mirrored.
    """
    nearest = np.argmin(np.square(ends[:, None] - ends[:n_turned]).sum(-1), axis=1)
    found, where = np.unique(nearest, return_inverse=True)
    middles = np.array([np.median(ends[nearest == k], axis=0) for k in found])
    return ends - middles[where] + middles[0]


def _pose_columns(encoding: Encoding, commanded: tuple[str, ...]) -> list[np.ndarray]:
    """The encoded columns of each position and rotation of a body that is not commanded."""
    return [
        np.arange(columns.start, columns.stop)
        for entry, columns in encoding.slices()
        if entry.body is not None and entry.body not in commanded and entry.kind in ("position", *ROTATIONS)
    ]
