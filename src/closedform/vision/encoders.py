"""Encoders that need no training, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from closedform.errors import ConfigError
from closedform.vision.color_shares import ColorShares
from closedform.vision.encoder import Encoder
from closedform.vision.pictures import opencv
from closedform.vision.torch_encoder import Lite0

_SIZE, _STRIDE = 7, 2  # of random filters, in pixels


@dataclass(frozen=True)
class Pixels(Encoder):
    """The pictures themselves, from 0 to 1 and blurred."""

    kind: ClassVar[str] = "pixels"
    blur: float = 4.0

    @classmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """The same for all pictures."""
        return cls()

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """Three maps."""
        cv2 = opencv()
        blurred = [cv2.GaussianBlur(one.astype(np.float32), (0, 0), self.blur) for one in pictures]
        return np.moveaxis(np.stack(blurred), -1, 1) / 255


@dataclass(frozen=True)
class Edges(Encoder):
    """How much a color increases in each of eight directions."""

    kind: ClassVar[str] = "edges"
    n_directions: int = 8

    @classmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """The same for all pictures."""
        return cls()

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """A map for each color and direction."""
        cv2, maps = opencv(), []
        angles = np.arange(self.n_directions) * (2 * np.pi / self.n_directions)
        for one in pictures:
            smooth = cv2.blur(one.astype(np.float32) / 255, (3, 3))
            along_x, along_y = cv2.Sobel(smooth, cv2.CV_32F, 1, 0), cv2.Sobel(smooth, cv2.CV_32F, 0, 1)
            maps.append(np.concatenate([np.maximum(np.cos(a) * along_x + np.sin(a) * along_y, 0) for a in angles], -1))
        return np.moveaxis(np.stack(maps), -1, 1).astype(np.float32)


@dataclass(frozen=True)
class RandomFilters(Encoder):
    """Random linear filters, always the same, of which the positive part counts."""

    kind: ClassVar[str] = "random"
    n_filters: int = 48

    @classmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """The same for all pictures."""
        return cls()

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """A map of half the size for each filter."""
        filters = np.random.default_rng(0).standard_normal((3 * _SIZE * _SIZE, self.n_filters)).astype(np.float32)
        filters -= filters.mean(axis=0)
        windows = np.lib.stride_tricks.sliding_window_view(pictures, (_SIZE, _SIZE), axis=(1, 2))
        windows = windows[:, ::_STRIDE, ::_STRIDE].astype(np.float32) / 255
        return np.moveaxis(np.maximum(windows.reshape(*windows.shape[:3], -1) @ filters, 0), -1, 1)


ENCODERS: dict[str, type[Encoder]] = {one.kind: one for one in (ColorShares, Pixels, Edges, RandomFilters, Lite0)}


def make_encoder(name: str, pictures: Sequence[np.ndarray] | np.ndarray) -> Encoder:
    """The encoder of a name, such as `colors` or `lite0`, for pictures like these."""
    if name not in ENCODERS:
        raise ConfigError(f"expected an encoder of {', '.join(ENCODERS)}, found {name!r}")
    return ENCODERS[name].learn(np.stack(list(pictures)))
