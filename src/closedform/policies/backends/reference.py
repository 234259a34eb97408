"""Reference: the backend that plans one observation after the other, through `diffusion/`; it reads like the paper."""

from __future__ import annotations

import math

import numpy as np

from closedform.diffusion.denoiser import ClosedForm
from closedform.diffusion.mixture import is_mixture
from closedform.diffusion.sampler import Step
from closedform.policies.backends.backend import Query
from closedform.policies.backends.diffusion import Diffusion
from closedform.policies.plan_batch import PlanBatch, unmeasured
from closedform.store.model import Model
from closedform.store.neighborhood import Neighborhood
from closedform.weights.penalty import Penalty


class Reference:
    """The paper's Algorithm 1, for each observation.

    Args:
        diffusion: the process, the sampler and the smoothing.
    """

    def __init__(self, diffusion: Diffusion):
        self._diffusion = diffusion

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """All plans, one after the other."""
        config, process, size = self._diffusion.config, self._diffusion.process, model.transfer.chunk_size
        sampler, batch = self._diffusion.sampler, query.unfilled(model)
        n_steps = len(self._diffusion.steps)
        poses = model.transfer.poses(query.windows[:, -1])
        for b, features in enumerate(model.kernel.features(query.windows)):
            near, rng = model.neighborhood(features, query.k, poses[b]), query.rng(b)
            noise = rng.standard_normal((query.n_samples, size))
            perturbations = self._diffusion.perturbations(rng, size)
            denoiser = self.denoiser(model, near, query.penalty(b), perturbations, b)
            last: list[Step] = []

            def keep_last(step: Step, last: list[Step] = last) -> None:
                last[:] = [step]
                if step.index + 1 < n_steps and query.clock() >= query.stop_at:
                    raise _OutOfTimeError

            try:
                batch.chunks[b] = sampler(
                    denoiser, process, noise, n_steps=config.n_diffusion_steps, rng=rng, callback=keep_last
                )
            except _OutOfTimeError:
                batch.chunks[b] = last[0].denoised
            batch.n_steps[b], batch.ended[b] = last[0].index + 1, query.clock() if query.stop_at < math.inf else np.nan
            batch.mixed[b] = is_mixture(batch.chunks[b], denoiser.actions)
            put(batch, b, model, near, query, denoiser.weights(last[0].sample, last[0].time))
        return batch

    def denoiser(
        self, model: Model, near: Neighborhood, penalty: Penalty, perturbations: np.ndarray, number: int = 0
    ) -> ClosedForm:
        """The closed-form denoiser of one of several observations, on normalized chunks."""
        log_weights = near.log_weights(model, penalty)
        if log_weights is None:
            raise unmeasured(number)
        return ClosedForm(
            process=self._diffusion.process,
            actions=model.normalized_chunks(near.rows, near.choice),
            log_weights=log_weights,
            perturbations=perturbations,
        )


class _OutOfTimeError(Exception):
    """The deadline leaves no time for another step."""


def put(batch: PlanBatch, b: int, model: Model, near: Neighborhood, query: Query, weights: np.ndarray) -> None:
    """Fills in how a plan's chunks were made, and takes them back to the scene.

    Args:
        batch: with the chunks of the plan.
        b: which plan.
        model, near: what it was made from.
        query: what was asked for.
        weights: (n, k), of the neighbors.
    """
    batch.choices[b], batch.distances[b] = near.choice, near.distance
    batch.actions[b] = model.transfer.back(batch.chunks[b : b + 1], near.choice[None], query.windows[b : b + 1, -1])[0]
    if query.explain:
        batch.rows[b], batch.weights[b] = -1, 0.0
        batch.rows[b, : len(near.rows)], batch.weights[b, :, : len(near.rows)] = near.rows, weights
        batch.list_used(b)
