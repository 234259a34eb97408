"""Samplers: run a denoiser backward through a process, from noise to an action chunk."""

from __future__ import annotations

import math
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


def euler(
    denoiser: Denoiser, process: Process, noise: Array, *, n_steps: int, callback: Callback | None = None
) -> Array:
    """Euler's method on the flow ODE (eq:flow_ode), from noise at s = 1 to the chunks at s = 0.

    The step along (a_s - denoised) / s is written as an interpolation, so that the last one returns the denoised chunk
    itself and nothing divides by zero at s = 1.

    Args:
        denoiser: gives E[a_0 | a_s].
        process: the noising process.
        noise: (..., n, D), the samples at s = 1.
        n_steps: the number of sampling steps.
        callback: called with each `Step`.
    """
    return _run(denoiser, noise, step_weights(euler, process, n_steps), callback)


def ddim(
    denoiser: Denoiser, process: Process, noise: Array, *, n_steps: int, callback: Callback | None = None
) -> Array:
    """The deterministic sampler of Song et al.: keep the estimated noise, lower its level.

    Args:
        denoiser: gives E[a_0 | a_s].
        process: the noising process.
        noise: (..., n, D), the samples at s = 1.
        n_steps: the number of sampling steps; may be smaller than the number of levels of a DDPM process.
        callback: called with each `Step`.
    """
    return _run(denoiser, noise, step_weights(ddim, process, n_steps), callback)


def ddpm(
    denoiser: Denoiser,
    process: Process,
    noise: Array,
    *,
    n_steps: int,
    rng: Normal | int,
    callback: Callback | None = None,
) -> Array:
    """Ancestral sampling (eq:ddpm2): draw a_{s-1} from its Gaussian given a_s and the denoised chunk.

    Written as the mean and variance of that Gaussian, which equals the paper's score form for a DDPM process and stays
    finite where the gain is zero. The last step adds no noise.

    Args:
        denoiser: gives E[a_0 | a_s].
        process: the noising process.
        noise: (..., n, D), the samples at s = 1.
        n_steps: the number of sampling steps.
        rng: a seed, or a source of normal random numbers.
        callback: called with each `Step`.
    """
    rng = np.random.default_rng(rng) if isinstance(rng, int) else rng
    return _run(denoiser, noise, step_weights(ddpm, process, n_steps), callback, rng)


@dataclass(frozen=True)
class StepWeights:
    """One step of a sampler: a <- keep * a + jump * denoised + spread * fresh noise."""

    time: float
    keep: float
    jump: float
    spread: float


def step_weights(sampler: Callable[..., Array], process: Process, n_steps: int) -> list[StepWeights]:
    """The steps of `euler`, `ddim` or `ddpm` on a process; each is linear in the sample and its denoised chunk."""
    if sampler is euler and not isinstance(process, Flow):
        raise ConfigError("the sampler 'euler' integrates the flow ODE: use it with the process 'flow', or use 'ddim'")
    times = process.times(n_steps)
    steps = []
    for s, s_next in pairwise(times):
        gain, noise = process.gain(s), process.noise(s)
        gain_next, noise_next = process.gain(s_next), process.noise(s_next)
        spread = 0.0
        if sampler is euler:
            keep = s_next / s
            jump = 1.0 - keep
        elif sampler is ddim:
            keep = noise_next / noise
            jump = gain_next - keep * gain
        else:
            ratio = gain / gain_next
            added = noise**2 - (ratio * noise_next) ** 2  # the variance that one forward step adds
            keep = ratio * (noise_next / noise) ** 2
            jump = gain_next * added / noise**2
            spread = math.sqrt(max(added, 0.0)) * noise_next / noise
        steps.append(StepWeights(s, keep, jump, spread))
    return steps


def _run(
    denoiser: Denoiser,
    a: Array,
    steps: list[StepWeights],
    callback: Callback | None,
    rng: Normal | None = None,
) -> Array:
    xp = array_namespace(a)
    for index, step in enumerate(steps):
        denoised = denoiser(a, step.time)
        a_next = step.keep * a + step.jump * denoised
        if rng is not None and step.spread:
            fresh = xp.asarray(rng.standard_normal(tuple(a.shape)), dtype=a.dtype, device=device(a))
            a_next = a_next + step.spread * fresh
        if callback is not None:
            callback(Step(index, step.time, a, denoised, a_next))
        a = a_next
    return a


SAMPLERS = {"euler": euler, "ddpm": ddpm, "ddim": ddim}
