"""Plan: an action chunk together with the demonstrations behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class ReplicaState(NamedTuple):
    """How current the replica of a fleet's demonstrations was that a plan was made from.

    Attributes:
        rows: how many rows of the fleet's table it had seen.
        connected: whether the fleet's store was reached lately; if not, newer demonstrations may be missing.
        problem: what went wrong last; empty if nothing did.
    """

    rows: int
    connected: bool
    problem: str


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
        images: (m,), which image of its episode each demonstration is where bodies are symmetric: 0 as it was recorded,
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
    images: np.ndarray | None = None
    replica: ReplicaState | None = None

    @property
    def n_effective(self) -> float:
        """The effective number of demonstrated chunks: 1 if one has all the weight, m if m share it equally."""
        return float(1 / np.sum(self.weights**2))
