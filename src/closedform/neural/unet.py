"""UNet: Diffusion Policy's one-dimensional convolutional network in LeRobot's version (Chi et al., 2023)."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from closedform.neural.config import UNetConfig


class UNet(nn.Module):
    """Predicts the noise in a chunk, or the clean chunk, given its noise level and the observations.

    Its parameters have the same names as in LeRobot's checkpoints.

    Args:
        config: widths and depths.
        n_features: features per observation window.
        n_numbers: numbers per action.
    """

    def __init__(self, config: UNetConfig, n_features: int, n_numbers: int):
        super().__init__()
        embedding, widths = config.diffusion_step_embed_dim, config.down_dims
        self.diffusion_step_encoder = nn.Sequential(
            _Waves(embedding), nn.Linear(embedding, 4 * embedding), nn.Mish(), nn.Linear(4 * embedding, embedding)
        )

        def residual(n_in: int, n_out: int) -> _Residual:
            return _Residual(n_in, n_out, embedding + n_features, config)

        last = len(widths) - 1
        self.down_modules = nn.ModuleList(
            nn.ModuleList(
                [
                    residual(n_in, n_out),
                    residual(n_out, n_out),
                    nn.Identity() if depth == last else nn.Conv1d(n_out, n_out, 3, stride=2, padding=1),
                ]
            )
            for depth, (n_in, n_out) in enumerate(pairwise((n_numbers, *widths)))
        )
        self.mid_modules = nn.ModuleList(residual(widths[-1], widths[-1]) for _ in range(2))
        self.up_modules = nn.ModuleList(
            nn.ModuleList(
                [
                    residual(2 * n_in, n_out),  # with the skip connection from the way down
                    residual(n_out, n_out),
                    nn.ConvTranspose1d(n_out, n_out, 4, stride=2, padding=1),
                ]
            )
            for n_in, n_out in pairwise(reversed(widths))
        )
        self.final_conv = nn.Sequential(
            _Convolution(widths[0], widths[0], config.kernel_size, 8), nn.Conv1d(widths[0], n_numbers, 1)
        )

    @staticmethod
    def count(config: UNetConfig, n_features: int, n_numbers: int) -> int:
        """The number of weights of such a network, computed without allocating it, to check files before loading."""
        embedding, widths, size = config.diffusion_step_embed_dim, config.down_dims, config.kernel_size
        scales = 2 if config.use_film_scale_modulation else 1

        def residual(n_in: int, n_out: int) -> int:
            convolutions = (n_in + n_out) * size * n_out + 6 * n_out  # with their biases and normalizations
            past = 0 if n_in == n_out else (n_in + 1) * n_out
            return convolutions + (embedding + n_features + 1) * scales * n_out + past

        total = 8 * embedding * embedding + 5 * embedding + 2 * residual(widths[-1], widths[-1])
        for n_in, n_out in pairwise((n_numbers, *widths)):
            total += residual(n_in, n_out) + residual(n_out, n_out)
        for n_in, n_out in pairwise(reversed(widths)):  # and the layers that halve and double the time steps
            total += residual(2 * n_in, n_out) + residual(n_out, n_out) + 7 * n_out * n_out + 2 * n_out
        return total + widths[0] * size * widths[0] + 3 * widths[0] + (widths[0] + 1) * n_numbers

    def forward(self, chunk: Tensor, level: Tensor, features: Tensor) -> Tensor:
        """Chunks (B, N_a, D) at noise levels (B,), 1 to S, given features (B, D_z). -> (B, N_a, D)."""
        condition = torch.cat([self.diffusion_step_encoder(level - 1), features], dim=1)  # its levels begin at 0
        x, left = chunk.transpose(1, 2), []
        for first, second, shrink in map(_parts, self.down_modules):
            x = second(first(x, condition), condition)
            left.append(x)
            x = shrink(x)
        for block in self.mid_modules:
            x = block(x, condition)
        for first, second, grow in map(_parts, self.up_modules):
            x = grow(second(first(torch.cat([x, left.pop()], dim=1), condition), condition))
        return self.final_conv(x).transpose(1, 2)


def _parts(module: nn.Module) -> list[nn.Module]:
    return list(module.children())


class _Residual(nn.Module):
    """A residual block: two convolutions with the condition between them, and a skip connection."""

    def __init__(self, n_in: int, n_out: int, n_condition: int, config: UNetConfig):
        super().__init__()
        self.scales = config.use_film_scale_modulation
        self.conv1 = _Convolution(n_in, n_out, config.kernel_size, config.n_groups)
        self.cond_encoder = nn.Sequential(nn.Mish(), nn.Linear(n_condition, n_out * (2 if self.scales else 1)))
        self.conv2 = _Convolution(n_out, n_out, config.kernel_size, config.n_groups)
        self.residual_conv = nn.Identity() if n_in == n_out else nn.Conv1d(n_in, n_out, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """(B, n_in, T), (B, n_condition) -> (B, n_out, T)."""
        seen, out = self.cond_encoder(condition)[..., None], self.conv1(x)
        if self.scales:
            scale, shift = seen.chunk(2, dim=1)
            out = scale * out + shift
        else:
            out = out + seen
        return self.conv2(out) + self.residual_conv(x)


class _Convolution(nn.Module):
    """A convolution with group normalization."""

    def __init__(self, n_in: int, n_out: int, kernel_size: int, n_groups: int):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv1d(n_in, n_out, kernel_size, padding=kernel_size // 2), nn.GroupNorm(n_groups, n_out), nn.Mish()
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in, T) -> (B, n_out, T)."""
        return self.block(x)


class _Waves(nn.Module):
    """Sinusoidal embedding of noise levels, with wavelengths from 2 pi to exactly 10,000 times that."""

    def __init__(self, width: int):
        super().__init__()
        self.n_waves = width // 2

    def forward(self, level: Tensor) -> Tensor:
        """(B,) -> (B, width)."""
        places = torch.arange(self.n_waves, device=level.device, dtype=torch.float32)
        angles = level[:, None] * torch.exp(-math.log(10_000) / (self.n_waves - 1) * places)
        return torch.cat([angles.sin(), angles.cos()], dim=1)
