"""The direct version in torch for many observations at once, compiled by torch.compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class BatchedTorch:
    """Plans normalized chunks for normalized windows, including search.

    Args:
        features, chunks: (N, D_z) and (N, D), normalized windows and chunks.
        device: its name in torch.
        k, h, tau, n_perturbations, n_steps, regularization: the paper's parameters.
    """

    def __init__(
        self,
        features: np.ndarray,
        chunks: np.ndarray,
        device: str,
        *,
        k: int,
        h: float,
        tau: float,
        n_perturbations: int,
        n_steps: int,
        regularization: float,
    ):
        self.device = device
        self.features = torch.as_tensor(features, dtype=torch.float32, device=device)
        self.chunks = torch.as_tensor(chunks, dtype=torch.float32, device=device)
        self.half_norms = 0.5 * (self.features**2).sum(1)
        self.k, self.h, self.tau = k, h, tau
        self.n_perturbations, self.n_steps, self.regularization = n_perturbations, n_steps, regularization
        self._step = torch.compile(_step, dynamic=False)

    def prepare(self, queries: np.ndarray) -> Any:
        """What `__call__` takes, on the device."""
        return torch.as_tensor(queries, dtype=torch.float32, device=self.device)

    def __call__(self, queries: torch.Tensor) -> torch.Tensor:
        """Chunks (B, D), after waiting for them."""
        near = torch.topk(torch.addmm(-self.half_norms, queries, self.features.T), self.k, sorted=False).indices
        features, chunks = self.features[near], self.chunks[near]
        centered = features - features.mean(1, keepdim=True)
        eye = torch.eye(queries.shape[1], device=self.device)
        covariance = centered.mT @ centered / (self.k - 1) + self.regularization * eye
        factor = torch.linalg.cholesky_ex(covariance).L
        whitened = torch.linalg.solve_triangular(factor, (features - queries[:, None]).mT, upper=False)
        log_weights = -(whitened**2).sum(1) / (2 * self.h**2)
        half_norms = 0.5 * (chunks**2).sum(2)
        a = torch.randn(len(queries), chunks.shape[2], device=self.device)
        shape = len(queries), self.n_perturbations, chunks.shape[2]
        perturbations = self.tau * torch.randn(shape, device=self.device)
        for i in range(self.n_steps):
            s = torch.tensor(1 - i / self.n_steps)
            a = self._step(a, perturbations, chunks, half_norms, log_weights, s, torch.tensor(1 / (self.n_steps - i)))
        torch.cuda.synchronize()
        return a


def _step(a: Any, perturbations: Any, chunks: Any, half_norms: Any, log_weights: Any, s: Any, jump: Any) -> Any:
    gain = 1 - s
    logits = gain * (a[:, None] + perturbations) @ chunks.mT - (gain**2 * half_norms)[:, None]
    weights = torch.softmax(logits / s**2 + log_weights[:, None], 2).mean(1)
    return a + ((weights[:, None] @ chunks)[:, 0] - a) * jump
