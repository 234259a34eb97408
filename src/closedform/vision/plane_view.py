"""PlaneView: numbers for a policy from pictures and a position that is known besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from closedform.errors import DataError
from closedform.vision.planar_bodies import PlanarBodies
from closedform.vision.similarity import Similarity
from closedform.vision.template import SeenPose
from closedform.vision.tracker import Tracker

T = TypeVar("T")

_SURE = 0.9  # confidence of poses that the units of positions are learned from
_MOST = 60  # pictures that they are learned from
_CLOSE = 0.02  # of the spread of positions: the error of the body that has the known position


@dataclass(frozen=True)
class PlaneView:
    """Bodies in the units of a known position, such as that of a hand.

    One of the bodies in the pictures is where the known position says, and tells what a pixel is worth. The others are
    what a policy needs to be told of.

    Attributes:
        bodies: as learned from pictures.
        known: the number of the body whose position is known.
        similarity: from pixels to the units of that position.
    """

    bodies: PlanarBodies
    known: int
    similarity: Similarity

    @classmethod
    def learn(cls, pictures: Sequence[Any], positions: np.ndarray) -> PlaneView:
        """Learns from pictures, each with the known position (2,) at that time."""
        bodies = PlanarBodies.learn(pictures)
        return cls.choose(bodies, pictures, {"hand": np.asarray(positions, float)})[0]

    @classmethod
    def choose(
        cls, bodies: PlanarBodies, pictures: Sequence[Any], positions: Mapping[T, np.ndarray]
    ) -> tuple[PlaneView, T]:
        """The view in which one of the bodies follows one of several known positions, and which.

        Args:
            bodies: as learned.
            pictures: some of them.
            positions: (N, 2), one for each picture, by any name.
        """
        chosen = np.linspace(0, len(pictures) - 1, min(len(pictures), _MOST)).round().astype(int)
        poses, fits = [bodies.find(pictures[i]) for i in chosen], []
        for order, (name, known) in enumerate(positions.items()):
            for number in range(len(bodies.bodies)):
                seen = np.array([one[number] for one in poses])
                sure = seen[:, 3] > _SURE
                if sure.sum() > 2:
                    fit = Similarity.fit(seen[sure, :2], known[chosen][sure])
                    spread = max(known[chosen][sure].std(axis=0).mean(), 1e-12)
                    fits.append((fit.error / spread, number, order, fit, name))
        if not fits or min(fits)[0] > _CLOSE:
            raise DataError(
                f"expected one of the {len(bodies.bodies)} bodies in the pictures to be where the known position says, "
                "found none that follows it"
            )
        _, known, _, similarity, name = min(fits)
        return cls(bodies, known, similarity), name

    @property
    def others(self) -> list[int]:
        """The numbers of the bodies whose positions are not known."""
        return [number for number in range(len(self.bodies.bodies)) if number != self.known]

    def tracker(self) -> Tracker:
        """Follows the bodies in one episode."""
        return Tracker(self.bodies)

    def pose(self, seen: SeenPose) -> np.ndarray:
        """(3,), position and angle in the units of the known position."""
        return np.array([*self.similarity.position(np.array(seen[:2])), self.similarity.angle(seen.angle)])
