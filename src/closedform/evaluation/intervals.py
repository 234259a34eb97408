"""Intervals: the uncertainty of means over episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_N_RESAMPLES = 10_000
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """A mean over episodes with its 95% interval, from low to high."""

    mean: float
    low: float
    high: float

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Interval:
        """Reads a checked field of a results file."""
        return cls(content["mean"], *content["ci95"])

    def to_json(self) -> dict[str, Any]:
        """The field for a results file."""
        return {"mean": self.mean, "ci95": [self.low, self.high]}

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap_ci95(values: np.ndarray) -> tuple[float, float]:
    """The 95% interval of a mean by the percentile bootstrap; the same values always give the same interval."""
    values = np.asarray(values, np.float64)
    rng = np.random.default_rng(0)
    means = np.concatenate([rng.choice(values, (500, len(values))).mean(1) for _ in range(_N_RESAMPLES // 500)])
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def wilson_ci95(n_successes: int, n: int) -> tuple[float, float]:
    """The 95% interval of a rate (Wilson, 1927), which stays within [0, 1] and has a width even at 0 and 1."""
    rate, z2 = n_successes / n, _Z95**2
    center = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, center - half), min(1.0, center + half)


def ratio_ci95(parts: np.ndarray, wholes: np.ndarray) -> tuple[float, float]:
    """The 95% interval of sum(parts) / sum(wholes), by the bootstrap over episodes: events in one are correlated."""
    rng, sums = np.random.default_rng(0), []
    for _ in range(_N_RESAMPLES // 500):
        rows = rng.integers(len(parts), size=(500, len(parts)))
        sums.append(np.asarray(parts)[rows].sum(1) / np.maximum(np.asarray(wholes)[rows].sum(1), 1e-12))
    low, high = np.quantile(np.concatenate(sums), (0.025, 0.975))
    return float(low), float(high)
