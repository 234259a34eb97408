"""GuidedPolicy: for a policy that goes the wrong way round."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from closedform.editing.edited_policy import EditedPolicy, neighbourhoods
from closedform.editing.guided import Guided
from closedform.neural.policy import NeuralPolicy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.randomness import Streams


class GuidedPolicy(EditedPolicy):
    """A neural policy steered towards what some demonstrations do (Algorithm algo:cfdp_cfg).

    Args:
        neural: the trained policy.
        conditional: demonstrations of what is wanted (`demonstrations_for`).
        unconditional: demonstrations of everything, what is wanted among it.
        w: the strength of guidance.
        off_below: the noise level at and below which there is none.
    """

    edit: ClassVar[str] = "guide"
    parts: ClassVar[tuple[str, ...]] = ("conditional", "unconditional")

    def __init__(
        self,
        neural: NeuralPolicy,
        conditional: ClosedFormPolicy,
        unconditional: ClosedFormPolicy,
        *,
        w: float,
        off_below: float = 0.0,
    ):
        super().__init__(neural, {"conditional": conditional, "unconditional": unconditional})
        Guided.check(w, off_below)
        self.w, self.off_below = w, off_below

    @property
    def parameters(self) -> dict[str, float]:
        """The strength of guidance, and where it ends."""
        return {"w": self.w, "off_below": self.off_below}

    def denoiser(self, windows: np.ndarray, rng: Streams) -> Guided:
        """The guided denoiser; both closed forms have the same perturbations, so that equal data guide nowhere.

        They come from a stream of their own: without guidance the samples are the neural policy's to the last bit.
        """
        neural = self.neural.denoiser(self.neural.features_of(windows))
        shifts = self.perturbations(self.demonstrations["conditional"], rng.spawn())
        forms = []
        for policy in self.demonstrations.values():
            near, h = neighbourhoods(policy, windows), policy._bandwidth(policy._store.feature_scale)
            log_weights = [-(one.squared_distances - one.squared_distances.min()) / (2 * h**2) for one in near]
            forms.append(self.closed_form(policy, near, log_weights, shifts))
        return Guided(neural, forms[0], forms[1], self.w, self.off_below)
