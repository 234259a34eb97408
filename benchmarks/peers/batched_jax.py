"""The direct JAX version for many observations at once: vmap over plans, everything in one compiled function."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peers.direct_jax import _plan


class BatchedJax:
    """Plans normalized chunks for normalized windows, including search.

    Args:
        features, chunks: (N, D_z) and (N, D), normalized windows and chunks.
        k, n_perturbations: the paper's.
        parameters: those of `_plan`.
    """

    def __init__(self, features: np.ndarray, chunks: np.ndarray, *, k: int, n_perturbations: int, **parameters: Any):
        self.features, self.chunks = jnp.asarray(features, jnp.float32), jnp.asarray(chunks, jnp.float32)
        shape = n_perturbations, chunks.shape[1]
        plan = partial(_plan, **parameters)

        def one(query: Any, key: Any, features: Any, chunks: Any) -> Any:
            difference = features - query
            near = jax.lax.top_k(-jnp.sum(difference * difference, 1), k)[1]
            noise, perturbations = jax.random.split(key)
            return plan(
                features[near],
                chunks[near],
                query,
                jax.random.normal(noise, shape[1:]),
                jax.random.normal(perturbations, shape),
            )

        self._plan = jax.jit(jax.vmap(one, in_axes=(0, 0, None, None)))

    def prepare(self, queries: np.ndarray) -> Any:
        """What `__call__` takes, on the device."""
        return jnp.asarray(queries, jnp.float32), jax.random.split(jax.random.key(0), len(queries))

    def __call__(self, prepared: Any) -> Any:
        """Chunks (B, D), after waiting for them."""
        return self._plan(*prepared, self.features, self.chunks).block_until_ready()
