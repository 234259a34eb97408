"""The closed-form diffusion policy written directly in JAX, as the paper describes its implementation.

The neighbors are found with numpy, which at this size is as fast as any index. Everything after that is one compiled
function: local covariance, Cholesky, and S Euler steps that weight all k neighbors under all M perturbations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class DirectJax:
    """Plans normalized chunks for normalized windows.

    Args:
        features: (N, D_z), normalized windows.
        chunks: (N, D), normalized chunks.
        k, h, tau, n_perturbations, n_steps, regularization: the paper's parameters.
    """

    def __init__(
        self,
        features: np.ndarray,
        chunks: np.ndarray,
        *,
        k: int,
        h: float,
        tau: float,
        n_perturbations: int,
        n_steps: int,
        regularization: float,
    ):
        self.features = features.astype(np.float32)
        self.chunks = chunks.astype(np.float32)
        self.k, self.shape = k, (n_perturbations, chunks.shape[1])
        self._plan = jax.jit(partial(_plan, h=h, tau=tau, n_steps=n_steps, regularization=regularization))

    def __call__(self, query: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Plans one chunk, (D,)."""
        query = query.astype(np.float32)
        difference = self.features - query
        squared = np.einsum("nd,nd->n", difference, difference)
        near = np.argpartition(squared, self.k - 1)[: self.k]
        noise = rng.standard_normal(self.shape[1]).astype(np.float32)
        perturbations = rng.standard_normal(self.shape).astype(np.float32)
        return np.asarray(self._plan(self.features[near], self.chunks[near], query, noise, perturbations))


def _plan(
    features: Any,
    chunks: Any,
    query: Any,
    noise: Any,
    perturbations: Any,
    *,
    h: float,
    tau: float,
    n_steps: int,
    regularization: float,
) -> Any:
    centered = features - features.mean(0)
    covariance = centered.T @ centered / (len(features) - 1) + regularization * jnp.eye(features.shape[1])
    whitened = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(covariance), (features - query).T, lower=True)
    log_weights = -jnp.sum(whitened**2, 0) / (2 * h**2)
    half_norms = 0.5 * jnp.sum(chunks**2, 1)

    def step(i: Any, a: Any) -> Any:
        s = 1 - i / n_steps
        gain = 1 - s
        logits = (gain * (a + tau * perturbations) @ chunks.T - gain**2 * half_norms) / s**2 + log_weights
        denoised = jax.nn.softmax(logits, axis=1).mean(0) @ chunks
        return a + (denoised - a) / (n_steps - i)

    return jax.lax.fori_loop(0, n_steps, step, noise)
