"""ClosedFormPolicy: the paper's Algorithm 1."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from closedform import kernels
from closedform.demos.episode import real_array
from closedform.diffusion.denoiser import ClosedForm
from closedform.errors import DataError
from closedform.policies.backends.backend import Query
from closedform.policies.backends.compiled import Compiled
from closedform.policies.backends.diffusion import Diffusion
from closedform.policies.backends.reference import Reference
from closedform.policies.config import ClosedFormConfig, PolicyConfig
from closedform.policies.deadline import seconds_not_cut
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan_batch import PlanBatch
from closedform.policies.randomness import Seed, generator
from closedform.policies.saving import register_policy
from closedform.store.model import Model
from closedform.transfer.frame import N_VOTERS
from closedform.weights.penalty import Penalty
from closedform.weights.state import State

if TYPE_CHECKING:
    from closedform.policies.backends.batch_planner import BatchPlanner
    from closedform.weights.terms.action_prefix import ActionPrefix


class ClosedFormBackend:
    """The compiled backend, or the reference where there is no compiled code."""

    def __init__(self, config: ClosedFormConfig):
        self.diffusion = Diffusion(config)
        self.reference, self.compiled = Reference(self.diffusion), Compiled(self.diffusion)

    @property
    def n_steps(self) -> int:
        """S, diffusion steps of a plan that is not cut short."""
        return len(self.diffusion.steps)

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """Plans with one of them."""
        compiles = kernels.enabled() and (query.stop_at == math.inf or kernels.has_clock())
        return (self.compiled if compiles else self.reference).fill(model, query)


@register_policy
class ClosedFormPolicy(DemonstrationPolicy[ClosedFormConfig]):
    """A diffusion policy whose score is computed in closed form from the demonstrations.

    For each plan it takes the nearest demonstrations of the observation, weights them with the observation kernel, and
    runs noise through the diffusion process with the smoothed conditional score of their chunks
    (eq:smoothed_cond_kernel).
    """

    config_class: ClassVar[type[PolicyConfig]] = ClosedFormConfig
    _backend: ClosedFormBackend

    def _make_backend(self) -> ClosedFormBackend:
        return ClosedFormBackend(self.config)

    def _cautions(self) -> list[str]:
        config, model, cautions = self.config, self.model, super()._cautions()
        if config.deadline is None:
            return cautions
        k, n_frames = self.n_neighbors(model), len(model.transfer.frames)
        seconds = seconds_not_cut(
            n_searched=model.index.n_compared(k),
            n_features=len(model.kernel.scale),
            n_neighbors=k,
            chunk_size=model.transfer.chunk_size,
            n_tried=n_frames * N_VOTERS if n_frames > 1 else 0,
            n_perturbations=config.n_perturbations,
            compiled=kernels.enabled(),
        )
        if seconds > config.deadline:
            cautions.append(
                f"deadline is {1e3 * config.deadline:g} ms, but search, metric, frames and the first diffusion step "
                f"always run in full and take about {1e3 * seconds:.2g} ms: plans will be late; lower n_neighbors, "
                "n_action_steps or n_obs_steps, or allow more time"
            )
        return cautions

    @property
    def diffusion(self) -> Diffusion:
        """The process, the sampler and the smoothing."""
        return self._backend.diffusion

    def denoiser(
        self,
        observation: Any,
        *,
        seed: Seed = None,
        frame: str | None = None,
        choice: np.ndarray | None = None,
        state: State | None = None,
    ) -> ClosedForm:
        """The closed-form denoiser for one observation, on normalized chunks.

        Run it with `diffusion.sampler`, to visualize sampling or to edit other policies.

        Args:
            observation: (D_o,) or a window (N_o, D_o).
            seed: of the perturbations.
            frame: the name of a frame for all hands; by default each uses the best one.
            choice: instead of a frame, how a plan transferred its demonstrations.
            state: of an agent; by default that before the first plan.
        """
        model = self.model
        windows = self.windows(real_array(observation, "an observation")[None])
        with np.errstate(over="ignore", invalid="ignore"):  # features or distances are then not finite
            near = model.near(windows[0], self.n_neighbors(model))
        if frame is not None:
            names = [f.name for f in model.transfer.frames]
            if frame not in names:
                raise DataError(f"no frame {frame!r}: this policy uses {', '.join(names)}")
            choice = np.array([(names.index(frame), -1)] * len(model.transfer.hands))
        if choice is not None:
            near = replace(near, choice=choice)
        perturbations = self.diffusion.perturbations(generator(seed), model.transfer.chunk_size)
        penalty = Penalty.none() if state is None else state.on(model.store).penalty
        return self._backend.reference.denoiser(model, near, penalty, perturbations)

    def conditioned(self, state: State, window: np.ndarray, prefix: ActionPrefix) -> State:
        """The state from which the next plan, for a checked window (N_o, D_o), continues actions."""
        if not self.config.tau or self.targets is not None:
            return super().conditioned(state, window, prefix)
        model = self.model
        penalty = prefix.penalty(model, window, self.n_neighbors(model), self.config.tau)
        return replace(state.on(model.store), once=penalty)

    def check_size(self, model: Model, n_plans: int, n_samples: int) -> None:
        """Refuses to plan if it would take too much memory.

        This counts the random numbers of all plans, and the neighbors' chunks and logits of one plan; the reference
        computes all samples of a plan at once.
        """
        config, size = self.config, model.transfer.chunk_size
        n_perturbations = config.n_perturbations if config.tau else 1
        n_steps = config.n_diffusion_steps if config.sampler == "ddpm" else 0
        drawn = n_plans * (n_samples * (2 + n_steps) + n_perturbations) * size
        at_once = 1 if kernels.enabled() else n_samples
        weighed = self.n_neighbors(model) * (2 * size + 3 * at_once * n_perturbations)
        self._refuse_larger(drawn + weighed, n_plans, n_samples)

    def batch_planner(self, device: str = "cuda") -> BatchPlanner:
        """A planner for many observations at once on a GPU, with the current demonstrations."""
        from closedform.policies.backends.batch_planner import BatchPlanner

        return BatchPlanner(self, device)
