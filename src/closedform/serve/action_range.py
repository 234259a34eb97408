"""ActionRange: how far actions may lie from the demonstrated ones to be served."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.geometry.layout import ROTATIONS, Layout
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.rewrites.targets import Targets
from closedform.store.model import Model

FAR = 10.0  # widths of the demonstrated range; objects elsewhere move actions by about one


@dataclass(frozen=True)
class ActionRange:
    """The demonstrated actions, and everything within some widths of their range.

    Attributes:
        layout: of an action.
        low, high: (D_a,), the demonstrated range.
        reach: (D_a,), how far beyond it an action may lie: a multiple of the widest range of its entry, and at least of
            a turn for rotations.
        model: whose demonstrations they are.
    """

    layout: Layout
    low: np.ndarray
    high: np.ndarray
    reach: np.ndarray
    model: Model

    @classmethod
    def of(cls, policy: DemonstrationPolicy[Any]) -> ActionRange:
        """The range of a policy's demonstrations."""
        model, layout = policy.model, policy.action_layout
        if model.spec.rewrites.find(Targets) is None:
            low, high = model.store.action_range
        else:  # the store has the targets that displacements command
            actions = [episode.actions for episode in model.store.recorded if len(episode)]
            low, high = (bound([bound(each, axis=0) for each in actions], axis=0) for bound in (np.min, np.max))
        width = np.zeros(layout.width)
        for entry, columns in layout.slices():
            width[columns] = max((high[columns] - low[columns]).max(), 2 * math.pi if entry.kind in ROTATIONS else 0.0)
        width[width == 0] = width.max() or 1.0
        return cls(layout, low, high, FAR * width, model)

    def problem(self, actions: np.ndarray) -> str | None:
        """What is wrong with actions (N_a, D_a) far outside of it; None if none is."""
        beyond = (actions < self.low - self.reach) | (actions > self.high + self.reach)
        if not beyond.any():
            return None
        row, column = np.argwhere(beyond)[0]
        return (
            f"{self.layout.describe(column)} of the planned action is {actions[row, column]:.4g}, far outside the "
            f"demonstrated range, {self.low[column]:.4g} to {self.high[column]:.4g}"
        )
