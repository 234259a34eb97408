"""Similarity: from pixels to the units in which positions are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Similarity:
    """A turn, a scale, a shift and possibly a mirror image of the plane.

    Attributes:
        matrix: (2, 2), a multiple of a rotation or of a reflection.
        shift: (2,)
        error: the root mean square distance of what it was fitted to, in the units of the result.
    """

    matrix: np.ndarray
    shift: np.ndarray
    error: float = 0.0

    @classmethod
    def fit(cls, pixels: np.ndarray, positions: np.ndarray) -> Similarity:
        """The best one between points (N, 2) in pixels and the same points in other units.

        Umeyama (1991), "Least-squares estimation of transformation parameters between two point patterns".
        """
        a, b = pixels - pixels.mean(axis=0), positions - positions.mean(axis=0)
        left, sizes, right = np.linalg.svd(b.T @ a)
        matrix = left @ right * (sizes.sum() / max(np.square(a).sum(), 1e-12))
        shift = positions.mean(axis=0) - matrix @ pixels.mean(axis=0)
        error = np.sqrt(np.square(pixels @ matrix.T + shift - positions).sum(axis=1).mean())
        return cls(matrix, shift, float(error))

    @property
    def mirrored(self) -> bool:
        """Whether angles change their sign, as they do if one y points up and the other down."""
        return bool(np.linalg.det(self.matrix) < 0)

    @property
    def scale(self) -> float:
        """What a pixel is worth in the other units."""
        return float(np.sqrt(abs(np.linalg.det(self.matrix))))

    def position(self, pixels: np.ndarray) -> np.ndarray:
        """A position (..., 2) in the other units."""
        return np.asarray(pixels) @ self.matrix.T + self.shift

    def angle(self, angle: float) -> float:
        """An angle as seen in the other units."""
        direction = self.matrix @ (np.cos(angle), np.sin(angle))
        return float(np.arctan2(direction[1], direction[0]))
