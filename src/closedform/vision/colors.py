"""Color tables: how often a body has each color."""

from __future__ import annotations

import numpy as np

_BINS = 16  # per channel
_SHIFT = 4  # bits: 256 / 16
SHAPE = (_BINS, _BINS, _BINS)


def color_table(pixels: np.ndarray) -> np.ndarray:
    """Smoothed frequencies (16, 16, 16) of the colors of pixels (N, 3)."""
    counts = np.zeros(SHAPE, np.float32)
    np.add.at(counts, tuple((pixels.astype(np.uint8) >> _SHIFT).T), 1.0)
    for axis in range(3):
        padded = np.moveaxis(np.pad(counts, [(1, 1) if axis == other else (0, 0) for other in range(3)]), axis, 0)
        counts = np.moveaxis(0.25 * padded[:-2] + 0.5 * padded[1:-1] + 0.25 * padded[2:], 0, axis)
    return (counts / counts.sum()).astype(np.float32)


def frequencies(table: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """(H, W), how often the body has the color of each pixel."""
    bins = (picture.astype(np.uint8) >> _SHIFT).astype(np.intp)
    return table.ravel()[(bins[..., 0] * _BINS + bins[..., 1]) * _BINS + bins[..., 2]]
