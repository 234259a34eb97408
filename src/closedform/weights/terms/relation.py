"""Relation: where hands are, seen from the objects."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import ROTATIONS
from closedform.kernels.records import Candidates, RelationTerm
from closedform.parameters import Parameters, parameter
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.term import Term

if TYPE_CHECKING:
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

_TOUCHING = 0.01  # of the unit of length, squared: two bodies nearer than a tenth of it are about equally near


@dataclass(frozen=True)
class RelationParameters(Parameters):
    """The parameters of `Relation`."""

    relation_weight: float = parameter(
        6.4,
        0.0,
        "preference for demonstrations in which hands are at the same place relative to objects; 0 is the paper.",
        between=(0, 1e6),
    )


@dataclass(frozen=True)
class Relation(Term):
    """Where each hand is relative to the objects: windows count as farther away the more it differs.

    In contact, what an action does depends on where the hand is relative to the object, whatever their place in the
    world. A chunk that is transferred in an object's frame begins where its own hand was in that frame; the further
    that is from where the hand is now, the less it says. So window i gets

        d_i^2 + w sum_b s_b |x_ib - x_b|^2 / l^2,

    with x_b the hand's position in the frame of object b, l the unit of length (that of features, in which positions
    fill about [-1, 1]), and s_b the share of object b, which is inversely proportional to its squared distance from the
    hand now: an object that is far away says little.

    Attributes:
        weight: w.
        hands: (H, d), features of the newest observation that are the positions of commanded bodies.
        objects: (B, d), the same of other bodies.
        axes: (B, 2 d), of their rotations, padded with -1: 2 numbers in the plane, 3 for an angle in space, 6 for any
            other rotation, none for bodies without one.
        n_axes: of each object, how many numbers its rotation has.
        offset, inverse: (D_z,), feature * inverse + offset is the encoded observation.
        unit: l.
    """

    weight: float
    hands: Any = field(default_factory=lambda: np.empty((0, 2), np.int64))
    objects: Any = field(default_factory=lambda: np.empty((0, 2), np.int64))
    axes: Any = field(default_factory=lambda: np.empty((0, 4), np.int64))
    n_axes: tuple[int, ...] = ()
    offset: Any = field(default_factory=lambda: np.empty(0))
    inverse: Any = field(default_factory=lambda: np.empty(0))
    unit: float = 1.0

    @classmethod
    def of(cls, parameters: RelationParameters) -> Relation | None:
        """The term for some parameters; None if they turn it off."""
        return cls(parameters.relation_weight) if parameters.relation_weight else None

    def fit(self, store: Store, kernel: ObservationKernel) -> Relation:
        """The term for some demonstrations; it needs geometric features, and a hand and an object in the layout."""
        feature_map, commanded = kernel.spec.feature_map, store.spec.action_layout.bodies
        if not isinstance(feature_map, GeometricFeatures):
            return Relation(self.weight)
        bodies = _bodies(feature_map.encoding, store.spec.n_obs_steps)
        hands = [position for body, position, _ in bodies if body in commanded]
        objects = [(position, axes) for body, position, axes in bodies if body not in commanded]
        if not hands or not objects:
            return Relation(self.weight)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            unit = float(1 / feature_map.scaling(store.feature_statistics)[1][hands[0][0]])
            inverse = np.where(kernel.scale == 0, 0.0, 1 / kernel.scale)
        if not (0 < unit < np.inf and np.isfinite(inverse).all()):
            return Relation(self.weight)
        return replace(
            self,
            hands=np.array(hands),
            objects=np.array([position for position, _ in objects]),
            axes=np.array([axes for _, axes in objects]),
            n_axes=tuple(int((axes >= 0).sum()) for _, axes in objects),
            offset=np.asarray(kernel.offset, np.float64),
            inverse=inverse,
            unit=unit,
        )

    def __call__(self, candidates: Candidates) -> Any:
        """w sum_b s_b |x_ib - x_b|^2 / l^2, summed over hands."""
        xp = array_namespace(candidates.features)
        total = xp.zeros_like(candidates.features[..., 0])
        here = self._places(candidates.query[..., None, :])
        there = self._places(candidates.features)
        for hand, now in zip(there, here, strict=True):
            nearness = [1 / (xp.sum(x * x, axis=-1) / self.unit**2 + _TOUCHING) for x in now]
            for then, x, near in zip(hand, now, nearness, strict=True):
                total = total + near / sum(nearness) * xp.sum((then - x) ** 2, axis=-1)
        return total * (self.weight / self.unit**2)

    @property
    def idle(self) -> bool:
        """Whether there is no hand, or no object."""
        return not len(self.hands)

    def record(self) -> RelationTerm:
        """All of it."""
        weight = self.weight / self.unit**2 if len(self.hands) else 0.0
        touching = _TOUCHING * self.unit**2
        return RelationTerm(weight, self.hands, self.objects, self.axes, self.offset, self.inverse, touching)

    def _places(self, features: Any) -> list[list[Any]]:
        """Each hand's position (..., d) in the frame of each object, given features (..., D_z)."""
        xp = array_namespace(features)

        def encoded(columns: Any) -> Any:
            return features[..., columns] * self.inverse[columns] + self.offset[columns]

        def seen_from(position: Any, axes: Any, n_axes: int, place: Any) -> Any:
            apart = place - encoded(position)
            if not n_axes:
                return apart
            x = encoded(axes[:d])
            if n_axes == 6:
                y = encoded(axes[d:])
            else:  # about the z axis
                y = xp.stack([-x[..., 1], x[..., 0], *([0 * x[..., 0]] if d == 3 else [])], axis=-1)
            rows = [x, y] if d == 2 else [x, y, _cross(xp, x, y)]
            return xp.stack([xp.sum(row * apart, axis=-1) for row in rows], axis=-1)

        d = self.hands.shape[1]
        objects = list(zip(self.objects, self.axes, self.n_axes, strict=True))
        return [[seen_from(*of, encoded(hand)) for of in objects] for hand in self.hands]


def _cross(xp: Any, a: Any, b: Any) -> Any:
    """The cross product. (..., 3), (..., 3) -> (..., 3)."""
    return xp.stack([a[..., i - 2] * b[..., i - 1] - a[..., i - 1] * b[..., i - 2] for i in range(3)], axis=-1)


@lru_cache(maxsize=64)
def _bodies(encoding: Encoding, n_obs_steps: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Of each body with a position: its name, and the features of its position and of its rotation, padded with -1."""
    newest, d = encoding.width * (n_obs_steps - 1), encoding.dimension
    found = []
    for body in encoding.layout.bodies:
        own = [(entry, newest + np.arange(c.start, c.stop)) for entry, c in encoding.slices() if entry.body == body]
        position = next((columns for entry, columns in own if entry.kind == "position" and len(columns) == d), None)
        rotation = next((columns for entry, columns in own if entry.kind in ROTATIONS), np.empty(0, np.int64))
        if position is not None:
            found.append((body, position, np.pad(rotation, (0, 2 * len(position) - len(rotation)), constant_values=-1)))
    return found
