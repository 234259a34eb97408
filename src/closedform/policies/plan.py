"""Plan: an action chunk together with the demonstrations behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from closedform.figures import html_table

_MOST_NAMED = 3  # demonstrations, where a plan is printed


class ReplicaState(NamedTuple):
    """How current the replica of a fleet's demonstrations was that a plan was made from.

    Attributes:
        rows: how many rows of the fleet's table it had seen.
        connected: whether the fleet's store was reached lately; if not, newer demonstrations may be missing.
        problem: what went wrong last; empty if nothing did.
        changed: how the model changed last because there were more or fewer demonstrations; empty if it did not.
    """

    rows: int
    connected: bool
    problem: str
    changed: str = ""


@dataclass(frozen=True)
class Plan:
    """The planned actions, and the demonstrations behind them.

    The chunk is the weighted average of the demonstrated chunks named by `episodes` and `steps`, each transferred in
    `frame`: its last diffusion step returns exactly that average.

    Attributes:
        actions: (N_a, D_a), in robot units.
        frame: the frame that the demonstrations were transferred in: `"world"`, a body, or `"body.position"`; with two
            hands, both, as in `"lid / trash"`.
        episodes: (m,), ids of the demonstrations' episodes, by decreasing weight.
        steps: (m,), the step at which each demonstrated chunk starts.
        weights: (m,), which sum to `1 - neural_share`.
        distance: to the nearest demonstrated observation, in units of the metric.
        neural_share: the weight of a network in the chunk.
        held: the grasped object that was transferred instead of the hand, or `""`; with two hands, as in
            `"nothing / hammer"`.
        shrinkage: how far the metric's covariance was shrunk toward a sphere; None if no metric was used.
        choice: (hands, 2), the frame and the grasped body of each hand, as numbered by the store.
        n_steps: diffusion steps taken; 0 for policies without diffusion.
        complete: whether all diffusion steps were taken before the deadline.
        copies: (m,), which copy of its episode each demonstration is where bodies are symmetric: 0 as it was recorded,
            else turned or mirrored; None if there was no demonstration to ask.
        replica: how current a fleet's demonstrations were; None if the policy has its own.
    """

    actions: np.ndarray
    frame: str
    episodes: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    distance: float
    neural_share: float = 0.0
    held: str = ""
    shrinkage: float | None = None
    choice: np.ndarray | None = None
    n_steps: int = 0
    complete: bool = True
    copies: np.ndarray | None = None
    replica: ReplicaState | None = None

    @property
    def n_effective(self) -> float:
        """The effective number of demonstrated chunks: 1 if one has all the weight, m if m share it equally."""
        return float(1 / np.sum(self.weights**2))

    @property
    def demonstrations(self) -> list[tuple[int, int, float]]:
        """The episode, step and weight of each demonstrated chunk as plain numbers, by decreasing weight."""
        return list(zip(self.episodes.tolist(), self.steps.tolist(), self.weights.tolist(), strict=True))

    def __repr__(self) -> str:
        n, size = self.actions.shape
        return f"Plan({n} actions of {size} numbers, {'; '.join(f'{k} {v}' for k, v in self._facts())})"

    def _repr_html_(self) -> str:
        """The plan in a notebook."""
        first = ", ".join(f"{number:.4g}" for number in self.actions[0])
        return html_table(f"A plan of {len(self.actions)} actions", [("first action", first), *self._facts()])

    def _facts(self) -> list[tuple[str, str]]:
        """What is worth knowing about it, in words."""
        named = [f"episode {e} step {s} ({w:.0%})" for e, s, w in self.demonstrations[:_MOST_NAMED]]
        more = len(self.weights) - len(named)
        facts = [("from", ", ".join(named) + (f" and {more} more" if more else ""))] if named else []
        facts += [("frame", self.frame)] if self.frame else []
        facts += [("grasping", self.held)] if self.held else []
        facts += [("network", f"{self.neural_share:.0%}")] if self.neural_share else []
        return [*facts, ("distance", f"{self.distance:.3g}")]
