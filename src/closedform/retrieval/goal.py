"""Goal: where demonstrations end, and which windows make the motion that is still needed to get there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from closedform.demos.encoding import Encoding
from closedform.demos.layout import ROTATIONS
from closedform.kernels.records import Candidates, GoalTerm
from closedform.retrieval.feature_map import GeometricFeatures
from closedform.retrieval.term import Term

if TYPE_CHECKING:
    from closedform.retrieval.observation_kernel import ObservationKernel
    from closedform.retrieval.store import Store

_LEAST_SPREAD = 1e-3  # of ends, in features: assumed where all ends are the same
_CONSISTENT = 1.4826  # times the median absolute deviation is a normal distribution's standard deviation


@dataclass(frozen=True)
class Goal(Term):
    """Where the objects are when demonstrations end: the poses of the bodies that actions do not command.

    No two demonstrations end at quite the same place, but the median of their ends is known well. From window i to the
    end of its episode, the objects move by r_i. The motion still needed is r, from where they are now to the median of
    all ends. The less the two agree, the farther away a window counts,

        d_i^2 + g log(t + |r_i - r|^2),

    in units of the spread of ends. The logarithm makes halving a difference worth the same at any size: far from
    the goal it is a mild preference, and close to it precision beyond that of any single demonstration.

    Attributes:
        weight: g.
        columns: (G,), the features of these poses in the newest observation; empty if there are no such bodies.
        ends: (E, G), of each episode.
        middle: (G,), the median of the ends.
        scale: (G,), one over their spread.
        tolerance: t, the squared error of the median itself.
    """

    hook: ClassVar[str | None] = "goal"

    weight: float
    columns: Any = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Any = field(default_factory=lambda: np.empty((0, 0)))
    middle: Any = field(default_factory=lambda: np.empty(0))
    scale: Any = field(default_factory=lambda: np.empty(0))
    tolerance: float = 1.0

    def fit(self, store: Store, kernel: ObservationKernel) -> Goal:
        """Fits the goal to demonstrations; it needs geometric features, in which motions can be added."""
        feature_map, commanded = kernel.spec.feature_map, store.spec.action_layout.bodies
        blocks = _pose_columns(feature_map.encoding, commanded) if isinstance(feature_map, GeometricFeatures) else []
        last_observations, n_obs_steps = store.last_observations, store.spec.n_obs_steps
        if not blocks:
            return Goal(self.weight, ends=np.empty((len(last_observations), 0)))
        before = len(kernel.offset) // n_obs_steps * (n_obs_steps - 1)
        columns = before + np.concatenate(blocks)
        ended: np.ndarray = np.isfinite(last_observations).all(axis=1)  # pyright: ignore[reportAssignmentType]
        last = np.repeat(last_observations[ended][:, None], n_obs_steps, axis=1)
        found = ((feature_map.lift(last) - kernel.offset) * kernel.scale)[:, columns]
        ends = np.zeros((len(ended), len(columns)))
        symmetry = store.symmetry
        if symmetry is not None and symmetry.n_turned > 1:
            found = _one_goal(found, symmetry.n_turned)
        ends[ended] = found
        middle = np.median(found, axis=0)
        spread = np.square(_CONSISTENT * np.median(np.abs(found - middle), axis=0))
        sizes = [len(block) for block in blocks]
        pooled = np.repeat([of.mean() for of in np.split(spread, np.cumsum(sizes)[:-1])], sizes)
        return replace(
            self,
            columns=columns,
            ends=ends,
            middle=middle,
            scale=1 / np.sqrt(pooled + _LEAST_SPREAD**2),
            tolerance=len(columns) / len(found),
        )

    def __call__(self, candidates: Candidates) -> Any:
        """g log(t + |r_i - r|^2), less its smallest value."""
        xp = array_namespace(candidates.features)
        still = self.ends[candidates.episodes] - candidates.features[..., self.columns]
        needed = (self.middle - candidates.query[..., self.columns])[..., None, :]
        difference = xp.log(self.tolerance + xp.sum(((still - needed) * self.scale) ** 2, axis=-1))
        return self.weight * (difference - xp.min(difference, axis=-1, keepdims=True))

    @property
    def idle(self) -> bool:
        """Whether there are no objects whose end could be a goal."""
        return not len(self.columns)

    def record(self) -> GoalTerm:
        """The fields that the compiled planners read."""
        return GoalTerm(self.weight, self.columns, self.ends, self.middle, self.scale, self.tolerance)


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
