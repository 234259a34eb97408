"""UsualScene: refuses pictures that are not of the scene of the demonstrations, where no bodies tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from closedform.errors import DataError
from closedform.vision.background import Background
from closedform.vision.pictures import opencv, reduced, reduced_size

_STRANGE = 0.03  # of a picture, more than usual
_UNFIXED = 0.5  # of a picture that is not of the background: the camera moved in the demonstrations, too
_MOVED = 0.5  # pixels
_EXPLAINED = 0.95  # of the foreground that is left at most if the camera was moved
_NEW = 0.002  # of a picture in colors that were never seen
_TURNED = 0.25  # of these pixels that are left at most if red and blue change places
_BINS, _WIDTH = 16, 16  # of each channel


@dataclass(frozen=True)
class UsualScene:
    """The background of a fixed camera, how much is usually in front of it, and which colors there are.

    Attributes:
        background: the scene without what moves.
        most: the largest fraction of a picture that was not of the background while learning.
        colors: (16, 16, 16), whether red, green and blue like these were seen.
    """

    background: Background
    most: float
    colors: np.ndarray

    @classmethod
    def learn(cls, pictures: Sequence[np.ndarray]) -> Self:
        """Learns from pictures (H, W, 3) of uint8, spread over the demonstrations."""
        small = [reduced(one) for one in pictures]
        background = Background.learn(small)
        most = max(float(background.foreground(background.lit(one)).mean()) for one in small)
        seen = np.zeros((_BINS,) * 3, bool)
        for one in small:
            seen[tuple(np.moveaxis(one // _WIDTH, -1, 0))] = True
        near = np.any(sliding_window_view(np.pad(seen, 1), (3, 3, 3)), axis=(3, 4, 5))
        return cls(background, most, np.asarray(near))

    def check(self, picture: np.ndarray) -> None:
        """Refuses a picture of a moved camera, with the channels BGR, or in which more than usual has changed."""
        small = reduced(picture)
        new = self._new(small)
        if new > _NEW and self._new(small[..., ::-1]) < _TURNED * new:
            raise DataError(
                "expected a picture with the channels RGB, as in the demonstrations, found BGR; reverse them"
            )
        if self.most > _UNFIXED:
            return
        lit = self.background.lit(small)
        shift = self._shift(lit)
        if shift >= _MOVED:
            raise DataError(
                f"expected the scene of the demonstrations, found it {shift:.1f} pixels from its place; has "
                "the camera moved?"
            )
        strange = float(self.background.foreground(lit).mean())
        if strange > self.most + _STRANGE:
            raise DataError(
                f"expected the scene of the demonstrations, found {strange:.0%} of the picture changed; has the camera "
                "moved, or is something in the way?"
            )

    def _new(self, picture: np.ndarray) -> float:
        """The fraction of a picture in colors that were never seen."""
        return 1 - float(self.colors[tuple(np.moveaxis(picture // _WIDTH, -1, 0))].mean())

    def _shift(self, picture: np.ndarray) -> float:
        """By how many pixels the background is elsewhere in a picture in its light; 0 unless that is obvious.

        Phase correlation (Kuglin and Hines, 1975) proposes a shift, which has to leave less in front of the background.
        """
        cv2, usual = opencv(), self.background.picture
        size = usual.shape[1::-1]
        (x, y), _ = cv2.phaseCorrelate(np.float64(usual.mean(axis=-1)), np.float64(picture.mean(axis=-1)))
        moved = np.array([[1, 0, x], [0, 1, y]])
        there = cv2.warpAffine(usual, moved, size, borderMode=cv2.BORDER_REPLICATE)
        inside = cv2.warpAffine(np.ones(usual.shape[:2], np.float32), moved, size) > 0.99
        before, after = (
            background.foreground(picture)[inside].sum()
            for background in (self.background, Background(there, self.background.noise))
        )
        return float(np.hypot(x, y)) if after < _EXPLAINED * before else 0.0

    def to_parts(self) -> tuple[dict[str, float], dict[str, np.ndarray]]:
        """What is saved: numbers, and arrays."""
        arrays = {"background": self.background.picture, "colors": np.packbits(self.colors)}
        return {"noise": self.background.noise, "most": self.most}, arrays

    @classmethod
    def from_parts(cls, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], shape: tuple[int, ...]) -> Self:
        """The inverse of `to_parts`, for pictures of a shape; raises `ValueError` or `LookupError` if unfit."""
        background, colors = arrays["background"], arrays["colors"]
        if background.shape != (*reduced_size(shape)[::-1], 3) or background.dtype != np.float32:
            raise ValueError(f"a background of {background.shape}")
        if colors.shape != (_BINS**3 // 8,) or colors.dtype != np.uint8 or not np.isfinite(background).all():
            raise ValueError(f"colors of {colors.shape}")
        seen = np.unpackbits(colors).astype(bool).reshape((_BINS,) * 3)
        return cls(Background(background, float(facts["noise"])), float(facts["most"]), seen)
