"""Augmented: a neural denoiser plus demonstrations (the paper's "Novel Demonstration Augmentation")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closedform.diffusion.denoiser import ClosedForm, Denoiser
from closedform.errors import ConfigError, DataError
from closedform.weights.metric import cholesky

Array = Any


@dataclass(frozen=True)
class Augmented:
    """The neural prediction as one more data point, with a kernel of its own (eq:augmented_kernel).

    Without demonstrations it is exactly the neural denoiser, and without a neural denoiser exactly the closed form. The
    network is evaluated once per step.

    Attributes:
        neural: the network's denoiser, or None.
        closed_form: the demonstrations. Its log weights are normalized (eq:augmented_obs_weight, `log_kernel`), since
            they are compared with another kernel's.
        neural_log_weight: of the neural point for the current observation, or (B, 1) for several.
        perturb_neural: whether the neural point is compared with the same perturbed samples as the demonstrations. The
            paper does not perturb it, which costs demonstrations `|perturbation|^2 / 2 sigma^2` relative to it: in the
            last steps more than any observation weight, so that the network decides them.
        watch: called with the shares at every step.
    """

    neural: Denoiser | None
    closed_form: ClosedForm
    neural_log_weight: Array = 0.0
    perturb_neural: bool = False
    watch: Callable[[Array], object] | None = None

    def __call__(self, a_s: Array, s: float) -> Array:
        """E[a_0 | a_s, o] of the samples a_s (..., n, D)."""
        if self.neural is None:
            return self.closed_form(a_s, s)
        predicted = self.neural(a_s, s)
        if not self.closed_form.actions.shape[-2]:
            return predicted
        weights = self.weights(a_s, s, predicted)
        if self.watch is not None:
            self.watch(weights)
        return weights[..., :-1] @ self.closed_form.actions + weights[..., -1:] * predicted

    def weights(self, a_s: Array, s: float, predicted: Array) -> Array:
        """The shares of demonstrations and, last, of the neural prediction, (..., n, k + 1); they sum to one.

        Args:
            a_s: (..., n, D)
            s: the time.
            predicted: (..., n, D), the neural denoised samples.
        """
        form, xp = self.closed_form, array_namespace(a_s)
        gain, variance = form.process.gain(s), form.process.noise(s) ** 2
        center = xp.mean(form.actions, axis=-2, keepdims=True)
        actions, rest = form.actions - center, a_s - gain * center
        log_weights = 0.0 if form.log_weights is None else form.log_weights[..., None, None, :]
        shifts = xp.zeros_like(a_s[..., :1, :]) if form.perturbations is None else form.perturbations
        moved = rest[..., :, None, :] + shifts[..., None, :, :]  # (..., n, M, D)
        along = moved @ xp.matrix_transpose(actions)[..., None, :, :]
        lengths = xp.sum(actions**2, axis=-1)[..., None, None, :]
        squared = xp.sum(moved**2, axis=-1)[..., None] - 2 * gain * along + gain**2 * lengths
        demonstrated = log_weights - squared / (2 * variance)  # (..., n, M, k)
        seen = a_s[..., :, None, :] + (shifts[..., None, :, :] if self.perturb_neural else 0.0)
        away = xp.sum((seen - gain * predicted[..., :, None, :]) ** 2, axis=-1)  # (..., n, M or 1)
        own = xp.asarray(self.neural_log_weight)[..., None] - away / (2 * variance)
        own = xp.broadcast_to(own[..., None], (*demonstrated.shape[:-1], 1))
        logits = xp.concat([demonstrated, own], axis=-1)
        shares = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
        return xp.mean(shares / xp.sum(shares, axis=-1, keepdims=True), axis=-2)


def log_kernel(z: np.ndarray, mean: np.ndarray, covariance: np.ndarray, c: float = 1.0) -> float:
    """-(z - mean)^T (c covariance)^-1 (z - mean) / 2 - log det(c covariance) / 2 (eq:augmented_obs_weight).

    Demonstrations and the neural point are compared in the space of features z: a demonstration's covariance is h^2
    times the local one, in whose units its distance was measured, and the neural point's is c times that of all the
    network's training data.

    Args:
        z: (D_z,), the current features.
        mean: (D_z,)
        covariance: (D_z, D_z)
        c: how much wider than the training data the neural kernel is.
    """
    if not 0 < c <= 1e9:
        raise ConfigError(f"c: expected a positive number up to 1e9, found {c!r}")
    if covariance.shape != (len(z), len(z)) or mean.shape != z.shape:
        raise DataError(
            f"expected a mean and a covariance of {len(z)} numbers, like the features, found {mean.shape} and "
            f"{covariance.shape}"
        )
    factor = cholesky(c * np.asarray(covariance, np.float64), "the training observations")
    away = np.linalg.solve(factor, np.asarray(z, np.float64) - mean)
    return float(-0.5 * away @ away - np.sum(np.log(np.diag(factor))))
