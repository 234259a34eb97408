"""The parameters of a neural diffusion policy and of its training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from closedform.diffusion.process import DDPM
from closedform.diffusion.sampler import SAMPLERS, step_weights
from closedform.errors import ConfigError


@dataclass(frozen=True)
class NeuralConfig:
    """The paper's appendix "Neural Diffusion Policy Training", and its table of editing parameters."""

    n_obs_steps: int = 2
    """N_o, observations in a window."""
    n_action_steps: int = 8
    """N_a, actions in a chunk."""
    n_execute: int = 8
    """H, actions of a chunk that are executed before the next plan."""
    width: int = 320
    """Width of the transformer."""
    n_blocks: int = 2
    """Transformer blocks, one after the other."""
    n_heads: int = 10
    """Attention heads."""
    observation_hidden: int = 256
    """Hidden units of the network that embeds observations."""
    observation_embedding: int = 128
    """Numbers in that embedding."""
    n_diffusion_steps: int = 100
    """S, noise levels."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """How the noise grows."""
    sampler: Literal["ddpm", "ddim"] = "ddpm"
    """How chunks are sampled."""
    n_sampling_steps: int = 100
    """Steps from noise to a chunk; ddim may take fewer than there are levels."""

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigError(f"{field.name}: expected a whole number of at least 1, found {value!r}")
        if self.n_execute > self.n_action_steps:
            raise ConfigError(
                f"n_execute: expected at most n_action_steps ({self.n_action_steps}), found {self.n_execute}"
            )
        if self.width % (2 * self.n_heads):
            raise ConfigError(f"width: expected a multiple of twice the {self.n_heads} heads, found {self.width}")
        if self.sampler not in ("ddpm", "ddim"):
            raise ConfigError(f"sampler: expected ddpm or ddim, found {self.sampler!r}")
        step_weights(SAMPLERS[self.sampler], self.make_process(), self.n_sampling_steps)

    def make_process(self) -> DDPM:
        """The noising process."""
        return DDPM(self.n_diffusion_steps, self.schedule)


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained."""

    n_steps: int = 100_000
    """Gradient steps. The paper takes 10^6; on Push-T the policy is best long before."""
    batch_size: int = 256
    """Windows in a step."""
    learning_rate: float = 3e-4
    """At its highest; it rises over the first steps and then falls to 0 as a cosine."""
    warm_up: int = 1000
    """Steps over which the learning rate rises."""
    weight_decay: float = 1e-3
    """Of AdamW."""
    observation_noise: float = 0.02
    """Standard deviation of noise on normalised observations, anew in every step; without it a policy that has seen
    its few demonstrations often enough knows them by heart."""
    ema_decay: float = 0.9999
    """Of the moving average of the weights, which is what the policy uses."""
    seed: int = 0
    """Of the first weights and of all batches and noise."""

    def __post_init__(self):
        for name in ("n_steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)!r}")
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
