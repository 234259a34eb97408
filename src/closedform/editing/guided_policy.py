"""GuidedPolicy: a neural policy guided toward the behavior of some demonstrations."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from closedform.editing.edited_policy import EditedPolicy, nearest_rows
from closedform.editing.guided import Guided
from closedform.errors import ConfigError
from closedform.neural.policy import NeuralPolicy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.randomness import Streams
from closedform.weights.metric import squared_distances


class GuidedPolicy(EditedPolicy):
    """A neural policy guided toward the behavior of some demonstrations (Algorithm algo:cfdp_cfg).

    Args:
        neural: the trained policy.
        conditional: demonstrations of the wanted behavior (`demonstrations_for`).
        unconditional: all demonstrations, including those of the wanted behavior.
        w: the strength of guidance.
        off_below: the noise level at and below which there is no guidance. Both defaults were best on Push-T.
    """

    edit: ClassVar[str] = "guide"
    parts: ClassVar[tuple[str, ...]] = ("conditional", "unconditional")

    def __init__(
        self,
        neural: NeuralPolicy,
        conditional: ClosedFormPolicy,
        unconditional: ClosedFormPolicy,
        *,
        w: float = 0.5,
        off_below: float = 2.0,
    ):
        super().__init__(neural, {"conditional": conditional, "unconditional": unconditional})
        Guided.check(w, off_below)
        if off_below >= neural.config.n_diffusion_steps:
            n = neural.config.n_diffusion_steps
            raise ConfigError(f"off_below: expected less than the {n} noise levels of the policy, found {off_below!r}")
        self.w, self.off_below = w, off_below

    @property
    def parameters(self) -> dict[str, float | bool]:
        """The strength of guidance, and where it ends."""
        return {"w": self.w, "off_below": self.off_below}

    def denoiser(self, windows: np.ndarray, rng: Streams) -> Guided:
        """The guided denoiser.

        Both closed forms use the same perturbations and the metric of all demonstrations, so that they cancel if both
        have all demonstrations. Perturbations come from a separate random stream: without guidance the samples are the
        neural policy's to the last bit.
        """
        conditional, everything = (self.demonstrations[name] for name in self.parts)
        shifts = self.perturbations(conditional, rng.spawn())
        queries, all_rows = nearest_rows(everything, windows)
        with np.errstate(over="ignore", invalid="ignore"):  # `closed_form` checks it
            near = [_features(everything, rows, everything) for rows in all_rows]
            factors = [everything.model.kernel.local_factor(features) for features in near]
            _, wanted_rows = nearest_rows(conditional, windows)
            wanted = [_features(conditional, rows, everything) for rows in wanted_rows]
            forms = []
            for policy, rows, found in ((conditional, wanted_rows, wanted), (everything, all_rows, near)):
                squared = [squared_distances(*each) for each in zip(found, queries, factors, strict=True)]
                width = 2 * policy.model.kernel.h**2
                forms.append(self.closed_form(policy, rows, [-(d - d.min()) / width for d in squared], shifts))
        neural = self.neural.denoiser(self.neural.features_of(windows))
        return Guided(neural, forms[0], forms[1], self.w, self.off_below)


def _features(policy: ClosedFormPolicy, rows: np.ndarray, like: ClosedFormPolicy) -> np.ndarray:
    """The features (k, D_z) of some of a policy's rows, in the units of another."""
    own, other = policy.model.kernel, like.model.kernel
    features = policy.model.features_at(rows)
    if np.array_equal(own.scale, other.scale) and np.array_equal(own.offset, other.offset):
        return features  # unchanged to the last bit
    return (features / own.scale + own.offset - other.offset) * other.scale
