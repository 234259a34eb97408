"""Guided: a neural denoiser steered by two closed-form ones (the paper's "Data-driven Policy Guidance")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from closedform.diffusion.denoiser import Denoiser
from closedform.errors import ConfigError

Array = Any


@dataclass(frozen=True)
class Guided:
    """Classifier-free guidance whose classifier is data (eq:cfdp_cfg).

    The guided score is the neural one plus w times the difference between the conditional and the unconditional closed
    form. All three are scores of the same process at the same sample, and the weights 1, w and -w sum to one, so the
    same holds for the denoised samples, which are what is computed.

    Attributes:
        neural: the denoiser to be steered.
        conditional: the closed form of the demonstrations that meet the condition.
        unconditional: the closed form of all demonstrations.
        w: the strength of guidance; 0 leaves the neural denoiser as it is.
        off_below: the time at and below which there is no guidance. Near the end the neural denoiser is more accurate,
            and if it lacks the wanted mode, the closed-form scores would pull without limit.
    """

    neural: Denoiser
    conditional: Denoiser
    unconditional: Denoiser
    w: float
    off_below: float = 0.0

    def __post_init__(self):
        self.check(self.w, self.off_below)

    @staticmethod
    def check(w: float, off_below: float) -> None:
        """Refuses invalid values of the two parameters."""
        if not 0 <= w <= 1e6:
            raise ConfigError(f"w: expected 0 to 1e6, found {w!r}")
        if not off_below >= 0:
            raise ConfigError(f"off_below: expected a time of 0 or more, found {off_below!r}")

    def __call__(self, a_s: Array, s: float) -> Array:
        """E[a_0 | a_s] of the samples a_s (..., n, D), guided."""
        denoised = self.neural(a_s, s)
        if not self.w or s <= self.off_below:
            return denoised
        return denoised + self.w * (self.conditional(a_s, s) - self.unconditional(a_s, s))
