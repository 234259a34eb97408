"""Diffusion: the process, sampler and smoothing of a closed-form policy, as its backends need them."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from closedform.diffusion.process import Process
from closedform.diffusion.sampler import SAMPLERS, Sampler
from closedform.kernels.records import RandomDraws
from closedform.policies.backends.backend import Query
from closedform.policies.config import ClosedFormConfig

HEADROOM = 1e-4  # fraction of pruning_error that one step may drop; the rest is headroom for steps that amplify it


class Diffusion:
    """What runs noise through the diffusion process.

    Args:
        config: the parameters.
    """

    def __init__(self, config: ClosedFormConfig):
        self.config = config

    @cached_property
    def process(self) -> Process:
        """The noising process."""
        return self.config.make_process()

    @property
    def sampler(self) -> Sampler:
        """What runs it backward."""
        return SAMPLERS[self.config.sampler]

    @cached_property
    def steps(self) -> np.ndarray:
        """(S, 6), the sampler's steps as the kernels read them: gain, noise, keep, jump, spread, recall."""
        process, steps = self.process, self.sampler.steps(self.process, self.config.n_diffusion_steps)
        rows = [(process.gain(s.time), process.noise(s.time), s.keep, s.jump, s.spread, s.recall) for s in steps]
        return np.array(rows)

    def cut(self, k: int) -> float:
        """Nats below the largest of k terms at which they are dropped."""
        dropped = self.config.pruning_error * HEADROOM
        return math.log(k / dropped) if dropped else math.inf

    def perturbations(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """(M, N_a * D) draws of N(0, tau^2 I), the same for all steps and samples; one zero without smoothing."""
        if not self.config.tau:
            return np.zeros((1, size))
        return self.config.tau * rng.standard_normal((self.config.n_perturbations, size))

    def draw(self, query: Query, size: int) -> RandomDraws:
        """The random numbers of all plans, plan by plan."""
        n_plans, n_samples = len(query.windows), query.n_samples
        n_steps = len(self.steps) if self.steps[:, 4].any() else 0
        n_perturbations = self.config.n_perturbations if self.config.tau else 0
        n_fresh = max(n_steps - 1, 0) * n_samples  # the last step adds none
        shape = n_samples + n_perturbations + n_fresh, size
        if isinstance(query.rngs, np.random.Generator):
            drawn = query.rngs.standard_normal((n_plans, *shape))
        elif n_plans == 1:
            drawn = query.rngs[0].standard_normal((1, *shape))
        else:
            drawn = np.stack([rng.standard_normal(shape) for rng in query.rngs])
        perturbations = drawn[:, n_samples : n_samples + n_perturbations]
        perturbations *= self.config.tau
        fresh = np.zeros((n_plans, n_steps, n_samples, size))
        if n_fresh:
            fresh[:, :-1] = drawn[:, n_samples + n_perturbations :].reshape(n_plans, -1, n_samples, size)
        noise = np.ascontiguousarray(drawn[:, :n_samples])
        if not n_perturbations:
            return RandomDraws(noise, np.zeros((n_plans, 1, size)), fresh)
        return RandomDraws(noise, np.ascontiguousarray(perturbations), fresh)
