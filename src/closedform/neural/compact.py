"""The weights of a network in a byte each, for networks that travel inside a package.

A block of 256 weights has a step, a hundredth of the largest of them, and each weight is stored as the nearest number
of steps: off by at most half a step. Compressed, that takes less than half of the space of half precision.
"""

from __future__ import annotations

import numpy as np

BLOCK = 256
LEVELS = 100


def compacted(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (n,) as numbers of steps (n,), int8, and the steps (ceil(n / 256),), float32."""
    blocks = np.pad(weights.astype(np.float32), (0, -len(weights) % BLOCK)).reshape(-1, BLOCK)
    steps = np.abs(blocks).max(axis=1) / np.float32(LEVELS)
    numbers = np.rint(blocks / np.where(steps > 0, steps, 1)[:, None])
    return numbers.astype(np.int8).ravel()[: len(weights)], steps


def expanded(numbers: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The inverse of `compacted`, up to rounding: weights (n,), float32."""
    return numbers * np.repeat(steps, BLOCK)[: len(numbers)]


def n_steps(n_weights: int) -> int:
    """How many steps there are for a number of weights."""
    return -(-n_weights // BLOCK)
