"""Background: what a fixed camera sees where nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LEAST = 10.0  # of 255: smaller differences are never the foreground
_NOISES = 5.0  # standard deviations of a number of the background that are not the foreground either
_LIGHT = 1.0  # log of the largest change of brightness that is taken for one
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
    def learn(cls, pictures: Sequence[np.ndarray]) -> Background:
        """The background of pictures (H, W, 3) that were taken at many different times."""
        stack = np.stack(list(pictures))
        median = np.median(stack, axis=0).astype(np.float32)
        deviation = [np.median(np.abs(one - median)) for one in stack]
        return cls(median, float(1.4826 * np.median(deviation)))

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

    def foreground(self, picture: np.ndarray) -> np.ndarray:
        """(H, W), how sure it is that pixels of a picture in its light differ from the background: 0 to 1."""
        difference = np.abs(picture - self.picture).max(axis=-1)
        return np.clip((difference - self.least) / ((_RAMP - 1) * self.least), 0, 1)
