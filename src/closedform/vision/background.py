"""Background: what a fixed camera sees where nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from closedform.vision.pictures import opencv

_LEAST = 10.0  # of 255: smaller differences are never the foreground
_NOISES = 5.0  # standard deviations of a number of the background that are not the foreground either
_LIGHT = 1.0  # log of the largest change of brightness that is taken for one
_UNMOVED = 0.02  # of that difference, on average: as good as none
_EXPLAINED = 0.5  # of the difference that a shift must leave at most
_RAMP = 3.0  # times that difference is surely the foreground


@dataclass(frozen=True)
class Background:
    """The median of many pictures: bodies that move cover no place for long.

    Attributes:
        picture: (H, W, 3) of float32.
        noise: the standard deviation of its numbers, from picture to picture.
    """

    picture: np.ndarray
    noise: float

    @classmethod
    def learn(cls, pictures: Sequence[np.ndarray], masks: Sequence[np.ndarray] | None = None) -> Background:
        """The background of pictures (H, W, 3) that were taken at many different times.

        Args:
            pictures: of one fixed camera.
            masks: (H, W), not 0 where bodies are, if that is known: these pixels do not count unless they always are.
        """
        stack = np.stack(list(pictures))
        median = np.median(stack, axis=0).astype(np.float32)
        if masks is not None:
            hidden = np.stack(list(masks))[..., None] != 0
            free = np.where(hidden & ~hidden.all(axis=0), np.float32(np.nan), stack)
            median = np.nanmedian(free, axis=0).astype(np.float32)
        deviation = [np.median(np.abs(one - median)) for one in stack]
        return cls(median, float(1.4826 * np.median(deviation)))

    def revealed(self, pictures: Sequence[np.ndarray], regions: Sequence[tuple[int, np.ndarray]]) -> Background:
        """The background with what regions of pictures show, which a body hides in most of the others.

        Args:
            pictures: in its light.
            regions: the number of a picture, and where (H, W) in it the background is seen.
        """
        where, picture = np.any([mask for _, mask in regions], axis=0), self.picture.copy()
        seen = [np.where(mask[where, None], pictures[number][where], np.nan) for number, mask in regions]
        picture[where] = np.nanmedian(np.stack(seen), axis=0)
        return Background(picture, self.noise)

    @property
    def least(self) -> float:
        """The difference from which on a pixel may belong to the foreground."""
        return max(_LEAST, _NOISES * self.noise)

    def lit(self, picture: np.ndarray) -> np.ndarray:
        """A picture in the light of the background, (H, W, 3) of float32: most of its pixels are of it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.nanmedian(picture / self.picture, axis=(0, 1))
        usable = np.isfinite(gain) & (np.abs(np.log(np.maximum(gain, 1e-6))) < _LIGHT)
        return np.clip(picture / np.where(usable, gain, 1), 0, 255).astype(np.float32)

    def shift(self, picture: np.ndarray, free: np.ndarray) -> np.ndarray:
        """(2,), by how many pixels in x and y the background is elsewhere in a picture; 0 unless that is obvious.

        Phase correlation (Kuglin and Hines, 1975) proposes a shift, which has to explain the picture much better.

        Args:
            picture: in its light.
            free: (H, W), where no body hides it.
        """
        cv2 = opencv()
        here = np.where(free[..., None], picture, self.picture).mean(axis=-1)
        usual = self.picture.mean(axis=-1)
        rest = np.abs(here - usual)[free].mean() if free.any() else 0.0
        if rest < _UNMOVED * self.least:
            return np.zeros(2)
        (x, y), _ = cv2.phaseCorrelate(np.float64(usual), np.float64(here))
        moved = np.array([[1, 0, x], [0, 1, y]])
        there = cv2.warpAffine(usual, moved, usual.shape[::-1], borderMode=cv2.BORDER_REPLICATE)
        inside = free & (cv2.warpAffine(np.ones_like(usual), moved, usual.shape[::-1]) > 0.99)
        if not inside.any() or np.abs(here - there)[inside].mean() > _EXPLAINED * np.abs(here - usual)[inside].mean():
            return np.zeros(2)
        return np.array([x, y])

    def foreground(self, picture: np.ndarray) -> np.ndarray:
        """(H, W), how sure it is that pixels of a picture in its light differ from the background: 0 to 1."""
        difference = np.abs(picture - self.picture).max(axis=-1)
        return np.clip((difference - self.least) / ((_RAMP - 1) * self.least), 0, 1)
