"""Statistics: ranges and variances of columns, kept per episode so that adding and removing episodes is exact."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Statistics:
    """Column statistics of groups of rows.

    Attributes:
        count: (E,), rows in each group.
        low, high, mean: (E, D)
        scatter: (E, D), sum of squared deviations from the group's mean.
    """

    count: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, lengths: np.ndarray) -> Statistics:
        """Statistics of consecutive groups of `lengths` rows of `values` (N, D); empty groups count for nothing."""
        filled = lengths > 0
        starts = (np.cumsum(lengths) - lengths)[filled]
        width = values.shape[1]
        low = np.full((len(lengths), width), np.inf)
        high = np.full((len(lengths), width), -np.inf)
        mean, scatter = np.zeros((len(lengths), width)), np.zeros((len(lengths), width))
        if filled.any():
            count = lengths[filled][:, None]
            low[filled] = np.minimum.reduceat(values, starts)
            high[filled] = np.maximum.reduceat(values, starts)
            mean[filled] = np.add.reduceat(values, starts) / count
            deviations = values - np.repeat(mean[filled], lengths[filled], axis=0)
            with np.errstate(over="ignore"):
                scatter[filled] = np.add.reduceat(deviations * deviations, starts)
        return cls(np.asarray(lengths), low, high, mean, scatter)

    def append(self, other: Statistics) -> Statistics:
        """The groups of both."""
        pairs = zip(self._fields(), other._fields(), strict=True)
        return Statistics(*(np.concatenate([a, b]) for a, b in pairs))

    def pooled(self) -> Statistics:
        """All groups as one."""
        count = self.count.sum()
        mean = (self.count[:, None] * self.mean).sum(0) / max(count, 1)
        low, high = self.range
        return Statistics(count[None], low[None], high[None], mean[None], (self.variance * max(count, 1))[None])

    def without(self, other: Statistics) -> Statistics:
        """One group without the rows of another that are part of it; low and high stay."""
        count = self.count - other.count
        mean = (self.count[:, None] * self.mean - other.count[:, None] * other.mean) / np.maximum(count, 1)[:, None]
        between = other.count[:, None] * (self.mean - other.mean) * (mean - other.mean)
        scatter = np.maximum(self.scatter - other.scatter - between, 0)
        return Statistics(count, self.low, self.high, mean, scatter)

    def keep(self, mask: np.ndarray) -> Statistics:
        """Only the groups where `mask` is true."""
        return Statistics(*(field[mask] for field in self._fields()))

    @cached_property
    def range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of each column, over all groups."""
        return self.low.min(0), self.high.max(0)

    @cached_property
    def variance(self) -> np.ndarray:
        """The variance of each column, over all groups."""
        total = max(int(self.count.sum()), 1)
        mean = (self.count[:, None] * self.mean).sum(0) / total
        return (self.scatter + self.count[:, None] * (self.mean - mean) ** 2).sum(0) / total

    def _fields(self) -> tuple[np.ndarray, ...]:
        return self.count, self.low, self.high, self.mean, self.scatter


def half_ranges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Half the width of each range; 1 for constant columns, so that dividing by it is harmless."""
    return np.where(is_constant(low, high), 1.0, (high - low) / 2)


def is_constant(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Which ranges are empty up to rounding."""
    return (high - low) / 2 <= 1e-9 * np.maximum(np.abs(low), np.abs(high))
