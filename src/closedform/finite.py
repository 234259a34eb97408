"""Finite: a check for NaN and infinity that is fast enough for every plan."""

from __future__ import annotations

import math

import numpy as np


def all_finite(array: np.ndarray) -> bool:
    """Whether every number is finite; a finite sum shows it at a third of the cost."""
    return math.isfinite(np.add.reduce(array, axis=None)) or bool(np.isfinite(array).all())
