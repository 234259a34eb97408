"""Pruned: the closed form in torch, without demonstrations that a bound proves negligible."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from closedform.diffusion.denoiser import ClosedForm

_NATS = 20.0  # below the largest share, at which a share is dropped


@dataclass(frozen=True)
class Pruned(ClosedForm):
    """The smoothed closed form of B observations, a few demonstrations at a time.

    A perturbation changes the difference of two demonstrations' logits by at most its length times the sum of the
    lengths of their chunks, measured from the mean chunk, times G / sigma^2. So demonstrations that are too far behind
    the best one under every perturbation are found without evaluating any, and dropped; usually only a few remain. The
    error of a share is at most k exp(-20).
    """

    def weights(self, a_s: Tensor, s: float) -> Tensor:
        """The share of each demonstration in the denoised chunk, (B, n, k)."""
        assert self.log_weights is not None and self.perturbations is not None
        gain, variance = self.process.gain(s), self.process.noise(s) ** 2
        center = self.actions.mean(-2, keepdim=True)
        actions = self.actions - center
        lengths = actions.square().sum(-1)[:, None]  # (B, 1, k)
        logits = gain * (a_s - gain * center) @ actions.mT - 0.5 * gain**2 * lengths
        logits = logits + variance * self.log_weights[:, None]
        best, index = logits.max(-1, keepdim=True)
        reach = gain * self.perturbations.norm(dim=-1).amax(-1)[:, None, None]  # (B, 1, 1)
        lead = logits + reach * lengths.sqrt()
        least = best - _NATS * variance - reach * lengths.sqrt().expand_as(logits).gather(-1, index)
        n_left = int((lead > least).sum(-1).max())
        _, left = lead.topk(n_left, dim=-1)  # (B, n, c)
        near = actions[:, None].expand(-1, a_s.shape[1], -1, -1)
        near = near.gather(2, left[..., None].expand(-1, -1, -1, actions.shape[-1]))  # (B, n, c, D)
        moved = gain * self.perturbations[:, None] @ near.mT + logits.gather(-1, left)[..., None, :]  # (B, n, M, c)
        shares = torch.softmax(moved / variance, dim=-1).mean(-2)
        return torch.zeros_like(logits).scatter(-1, left, shares)
