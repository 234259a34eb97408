"""Plan: an action chunk together with the demonstrations behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Plan:
    """What a policy means to do, and why.

    The chunk is the weighted average of the demonstrated chunks named by `episodes` and `steps`, each transferred in
    `frame`: its last diffusion step returns exactly that average.

    Attributes:
        actions: (N_a, D_a), in the robot's units.
        frame: the frame that the demonstrations were transferred in: `"world"`, a body, or `"body.position"`; of two
            hands both, as in `"lid / trash"`.
        episodes: (m,), ids of the demonstrations' episodes, those with most weight first.
        steps: (m,), the step at which each demonstrated chunk begins.
        weights: (m,), sums to one where no network has a share.
        distance: how far the nearest demonstrated observation was, in units of the metric.
        neural_share: how much of the chunk is a network's; the weights sum to the rest.
        held: what is in the hand, and was transferred in its place, or `""`; of two hands as in `"nothing / hammer"`.
        choice: (hands, 2), frame and body held of each hand, as the store numbers them.
        n_steps: diffusion steps that were taken; 0 for policies without diffusion.
        complete: whether that is all of them; not if a deadline came first.
    """

    actions: np.ndarray
    frame: str
    episodes: np.ndarray
    steps: np.ndarray
    weights: np.ndarray
    distance: float
    neural_share: float = 0.0
    held: str = ""
    choice: np.ndarray | None = None
    n_steps: int = 0
    complete: bool = True

    @property
    def n_effective(self) -> float:
        """The effective number of demonstrated chunks: 1 if one carries all weight, m if m share it equally."""
        return float(1 / np.sum(self.weights**2))
