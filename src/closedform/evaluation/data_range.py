"""DataRange: whether observations leave the range of the demonstrations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.policy import Policy
from closedform.weights.feature_map import FeatureMap, GeometricFeatures, IdentityFeatures

MARGIN = 0.1  # of the range, beyond which a number is outside; slight extrapolation is not
ROUNDING = 1e-6  # of the largest number, up to which a constant may differ


@dataclass(frozen=True)
class DataRange:
    """The range of each number that a policy compares, over all of its demonstrations.

    Attributes:
        feature_map: from observations to these numbers.
        low, high: (n,), including a margin.
        names: the layout entry of each number.
    """

    feature_map: FeatureMap
    low: np.ndarray
    high: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, policy: Policy[Any]) -> DataRange | None:
        """The range of a policy; None if it has no demonstrations, or custom features."""
        if not isinstance(policy, DemonstrationPolicy):
            return None
        feature_map, layout = policy.model.kernel.spec.feature_map, policy.observation_layout
        if isinstance(feature_map, GeometricFeatures):
            slices = zip(layout.slices(), feature_map.encoding.slices(), strict=True)
            sizes = [(own.start, entry.size, c.stop - c.start) for (entry, own), (_, c) in slices]
            # An encoded angle has more numbers than the angle itself; all belong to that entry.
            names = [layout.describe(start + i * (n == size)) for start, size, n in sizes for i in range(n)]
        elif isinstance(feature_map, IdentityFeatures):
            names = [layout.describe(column) for column in layout.used_columns]
        else:
            return None
        low, high = (bound[-len(names) :] for bound in policy.store.feature_statistics.range)
        margin = MARGIN * (high - low) + ROUNDING * np.maximum(np.abs(low), np.abs(high)) + 1e-12
        return cls(feature_map, low - margin, high + margin, tuple(names))

    def outside(self, observations: np.ndarray) -> tuple[float, str | None]:
        """The fraction of observations (n, D_o) with a number outside, and the entry that is outside most often."""
        numbers = self.feature_map.lift(np.asarray(observations, np.float64)[:, None])
        beyond = (numbers < self.low) | (numbers > self.high)
        if not beyond.any():
            return 0.0, None
        return float(beyond.any(1).mean()), self.names[int(beyond.sum(0).argmax())]
