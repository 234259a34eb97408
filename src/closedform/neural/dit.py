"""DiT: a one-dimensional diffusion transformer over an action chunk (Peebles and Xie, 2023; the paper's appendix)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from closedform.neural.config import NeuralConfig


class DiT(nn.Module):
    """Predicts the noise in a chunk, given its noise level and the observations.

    Each action is a token. Noise level and observations together condition every block through adaLN-zero: they scale
    and shift the normalized activations and gate the residual branches, with gates that are zero before training.

    Args:
        config: widths and depths.
        n_features: features per observation window.
        n_numbers: numbers per action.
    """

    def __init__(self, config: NeuralConfig, n_features: int, n_numbers: int):
        super().__init__()
        width = config.width
        self.embed_observation = nn.Sequential(
            nn.Linear(n_features, config.observation_hidden),
            nn.SiLU(),
            nn.Linear(config.observation_hidden, config.observation_embedding),
        )
        self.embed_level = nn.Sequential(
            nn.Linear(config.observation_embedding, width), nn.SiLU(), nn.Linear(width, width)
        )
        self.embed_action = nn.Linear(n_numbers, width)
        self.blocks = nn.ModuleList(_Block(width, config.n_heads) for _ in range(config.n_blocks))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulate = nn.Linear(width, 2 * width)
        self.predict = nn.Linear(width, n_numbers)
        self.register_buffer("places", _waves(torch.arange(config.n_action_steps), width), persistent=False)
        self.n_waves = config.observation_embedding
        for layer in (self.modulate, self.predict):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    @staticmethod
    def count(config: NeuralConfig, n_features: int, n_numbers: int) -> int:
        """The number of weights of such a network, computed without allocating it, to check files before loading."""
        width, hidden, embedding = config.width, config.observation_hidden, config.observation_embedding
        layers = [(n_features, hidden), (hidden, embedding), (embedding, width), (width, width), (n_numbers, width)]
        layers += config.n_blocks * [(width, m * width) for m in (3, 1, 4, 6)] + config.n_blocks * [(4 * width, width)]
        layers += [(width, 2 * width), (width, n_numbers)]
        return sum((n_in + 1) * n_out for n_in, n_out in layers)

    def forward(self, chunk: Tensor, level: Tensor, features: Tensor) -> Tensor:
        """The noise in chunks (B, N_a, D) at noise levels (B,), 1 to S, given features (B, D_z). -> (B, N_a, D)."""
        condition = self.embed_level(_waves(level, self.n_waves) + self.embed_observation(features))
        tokens = self.embed_action(chunk) + self.places
        for block in self.blocks:
            tokens = block(tokens, condition)
        shift, scale = self.modulate(F.silu(condition))[:, None].chunk(2, dim=-1)
        return self.predict(self.norm(tokens) * (1 + scale) + shift)


class _Block(nn.Module):
    """Self-attention over the actions, then an MLP on each, both conditioned by adaLN-zero."""

    def __init__(self, width: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulate = nn.Linear(width, 6 * width)
        nn.init.zeros_(self.modulate.weight)
        nn.init.zeros_(self.modulate.bias)

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        """(B, N_a, width), (B, width) -> (B, N_a, width)."""
        shift, scale, gate, shift_2, scale_2, gate_2 = self.modulate(F.silu(condition))[:, None].chunk(6, dim=-1)
        tokens = tokens + gate * self._attend(self.norm(tokens) * (1 + scale) + shift)
        return tokens + gate_2 * self.think(self.norm(tokens) * (1 + scale_2) + shift_2)

    def _attend(self, tokens: Tensor) -> Tensor:
        size, length, width = tokens.shape
        heads = self.project(tokens).view(size, length, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        return self.merge(attended.transpose(1, 2).reshape(size, length, width))


def _waves(positions: Tensor, width: int) -> Tensor:
    """Sinusoidal embedding of positions (n,) with wavelengths from 2 pi to 10,000 times that. -> (n, width)."""
    rates = torch.exp(
        -math.log(10_000) * torch.arange(width // 2, device=positions.device, dtype=torch.float32) / (width // 2)
    )
    angles = positions.to(torch.float32)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
