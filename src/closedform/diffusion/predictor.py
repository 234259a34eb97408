"""Predictor: a denoiser from any function that predicts noise, clean chunks or velocities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from array_api_compat import array_namespace

from closedform.diffusion.process import Process
from closedform.errors import ConfigError

Array = Any


@dataclass(frozen=True)
class Predictor:
    """A denoiser around a function, usually a network.

    Samples are in the function's own normalization; the caller normalizes and denormalizes actions.

    Attributes:
        process: the noising process that the function was trained on.
        predict: `predict(a_s, s)`, shaped like a_s (..., n, D).
        kind: what it predicts: `epsilon` (the noise), `denoised` (the clean chunk) or `velocity`.
        bound: clean chunks are clipped to [-bound, bound]; None to not clip. Near pure noise, errors in epsilon are
            amplified without limit, and clipping keeps chunks within the range of actions (Ho et al., 2020).
    """

    process: Process
    predict: Callable[[Array, float], Array]
    kind: Literal["epsilon", "denoised", "velocity"] = "epsilon"
    bound: float | None = None

    def __post_init__(self):
        if self.kind not in ("epsilon", "denoised", "velocity"):
            raise ConfigError(f"kind: expected epsilon, denoised or velocity, found {self.kind!r}")
        if self.bound is not None and not self.bound > 0:
            raise ConfigError(f"bound: expected a positive number or None, found {self.bound!r}")

    def __call__(self, a_s: Array, s: float) -> Array:
        """E[a_0 | a_s] of the samples a_s (..., n, D)."""
        predicted = self.predict(a_s, s)
        if self.kind == "epsilon":
            predicted = self.process.denoised_from_epsilon(predicted, a_s, s)
        elif self.kind == "velocity":
            predicted = self.process.denoised_from_velocity(predicted, a_s, s)
        if self.bound is None:
            return predicted
        return array_namespace(predicted).clip(predicted, -self.bound, self.bound)
