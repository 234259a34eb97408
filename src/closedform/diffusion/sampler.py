"""Samplers: run a denoiser backward through a process, from noise to an action chunk."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace, device

from closedform.diffusion.denoiser import Denoiser
from closedform.diffusion.process import Flow, Process
from closedform.errors import ConfigError

Array = Any


@dataclass(frozen=True)
class Step:
    """One sampling step, as passed to callbacks.

    Attributes:
        index: 0 for the first step.
        time: s, before the step.
        sample: (..., n, D), a_s before the step.
        denoised: (..., n, D), the denoiser's E[a_0 | a_s].
        next_sample: (..., n, D), a after the step.
    """

    index: int
    time: float
    sample: Array
    denoised: Array
    next_sample: Array


Callback = Callable[[Step], object]


class Normal(Protocol):
    """A source of normal random numbers, such as `numpy.random.Generator`."""

    def standard_normal(self, size: Any) -> Any:
        """Standard normal numbers of a shape."""
        ...


@dataclass(frozen=True)
class StepWeights:
    """One step of a sampler: a <- keep * a + jump * denoised + recall * before + spread * fresh noise.

    Attributes:
        time: s, at which the denoiser is asked.
        keep, jump, spread: as above.
        recall: of the sample before the step before, which the second stage of a two-stage method needs.
    """

    time: float
    keep: float
    jump: float
    spread: float = 0.0
    recall: float = 0.0


class Sampler(ABC):
    """Runs noise backward through a process. Each of its steps is linear in samples and the denoised chunk.

    A sampler is its `steps`; calling it runs them, and compiled planners read the same list.
    """

    @abstractmethod
    def steps(self, process: Process, n_steps: int) -> list[StepWeights]:
        """The steps on a process, the last of which ends at s = 0."""

    def __call__(
        self,
        denoiser: Denoiser,
        process: Process,
        noise: Array,
        *,
        n_steps: int,
        rng: Normal | int | None = None,
        callback: Callback | None = None,
    ) -> Array:
        """Runs the sampler from noise at s = 1 to the chunks at s = 0.

        Args:
            denoiser: gives E[a_0 | a_s].
            process: the noising process.
            noise: (..., n, D), the samples at s = 1.
            n_steps: the number of sampling steps; may be smaller than the number of levels of a DDPM process.
            rng: a seed, or a source of normal random numbers, for samplers that add noise.
            callback: called with each `Step`.
        """
        xp, a, before = array_namespace(noise), noise, noise
        rng = np.random.default_rng(rng) if isinstance(rng, int) else rng
        for index, step in enumerate(self.steps(process, n_steps)):
            denoised = denoiser(a, step.time)
            a_next = step.keep * a + step.jump * denoised
            if step.recall:
                a_next = a_next + step.recall * before
            if step.spread:
                if rng is None:
                    raise ConfigError(f"{type(self).__name__} adds noise: expected rng, found none")
                fresh = xp.asarray(rng.standard_normal(tuple(a.shape)), dtype=a.dtype, device=device(a))
                a_next = a_next + step.spread * fresh
            if callback is not None:
                callback(Step(index, step.time, a, denoised, a_next))
            a, before = a_next, a
        return a


class Euler(Sampler):
    """Euler's method on the flow ODE (eq:flow_ode).

    The step along (a_s - denoised) / s is written as an interpolation, so that the last one returns the denoised chunk
    itself and nothing divides by zero at s = 1.
    """

    def steps(self, process: Process, n_steps: int) -> list[StepWeights]:
        """a <- (s' / s) a + (1 - s' / s) denoised."""
        if not isinstance(process, Flow):
            raise ConfigError(
                "the sampler 'euler' integrates the flow ODE: use it with the process 'flow', or use 'ddim'"
            )
        keeps = [(s, s_next / s) for s, s_next in pairwise(process.times(n_steps))]
        return [StepWeights(s, keep, 1.0 - keep) for s, keep in keeps]


class DDIM(Sampler):
    """The deterministic sampler of Song et al.: keep the estimated noise, lower its level."""

    def steps(self, process: Process, n_steps: int) -> list[StepWeights]:
        """a <- (sigma' / sigma) a + (G' - G sigma' / sigma) denoised."""
        steps = []
        for s, s_next in pairwise(process.times(n_steps)):
            keep = process.noise(s_next) / process.noise(s)
            steps.append(StepWeights(s, keep, process.gain(s_next) - keep * process.gain(s)))
        return steps


class Ancestral(Sampler):
    """Ancestral sampling (eq:ddpm2): draw a_{s-1} from its Gaussian given a_s and the denoised chunk.

    Written as the mean and variance of that Gaussian, which equals the paper's score form for a DDPM process and stays
    finite where the gain is zero. The last step adds no noise.
    """

    def steps(self, process: Process, n_steps: int) -> list[StepWeights]:
        """The mean and the standard deviation of a_{s-1}."""
        steps = []
        for s, s_next in pairwise(process.times(n_steps)):
            gain, noise = process.gain(s), process.noise(s)
            gain_next, noise_next = process.gain(s_next), process.noise(s_next)
            ratio = gain / gain_next
            added = noise**2 - (ratio * noise_next) ** 2  # the variance that one forward step adds
            keep, jump = ratio * (noise_next / noise) ** 2, gain_next * added / noise**2
            steps.append(StepWeights(s, keep, jump, math.sqrt(max(added, 0.0)) * noise_next / noise))
        return steps


euler, ddim, ddpm = Euler(), DDIM(), Ancestral()
SAMPLERS: dict[str, Sampler] = {"euler": euler, "ddpm": ddpm, "ddim": ddim}
