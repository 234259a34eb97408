"""ColorShares: how much each pixel has each color of a palette."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from closedform.vision.encoder import Encoder

_SOFT = 600.0  # squared distance, in levels of 255, over which a color fades into another
_N_ROUNDS = 20  # of k-means
_MOST = 20_000  # pixels that a palette is learned from


@dataclass(frozen=True)
class ColorShares(Encoder):
    """How much each pixel has each color of a palette, found by k-means.

    Attributes:
        palette: (C, 3), in levels of 255.
    """

    kind: ClassVar[str] = "colors"
    palette: np.ndarray

    @classmethod
    def learn(cls, pictures: np.ndarray, n_colors: int = 8) -> Self:
        """The colors of what differs from the median of the pictures, and of the median itself."""
        median = np.median(pictures, axis=0)
        rare = np.abs(pictures - median).max(axis=-1) > np.sqrt(_SOFT)
        samples = [pictures[rare], median.reshape(-1, 3)]
        rng = np.random.default_rng(0)
        chosen = [some[rng.permutation(len(some))[: _MOST // 2]] for some in samples if len(some)]
        return cls(_k_means(np.concatenate(chosen).astype(np.float32), n_colors, rng))

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """Shares that add up to 1."""
        palette = self.palette
        logits = (pictures.astype(np.float32) @ palette.T - 0.5 * np.square(palette).sum(axis=1)) * (2 / _SOFT)
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.moveaxis(shares / shares.sum(axis=-1, keepdims=True), -1, 1)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The palette."""
        return {}, {"palette": self.palette}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """The inverse of `to_parts`."""
        palette = arrays["palette"]
        if palette.ndim != 2 or palette.shape[1] != 3 or not np.isfinite(palette).all():
            raise ValueError(f"a palette of {palette.shape}")
        return cls(palette.astype(np.float32))


def _k_means(points: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """(k, D), centers that start far from each other (Arthur and Vassilvitskii, 2007, "k-means++")."""
    centers: list[np.ndarray] = [points[0]]
    for _ in range(k - 1):
        far = np.min([np.square(points - center).sum(axis=1) for center in centers], axis=0) + 1e-6
        centers.append(points[rng.choice(len(points), p=far / far.sum())])
    found = np.stack(centers)
    for _ in range(_N_ROUNDS):
        nearest = (np.square(found).sum(axis=1) - 2 * points @ found.T).argmin(axis=1)
        found = np.stack([points[nearest == i].mean(axis=0) if np.any(nearest == i) else found[i] for i in range(k)])
    return found
