"""The parameters of a neural diffusion policy and of its training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from closedform.diffusion.process import DDPM
from closedform.diffusion.sampler import SAMPLERS
from closedform.errors import ConfigError

_MOST = {  # of each parameter, so that a hostile file cannot exhaust memory
    "n_obs_steps": 1000,
    "n_action_steps": 10_000,
    "n_diffusion_steps": 10_000,
    "n_sampling_steps": 10_000,
    "n_blocks": 256,
    "kernel_size": 1023,
}
_MOST_WIDE = 65_536  # of parameters not listed there
_MOST_RESOLUTIONS = 16


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig:
    """Parameters that all neural diffusion policies share."""

    n_obs_steps: int = 2
    """N_o, observations in a window."""
    n_action_steps: int = 8
    """N_a, actions in a chunk."""
    n_execute: int = 8
    """H, actions of a chunk that are executed before the next plan (receding horizon)."""
    n_diffusion_steps: int = 100
    """S, the number of noise levels."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """The noise schedule."""
    sampler: Literal["ddpm", "ddim"] = "ddpm"
    """The sampler."""
    n_sampling_steps: int = 100
    """Sampling steps; ddim may take fewer steps than there are noise levels."""

    def __post_init__(self):
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "n_past" else 1
            if field.type != "int":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{field.name}: expected a whole number of at least {least}, found {value!r}")
            if value > (most := _MOST.get(field.name, _MOST_WIDE)):
                raise ConfigError(f"{field.name}: expected at most {most}, found {_digits(value)}")
        if self.n_execute > self.n_future:
            raise ConfigError(f"n_execute: expected at most n_action_steps ({self.n_future}), found {self.n_execute}")
        if self.sampler not in ("ddpm", "ddim"):
            raise ConfigError(f"sampler: expected ddpm or ddim, found {self.sampler!r}")
        SAMPLERS[self.sampler].steps(self.make_process(), self.n_sampling_steps)

    @property
    def n_future(self) -> int:
        """Actions of a chunk that are not yet past when it is planned."""
        return self.n_action_steps - getattr(self, "n_past", 0)

    def make_process(self) -> DDPM:
        """The noising process."""
        return DDPM(self.n_diffusion_steps, self.schedule)


@dataclass(frozen=True, kw_only=True)
class NeuralConfig(DiffusionConfig):
    """The paper's network: its appendix "Neural Diffusion Policy Training" and table of editing parameters."""

    width: int = 320
    """Width of the transformer."""
    n_blocks: int = 2
    """Number of transformer blocks."""
    n_heads: int = 10
    """Attention heads."""
    observation_hidden: int = 256
    """Hidden units of the observation encoder."""
    observation_embedding: int = 128
    """Width of the observation embedding."""

    def __post_init__(self):
        super().__post_init__()
        if self.width % (2 * self.n_heads):
            raise ConfigError(f"width: expected a multiple of twice the {self.n_heads} heads, found {self.width}")
        if self.observation_embedding % 2:
            raise ConfigError(f"observation_embedding: expected an even number, found {self.observation_embedding}")


