"""Mixtures: the check that a plan is a mixture of demonstrated chunks."""

from __future__ import annotations

import numpy as np

ROUNDING = 1e-2  # of the range of chunks: how far rounding may move a mixture beyond it
TINY = 1e-9  # of the numbers themselves, in case their range is tiny


def is_mixture(samples: np.ndarray, chunks: np.ndarray) -> np.ndarray:
    """Whether all numbers of a sample are finite and within the range of the chunks. (n, D), (m, D) -> (n,)."""
    low, high = chunks.min(0), chunks.max(0)
    slack = ROUNDING * (high - low) + TINY * (1 + np.maximum(np.abs(low), np.abs(high)))
    return ((low - slack <= samples) & (samples <= high + slack)).all(-1)
