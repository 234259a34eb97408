"""Processes: how a clean action chunk turns into noise, and conversions between equivalent predictions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal

from closedform.errors import ConfigError

Array = Any  # an array of any library that follows the array API: numpy, torch, ...


class Process(ABC):
    """A linear noising process, p(a_s | a_0) = N(G_s a_0, sigma_s^2 I) (eq:fwd_gaussian).

    Times decrease from pure noise to clean data. The conversions go between the denoised sample E[a_0 | a_s], which is
    finite at every time, and the three equivalent quantities of the literature: score, epsilon and velocity.
    """

    @abstractmethod
    def gain(self, s: float) -> float:
        """G_s, the factor on the data at time s."""

    @abstractmethod
    def noise(self, s: float) -> float:
        """sigma_s, the standard deviation of the noise at time s."""

    @abstractmethod
    def times(self, n_steps: int) -> list[float]:
        """The n_steps + 1 times of a reverse run, from noise to data."""

    @abstractmethod
    def velocity_weights(self, s: float) -> tuple[float, float]:
        """The weights (of epsilon, of minus the denoised sample) that make up the velocity."""

    def score(self, denoised: Array, a_s: Array, s: float) -> Array:
        """The score of p_s at a_s, from Tweedie's formula (eq:tweedie)."""
        return (self.gain(s) * denoised - a_s) / self.noise(s) ** 2

    def epsilon(self, denoised: Array, a_s: Array, s: float) -> Array:
        """The expected noise in a_s; the score is minus this over sigma."""
        return (a_s - self.gain(s) * denoised) / self.noise(s)

    def velocity(self, denoised: Array, a_s: Array, s: float) -> Array:
        """The expected velocity along the noising path."""
        of_epsilon, of_denoised = self.velocity_weights(s)
        return of_epsilon * self.epsilon(denoised, a_s, s) - of_denoised * denoised

    def denoised_from_score(self, score: Array, a_s: Array, s: float) -> Array:
        """The inverse of `score` (eq:tweedie); requires a nonzero gain."""
        return (a_s + self.noise(s) ** 2 * score) / self.gain(s)

    def denoised_from_epsilon(self, epsilon: Array, a_s: Array, s: float) -> Array:
        """The inverse of `epsilon`; requires a nonzero gain."""
        return (a_s - self.noise(s) * epsilon) / self.gain(s)

    def denoised_from_velocity(self, velocity: Array, a_s: Array, s: float) -> Array:
        """The inverse of `velocity`."""
        of_epsilon, of_denoised = self.velocity_weights(s)
        gain, noise = self.gain(s), self.noise(s)
        return (of_epsilon * a_s - noise * velocity) / (of_epsilon * gain + of_denoised * noise)


@dataclass(frozen=True)
class Flow(Process):
    """The linear interpolant a_s = (1 - s) a_0 + s epsilon on s in [0, 1] (eq:interpolant)."""

    def gain(self, s: float) -> float:
        """1 - s."""
        return 1.0 - s

    def noise(self, s: float) -> float:
        """s."""
        return s

    def times(self, n_steps: int) -> list[float]:
        """Uniformly spaced from 1 to 0."""
        _check_steps(n_steps)
        return [j / n_steps for j in range(n_steps, -1, -1)]

    def velocity_weights(self, s: float) -> tuple[float, float]:
        """da_s/ds = epsilon - a_0."""
        return 1.0, 1.0

    def velocity(self, denoised: Array, a_s: Array, s: float) -> Array:
        """(a_s - denoised) / s: eq:flow_ode without its 0/0 at s = 1."""
        return (a_s - denoised) / s


@dataclass(frozen=True)
class DDPM(Process):
    """The variance-preserving process of Ho et al., with times 0 (clean) to `n_steps`.

    Attributes:
        n_steps: the number of noise levels of the schedule.
        schedule: `cosine` (Nichol and Dhariwal) or `linear` (Ho et al., its betas multiplied by 1000 / n_steps so that
            the last level is pure noise for any number of levels).
    """

    n_steps: int = 100
    schedule: Literal["cosine", "linear"] = "cosine"
    alpha_bars: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        _check_steps(self.n_steps)
        alpha_bars = [1.0]
        for beta in self._betas():
            alpha_bars.append(alpha_bars[-1] * (1.0 - beta))
        object.__setattr__(self, "alpha_bars", tuple(alpha_bars))

    def _betas(self) -> list[float]:
        n = self.n_steps
        if self.schedule == "linear":
            low, high = 0.1 / n, 20.0 / n
            return [min(low + (high - low) * i / max(n - 1, 1), 0.999) for i in range(n)]
        if self.schedule == "cosine":

            def level(t: float) -> float:
                return math.cos((t / n + 0.008) / 1.008 * math.pi / 2) ** 2

            return [min(1.0 - level(t + 1) / level(t), 0.999) for t in range(n)]
        raise ConfigError(f"expected a DDPM schedule 'cosine' or 'linear', found {self.schedule!r}")

    def gain(self, s: float) -> float:
        """The square root of alpha-bar."""
        return math.sqrt(self.alpha_bars[int(s)])

    def noise(self, s: float) -> float:
        """The square root of 1 - alpha-bar."""
        return math.sqrt(1.0 - self.alpha_bars[int(s)])

    def times(self, n_steps: int) -> list[float]:
        """Levels spaced evenly from the noisiest to 0."""
        _check_steps(n_steps)
        if n_steps > self.n_steps:
            raise ConfigError(
                f"expected at most as many steps as the {self.n_steps} levels of the DDPM process, found {n_steps}"
            )
        return [float(round(self.n_steps * j / n_steps)) for j in range(n_steps, -1, -1)]

    def velocity_weights(self, s: float) -> tuple[float, float]:
        """G epsilon - sigma a_0, the v of Salimans and Ho."""
        return self.gain(s), self.noise(s)


def _check_steps(n_steps: int) -> None:
    if n_steps < 1:
        raise ConfigError(f"expected at least 1 diffusion step, found {n_steps}")