@dataclass(frozen=True, kw_only=True)
class UNetConfig(DiffusionConfig):
    """Parameters of LeRobot's diffusion policy, under LeRobot's names."""

    n_past: int = 1
    """Past actions at the start of a chunk: chunks start at the first observation of a window."""
    prediction: Literal["epsilon", "denoised"] = "epsilon"
    """What the network predicts: the noise, or the clean chunk."""
    bound: float | None = 1.0
    """Clean chunks are clipped to [-bound, bound] at every step; None to not clip."""
    down_dims: tuple[int, ...] = (512, 1024, 2048)
    """Channels at each resolution; each but the last halves the number of time steps."""
    kernel_size: int = 5
    """Kernel size of the convolutions."""
    n_groups: int = 8
    """Number of groups of the group normalizations."""
    diffusion_step_embed_dim: int = 128
    """Width of the embedding of the noise level."""
    use_film_scale_modulation: bool = True
    """Whether observations scale the channels in addition to shifting them."""

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.down_dims, tuple | list) or not 1 <= len(self.down_dims) <= _MOST_RESOLUTIONS:
            raise ConfigError(f"down_dims: expected 1 to {_MOST_RESOLUTIONS} widths, found {str(self.down_dims)[:80]}")
        object.__setattr__(self, "down_dims", tuple(self.down_dims))  # a list if read from a file
        if not all(type(width) is int and 1 <= width <= _MOST_WIDE for width in self.down_dims):
            raise ConfigError(f"down_dims: expected widths of 1 to {_MOST_WIDE}, found {str(self.down_dims)[:80]}")
        if self.prediction not in ("epsilon", "denoised"):
            raise ConfigError(f"prediction: expected epsilon or denoised, found {self.prediction!r}")
        if not (self.bound is None or (isinstance(self.bound, int | float) and 0 < self.bound <= 1e6)):
            raise ConfigError(f"bound: expected None, or a number up to 1e6, found {str(self.bound)[:80]}")
        if not isinstance(self.use_film_scale_modulation, bool):
            raise ConfigError(
                f"use_film_scale_modulation: expected true or false, found {self.use_film_scale_modulation!r}"
            )
        if self.kernel_size % 2 == 0:
            raise ConfigError(f"kernel_size: expected an odd number, found {self.kernel_size}")
        if self.diffusion_step_embed_dim % 2 or self.diffusion_step_embed_dim < 4:
            found = self.diffusion_step_embed_dim
            raise ConfigError(f"diffusion_step_embed_dim: expected an even number of at least 4, found {found}")
        if any(width % self.n_groups for width in self.down_dims):
            raise ConfigError(f"down_dims: expected multiples of the {self.n_groups} groups, found {self.down_dims}")
        halvings = 2 ** (len(self.down_dims) - 1)
        if self.n_action_steps % halvings:
            raise ConfigError(f"n_action_steps: expected a multiple of {halvings}, found {self.n_action_steps}")


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained."""

    n_steps: int = 100_000
    """Gradient steps. The paper takes 10^6; on Push-T the policy is best long before that."""
    batch_size: int = 256
    """Windows per step."""
    learning_rate: float = 3e-4
    """Peak learning rate, after a linear warm-up and before a cosine decay to 0."""
    warm_up: int = 1000
    """Warm-up steps."""
    weight_decay: float = 1e-3
    """Weight decay of AdamW."""
    observation_noise: float = 0.02
    """Standard deviation of the noise added to normalized observations, drawn anew at every step; without it the
    network overfits a small set of demonstrations."""
    ema_decay: float = 0.9999
    """Decay of the exponential moving average of the weights, which the policy uses."""
    seed: int = 0
    """Seed of the initial weights, the batches and the noise."""

    def __post_init__(self):
        for name, high in (("n_steps", 10**9), ("batch_size", 10**6)):
            if not 1 <= getattr(self, name) <= high:
                raise ConfigError(f"{name}: expected at least 1 and at most {high}, found {getattr(self, name)!r}")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed: expected 0 to 2^63 - 1, found {self.seed!r}")
        for name, high in (
            ("learning_rate", 1.0),
            ("weight_decay", 1.0),
            ("observation_noise", 1.0),
            ("ema_decay", 1.0),
        ):
            if not 0 <= getattr(self, name) <= high:
                raise ConfigError(f"{name}: expected 0 to {high:g}, found {getattr(self, name)!r}")
        if self.warm_up < 0:
            raise ConfigError(f"warm_up: expected 0 or more, found {self.warm_up!r}")


def _digits(value: int) -> str:
    """A whole number for a message; Python does not print numbers of thousands of digits."""
    return str(value) if value.bit_length() < 100 else f"a number of {value.bit_length()} bits"
