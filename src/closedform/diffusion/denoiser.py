"""The closed-form denoiser: E[a_0 | a_s, o] computed from the demonstrations themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace

from closedform.diffusion.process import Process

Array = Any


class Denoiser(Protocol):
    """Anything that estimates the clean chunk: `denoiser(a_s, s)` is E[a_0 | a_s], shaped like `a_s`."""

    def __call__(self, a_s: Array, s: float) -> Array:
        """Denoises the samples `a_s` (..., n, D) at time `s`."""
        ...


@dataclass(frozen=True)
class ClosedForm:
    """The closed-form denoiser of a set of demonstrated chunks.

    Without weights and perturbations it is unconditional (eq:CF-Score), with `log_weights` conditional
    (eq:cond_kernel), and with `perturbations` also Monte Carlo smoothed (eq:smoothed_cond_kernel). The paper's
    k(a_s, z) is the gain times the returned chunk.

    Attributes:
        process: the noising process.
        actions: (..., k, D), the demonstrated chunks.
        log_weights: (..., k), log K_h(z - z_i) up to a constant, or None for equal weights.
        perturbations: (..., M, D), draws of N(0, tau^2 I), or None for no smoothing.
    """

    process: Process
    actions: Array
    log_weights: Array | None = None
    perturbations: Array | None = None

    def __call__(self, a_s: Array, s: float) -> Array:
        """E[a_0 | a_s, o] of the samples a_s (..., n, D)."""
        return self.weights(a_s, s) @ self.actions

    def weights(self, a_s: Array, s: float) -> Array:
        """The weight of each demonstration in the denoised chunk, (..., n, k); the weights of a sample sum to one."""
        xp = array_namespace(self.actions, a_s)
        gain, variance = self.process.gain(s), self.process.noise(s) ** 2
        # Logits times sigma^2, up to what is the same for every demonstration. Distances are measured from the mean
        # chunk: far from the origin the products below would cancel catastrophically in float32.
        center = xp.mean(self.actions, axis=-2, keepdims=True)
        actions = self.actions - center
        toward = gain * (xp.asarray(a_s) - gain * center) @ xp.matrix_transpose(actions)
        logits = toward - 0.5 * gain**2 * xp.sum(actions**2, axis=-1)[..., None, :]
        if self.log_weights is not None:
            logits = logits + variance * self.log_weights[..., None, :]
        if self.perturbations is None:
            return _softmax(logits, variance, xp)
        shifts = gain * self.perturbations @ xp.matrix_transpose(actions)
        return xp.mean(_softmax(logits[..., :, None, :] + shifts[..., None, :, :], variance, xp), axis=-2)


def _softmax(logits: Array, temperature: float, xp: Any) -> Array:
    """Softmax of logits / temperature; the maximum is subtracted before dividing, so that nothing overflows."""
    logits = logits - xp.max(logits, axis=-1, keepdims=True)
    temperature = max(temperature, 1e6 * float(xp.finfo(logits.dtype).smallest_normal))
    weights = xp.exp(xp.clip(logits, -1e4 * temperature, None) / temperature)
    return weights / xp.sum(weights, axis=-1, keepdims=True)
