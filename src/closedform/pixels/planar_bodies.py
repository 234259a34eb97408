"""PlanarBodies: finds the poses of bodies that move in a plane in front of a fixed camera."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from closedform.errors import DataError, LoadError
from closedform.files import write_file
from closedform.pixels.background import Background
from closedform.pixels.body import Body, body_masks, learn_bodies, not_hidden
from closedform.pixels.colors import SHAPE
from closedform.pixels.components import components, kinds
from closedform.pixels.pictures import check_picture
from closedform.pixels.template import SeenPose, Template

FEWEST_PICTURES = 20
_FORMAT = 1
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
    def learn(cls, pictures: Sequence[Any]) -> PlanarBodies:
        """Learns background, colors and shapes; nothing is trained.

        Every body has to be seen whole and by itself in a fifth of the pictures, and bodies must differ in color.

        Args:
            pictures: (H, W, 3) of uint8, of one fixed camera; a few hundred, spread over the demonstrations.
        """
        if len(pictures) < FEWEST_PICTURES:
            raise DataError(f"expected at least {FEWEST_PICTURES} pictures to learn from, found {len(pictures)}")
        first = check_picture(pictures[0])
        checked = [check_picture(one, first.shape) for one in pictures]
        background = Background.learn(checked)
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
        masks = self.masks(picture)
        poses = [body.template.search(masks[i], not_hidden(masks, i)) for i, body in enumerate(self.bodies)]
        self.check(picture, poses)
        return poses

    def check(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> None:
        """Refuses a picture in which more is of no body, and not of the background, than while learning."""
        strange = self.strangeness(picture, poses)
        if strange > self.strange + _STRANGE:
            raise DataError(
                f"expected the scene of the demonstrations, found {strange:.0%} of the picture changed; has the camera "
                "moved, or is something in the way?"
            )

    def strangeness(self, picture: np.ndarray, poses: Sequence[SeenPose]) -> float:
        """The fraction of a picture that is neither of the background nor of a body at its pose."""
        foreground = self.background.foreground(self.background.lit(picture))
        for body, pose in zip(self.bodies, poses, strict=True):
            foreground = foreground * (1 - np.clip(_COVERS * body.template.covered(pose, foreground.shape), 0, 1))
        return float(foreground.mean())

    def save(self, path: Path | str) -> None:
        """Writes a file of arrays (.npz)."""
        parts: dict[str, Any] = {
            "format": np.array(_FORMAT),
            "background": self.background.picture,
            "noise": np.array(self.background.noise),
            "strange": np.array(self.strange),
        }
        for number, body in enumerate(self.bodies):
            parts |= {f"colors_{number}": body.colors, f"shape_{number}": body.template.shape}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **parts)
        write_file(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> PlanarBodies:
        """Reads what `save` wrote."""
        try:
            with np.load(Path(path), allow_pickle=False) as parts:
                return cls._of(dict(parts))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise LoadError(f"{path}: expected bodies written by PlanarBodies.save, found {error}") from error

    @classmethod
    def _of(cls, parts: dict[str, np.ndarray]) -> PlanarBodies:
        if int(parts["format"]) != _FORMAT:
            raise ValueError(f"format {parts['format']}")
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
        return cls(Background(background, float(parts["noise"])), tuple(bodies), float(parts["strange"]))
