"""PlanarBodies: finds the poses of bodies that move in a plane in front of a fixed camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.vision.background import Background
from closedform.vision.body import Body, body_masks, learn_bodies, not_hidden
from closedform.vision.colors import SHAPE
from closedform.vision.components import components, kinds, labeled, moves
from closedform.vision.pictures import check_mask, check_picture
from closedform.vision.template import SeenPose, Template

FEWEST_PICTURES = 20
LOST = 0.8  # confidence below which a body is not where it is looked for
_MOVED = 1.0  # pixels
_FREE = 0.02  # of a body, in a pixel that shows the background
_ROUNDS = 3  # of finding what is behind bodies that are often at the same place
_N_USUAL = 60  # pictures that tell what is usual
_STRANGE = 0.03  # of a picture, more than usual
_COVERS = 2.0  # pixels that are half of a body are covered by it


@dataclass(frozen=True)
class PlanarBodies:
    """What was learned from pictures of a scene; `Tracker` follows the bodies from picture to picture.

        bodies = PlanarBodies.learn(pictures)
        poses = bodies.find(picture)

    Attributes:
        background: the scene without bodies.
        bodies: the largest first.
        strange: the fraction of a picture that is of no body and not of the background, rarely exceeded while learning.
    """

    background: Background
    bodies: tuple[Body, ...]
    strange: float

    @classmethod
    def learn(cls, pictures: Sequence[Any], masks: Sequence[Any] | None = None) -> PlanarBodies:
        """Learns background, colors and shapes; nothing is trained.

        Every body has to be seen whole and by itself in a fifth of the pictures, and bodies must differ in color.

        Args:
            pictures: (H, W, 3) of uint8, of one fixed camera; a few hundred, spread over the demonstrations.
            masks: (H, W) of whole numbers for each, 0 where the background is and 1, 2, ... where the bodies are, if
                another program found them; by default they are found from what moves.
        """
        if len(pictures) < FEWEST_PICTURES:
            raise DataError(f"expected at least {FEWEST_PICTURES} pictures to learn from, found {len(pictures)}")
        first = check_picture(pictures[0])
        checked = [check_picture(one, first.shape) for one in pictures]
        if masks is not None and len(masks) != len(checked):
            raise DataError(f"expected a mask for each of {len(checked)} pictures, found {len(masks)}")
        labels = None if masks is None else [check_mask(one, first.shape) for one in masks]
        background = Background.learn(checked, labels)
        lit = [background.lit(one) for one in checked]
        groups = kinds(components(lit, background), len(lit)) if labels is None else labeled(lit, labels)
        for _ in range(_ROUNDS if labels is None else 0):
            still = [region for group in groups if not moves(group) for region in group]
            if not still:
                break
            background = background.revealed(lit, [(region.index, region.mask) for region in still])
            lit = [background.lit(one) for one in checked]
            groups = kinds(components(lit, background), len(lit))
        if not groups:
            raise DataError(
                "expected bodies that move in front of a still background, found none; does the camera move?"
            )
        found = cls(background, tuple(learn_bodies(lit, background, groups)), strange=1.0)
        usual = [
            found.strangeness(picture, found.find(picture)) for picture in checked[:: len(checked) // _N_USUAL + 1]
        ]
        return replace(found, strange=float(np.max(usual)))

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W, 3), of its pictures."""
        return self.background.picture.shape

    def masks(self, picture: Any) -> np.ndarray:
        """(B, H, W), how sure it is that pixels are of each body."""
        lit = self.background.lit(check_picture(picture, self.shape))
        return body_masks([body.colors for body in self.bodies], lit, self.background.foreground(lit))

    def find(self, picture: Any) -> list[SeenPose]:
        """The poses of all bodies, wherever they are; refuses pictures of another scene."""
        poses = self.search(picture)
        self.check_first(picture, poses)
        self.check(picture, poses)
        return poses

    def search(self, picture: Any) -> list[SeenPose]:
        """The poses of all bodies, wherever they are, in any picture of the right size."""
        masks = self.masks(picture)
        return [body.template.search(masks[i], not_hidden(masks, i)) for i, body in enumerate(self.bodies)]

    def check_first(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> None:
        """Refuses a picture in which all bodies are found only if red and blue change places."""
        if min(one.confidence for one in poses) >= LOST:
            return
        turned = self.search(np.ascontiguousarray(picture[..., ::-1]))
        if min(one.confidence for one in turned) >= LOST:
            raise DataError(
                "expected a picture with the channels RGB, as in the demonstrations, found BGR; reverse them"
            )

    def check(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> None:
        """Refuses a picture that is shifted, or in which more is strange than while learning."""
        lit = self.background.lit(picture)
        covered = np.max([body.template.covered(pose, lit.shape[:2]) for body, pose in self._posed(poses)], axis=0)
        shift = self.background.shift(lit, covered < _FREE)
        if np.hypot(*shift) >= _MOVED:
            raise DataError(
                f"expected the scene of the demonstrations, found it {np.hypot(*shift):.1f} pixels from its place; has "
                "the camera moved?"
            )
        strange = self.strangeness(picture, poses)
        if strange > self.strange + _STRANGE:
            raise DataError(
                f"expected the scene of the demonstrations, found {strange:.0%} of the picture changed; has the camera "
                "moved, or is something in the way?"
            )

    def strangeness(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> float:
        """The fraction of a picture that is neither of the background nor of a body at its pose."""
        return float(self.residual(picture, poses).mean())

    def residual(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> np.ndarray:
        """(H, W), how sure it is that pixels are neither of the background nor of a body at its pose."""
        foreground = self.background.foreground(self.background.lit(picture))
        for body, pose in self._posed(poses):
            foreground = foreground * (1 - np.clip(_COVERS * body.template.covered(pose, foreground.shape), 0, 1))
        return foreground

    def _posed(self, poses: Sequence[SeenPose]) -> list[tuple[Body, SeenPose]]:
        return list(zip(self.bodies, poses, strict=True))

    def to_parts(self) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """What is saved: numbers, and arrays."""
        arrays = {"background": self.background.picture}
        for number, body in enumerate(self.bodies):
            arrays |= {f"colors_{number}": body.colors, f"shape_{number}": body.template.shape}
        return {"noise": self.background.noise, "strange": self.strange}, arrays

    @classmethod
    def from_parts(cls, numbers: dict[str, Any], parts: dict[str, np.ndarray]) -> PlanarBodies:
        """The inverse of `to_parts`; raises `ValueError`, `TypeError` or `LookupError` if they do not fit."""
        background, n = parts["background"], sum(name.startswith("colors_") for name in parts)
        if background.ndim != 3 or background.shape[2] != 3 or background.dtype != np.float32 or not n:
            raise ValueError(f"a background of {background.shape} and {n} bodies")
        bodies = []
        for number in range(n):
            colors, shape = parts[f"colors_{number}"], parts[f"shape_{number}"]
            if colors.shape != SHAPE or shape.ndim != 2 or shape.shape[0] != shape.shape[1] or not shape.shape[0] % 2:
                raise ValueError(f"a body of {colors.shape} and {shape.shape}")
            if not (np.isfinite(colors).all() and np.isfinite(shape).all()):
                raise ValueError("numbers that are not finite")
            bodies.append(Body(colors.astype(np.float32), Template(shape.astype(np.float32))))
        return cls(Background(background, float(numbers["noise"])), tuple(bodies), float(numbers["strange"]))
