"""Readout: numbers from the maps of an encoder, where they differ from the scene's usual ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from closedform.vision.encoder import Encoder
from closedform.vision.encoders import ENCODERS
from closedform.vision.pictures import opencv

_NOISES = 5.0  # standard deviations of a map's numbers that are not a difference
_EMPTY = 0.02  # of the usual sum of a map's differences: less than that has no place
_FAINT = 1e-3  # of the largest of these sums: maps that never differ more have no place either
_POWERS = [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3)]  # of x and y


@dataclass(frozen=True)
class Readout:
    """Moments of maps, or their averages on a grid.

    A map that is more than usual somewhere, and one that is less, count as two. Their moments say how much there is, at
    which place on average, and, around it, how it is spread: if a thing in the picture moves, its place moves with it,
    and if it turns, its moments turn with it. They keep geometry, and nothing is learned for that. Hu (1962), "Visual
    pattern recognition by moment invariants"; of the first order they are the expected positions of Finn et al. (2016),
    "Deep spatial autoencoders for visuomotor learning".

    Attributes:
        encoder: makes the maps.
        usual: (C, h, w), the median of the maps.
        least: (C,), the smallest difference from it that counts.
        mass: (2 C,), the mean sum of differences, upward and downward.
        order: of the largest moments, 1 to 3; 0 for averages on a grid.
        grid: cells of the grid along each side.
    """

    encoder: Encoder
    usual: np.ndarray
    least: np.ndarray
    mass: np.ndarray
    order: int = 3
    grid: int = 6

    @classmethod
    def learn(cls, encoder: Encoder, pictures: np.ndarray, order: int = 3, grid: int = 6) -> Self:
        """Learns what is usual from pictures (N, H, W, 3)."""
        maps = np.concatenate([encoder(one[None]) for one in pictures])
        usual = np.median(maps, axis=0)
        noise = 1.4826 * np.median(np.abs(maps - usual), axis=(0, 2, 3))
        bare = cls(encoder, usual, (_NOISES * noise).astype(np.float32), np.ones(2 * len(usual)), order, grid)
        mass = np.mean([bare.differences(one[None])[0].sum(axis=(1, 2)) for one in pictures], axis=0)
        return cls(encoder, usual, bare.least, np.maximum(mass, _FAINT * mass.max()), order, grid)

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """(N, H, W, 3) of uint8 -> (N, F) of float64."""
        if self.order == 0:
            return self._averages(pictures)
        parts = self.differences(pictures)
        n, c, height, width = parts.shape
        sums = parts.reshape(n, c, height * width) @ self._powers[: height * width]
        mass = np.maximum(sums[..., 0], 0)
        raw = sums[..., 1:] / (mass + _EMPTY * self.mass)[..., None]
        share = mass / self.mass
        return np.concatenate([share[..., None], _central(raw, self.order)], axis=-1).reshape(n, -1)

    def differences(self, pictures: np.ndarray) -> np.ndarray:
        """(N, 2 C, h, w), by how much maps exceed what is usual, and then by how much they fall short of it."""
        away = self.encoder(pictures) - self.usual
        least = self.least[:, None, None]
        return np.concatenate([np.maximum(away - least, 0), np.maximum(-away - least, 0)], axis=1)

    def _averages(self, pictures: np.ndarray) -> np.ndarray:
        cv2, away = opencv(), self.encoder(pictures) - self.usual
        size = min(self.grid, *away.shape[2:])
        return np.stack(
            [[cv2.resize(one, (size, size), interpolation=cv2.INTER_AREA) for one in maps] for maps in away]
        ).reshape(len(away), -1)

    @cached_property
    def _powers(self) -> np.ndarray:
        """(h w, 10), powers of the places of a map's pixels, which go from -1 to 1."""
        height, width = self.usual.shape[1:]
        y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
        return np.stack([(x**i * y**j).ravel() for i, j in _POWERS], axis=1)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is saved: a dictionary for JSON, and arrays."""
        facts, arrays = self.encoder.to_parts()
        own = {"usual": self.usual, "least": self.least, "mass": self.mass}
        return {**facts, "encoder": self.encoder.kind, "order": self.order, "grid": self.grid}, {**arrays, **own}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """The inverse of `to_parts`."""
        order, grid = int(facts["order"]), int(facts["grid"])
        usual, least, mass = (arrays[name] for name in ("usual", "least", "mass"))
        if usual.ndim != 3 or least.shape != (len(usual),) or mass.shape != (2 * len(usual),):
            raise ValueError(f"maps of {usual.shape}, {least.shape} and {mass.shape}")
        if not 0 <= order <= 3 or not 0 < grid <= 1000:
            raise ValueError(f"order {order} and grid {grid}")
        return cls(ENCODERS[facts["encoder"]].from_parts(facts, arrays), usual, least, mass, order, grid)


def _central(raw: np.ndarray, order: int) -> np.ndarray:
    """Moments about the mean, from moments (..., 9) about 0 of the orders 1 to 3."""
    x, y, xx, xy, yy, xxx, xxy, xyy, yyy = np.moveaxis(raw, -1, 0)
    moments = [x, y]
    if order > 1:
        moments += [xx - x * x, xy - x * y, yy - y * y]
    if order > 2:
        moments += [
            xxx - 3 * x * xx + 2 * x**3,
            xxy - 2 * x * xy - y * xx + 2 * x * x * y,
            xyy - 2 * y * xy - x * yy + 2 * x * y * y,
            yyy - 3 * y * yy + 2 * y**3,
        ]
    return np.stack(moments, axis=-1)
