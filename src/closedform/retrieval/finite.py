"""Finite: the check that arrays are, fast enough for every plan."""

from __future__ import annotations

import math

import numpy as np


def all_finite(array: np.ndarray) -> bool:
    """Whether every number is finite; a finite sum says so at a third of the cost."""
    return math.isfinite(np.add.reduce(array, axis=None)) or bool(np.isfinite(array).all())
