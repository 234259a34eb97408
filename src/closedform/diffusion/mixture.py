"""Mixtures: the check that a plan is a mixture of demonstrated chunks."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-2  # of the range of chunks, by which rounding may take a mixture of many out of it
TINY = 1e-9  # of numbers, which may be all that they differ by


def is_mixture(samples: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """Whether all numbers of a sample are finite and within the range of the chunks. (n, D), (m, D) -> (n,)."""
    low, high = chunks.min(0), chunks.max(0)
    slack = ROUNDING * (high - low) + TINY * (1 + np.maximum(np.abs(low), np.abs(high)))
    return ((low - slack <= samples) & (samples <= high + slack)).all(-1)
