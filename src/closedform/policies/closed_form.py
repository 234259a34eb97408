"""ClosedFormPolicy: the paper's Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from closedform import kernels
from closedform.demos.episode import real_array
from closedform.diffusion.denoiser import ClosedForm
from closedform.diffusion.mixture import is_mixture
from closedform.diffusion.sampler import SAMPLERS, Step, ddpm, step_weights
from closedform.errors import DataError
from closedform.kernels.records import Candidates, Draws, Metric, Observed, Planned, Rows, Sampling, Told
from closedform.policies.compiled import as_made, plan_each, unfilled
from closedform.policies.config import ClosedFormConfig, PolicyConfig
from closedform.policies.deadline import seconds_not_cut
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.generated import NEGLIGIBLE, Generated, Made, unmeasured
from closedform.policies.loop_memory import LoopMemory
from closedform.policies.randomness import Seed, generator
from closedform.policies.saving import register_policy
from closedform.provenance import n_cores
from closedform.retrieval.frame import N_VOTERS
from closedform.retrieval.model import Model
from closedform.retrieval.neighborhood import Neighborhood
from closedform.retrieval.pace import plan_begins
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.store import Store

if TYPE_CHECKING:
    from closedform.policies.batch_planner import BatchPlanner

HEADROOM = 1e-4  # fraction of pruning_error that one step may drop; the rest is headroom for steps that amplify it
_BATCH_PER_THREAD = 8  # plans; with fewer, another thread costs more than it saves
_NONE_FOUND = np.empty((0, 0), np.int64)


@register_policy
class ClosedFormPolicy(DemonstrationPolicy[ClosedFormConfig]):
    """A diffusion policy whose score is computed in closed form from the demonstrations.

    For each plan it takes the nearest demonstrations of the observation, weights them with the observation kernel, and
    runs noise through the diffusion process with the smoothed conditional score of their chunks
    (eq:smoothed_cond_kernel).
    """

    config_class: ClassVar[type[PolicyConfig]] = ClosedFormConfig

    def _cautions(self) -> list[str]:
        config, model, cautions = self.config, self._model, super()._cautions()
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

    def denoiser(
        self,
        observation: Any,
        *,
        seed: Seed = None,
        frame: str | None = None,
        choice: np.ndarray | None = None,
        penalty: Callable[[Store], Penalty] | None = None,
    ) -> ClosedForm:
        """The closed-form denoiser for one observation, on normalized chunks.

        Run it with `diffusion.sampler`, to visualize sampling or to edit other policies.

        Args:
            observation: (D_o,) or a window (N_o, D_o).
            seed: of the perturbations.
            frame: the name of a frame for all hands; by default each uses the best one.
            choice: instead of a frame, how a plan transferred its demonstrations.
            penalty: as in `plan_with_model`.
        """
        model = self._model
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
        perturbations = self.perturbations(generator(seed), model)
        extra = Penalty.none() if penalty is None else penalty(model.store)
        return self._denoiser(model, near, extra, perturbations)

    def _plan(
        self,
        windows: np.ndarray,
        rng: np.random.Generator,
        penalty: Callable[[Store], Penalty] | None,
        began: float,
        lead: np.ndarray | None = None,
    ) -> Made:
        """Plans in one compiled call if rows are arrays; if that fails, the longer path raises the error."""
        plan_begins()
        model = self._model
        everything, stop_at = model.rows_record, self._deadline.stop_at(began)
        if everything is None or model.kernel.unhooked or stop_at < math.inf or not kernels.enabled():
            return super()._plan(windows, rng, penalty, began, lead)
        from closedform.kernels.plan import plan_one

        if not plan_one.overloads:
            with kernels.announced(plan_one):
                self._plan_one(plan_one, model, everything, windows, np.random.default_rng(0), Penalty.none())
        extra = Penalty.none() if penalty is None else penalty(model.store)
        made = self._plan_one(plan_one, model, everything, windows, rng, extra, lead)
        return super()._plan(windows, rng, penalty, began, lead) if made is None else made

    def _plan_one(
        self,
        plan_one: Callable[..., int],
        model: Model,
        everything: Rows,
        windows: np.ndarray,
        rng: np.random.Generator,
        penalty: Penalty,
        lead: np.ndarray | None = None,
    ) -> Made | None:
        kernel, transfer = model.kernel, model.transfer
        k, size = self.n_neighbors(model), transfer.chunk_size
        lifted = kernel.spec.feature_map.lift(windows)
        planned = unfilled(1, 1, size, k, len(transfer.hands))
        told = Told(np.empty((1, 1, size)), np.empty(k, np.int64), np.empty(k))
        count = plan_one(
            everything,
            kernel.record,
            kernel.term_records(penalty),
            transfer.record,
            Sampling(self.steps, self.cut(k), math.inf),
            self.draw(rng, 1, 1, size),
            Observed(lifted, kernel.offset, kernel.scale, transfer.poses(windows[:, -1])),
            k,
            NEGLIGIBLE,
            planned,
            told,
        )
        return as_made(self, model, windows, count, planned, told, lead)

    def _plan_several(
        self, windows: Sequence[np.ndarray], rngs: Sequence[np.random.Generator], memories: Sequence[LoopMemory]
    ) -> list[Made]:
        """In one compiled call if rows are arrays; the plans that it cannot make raise their errors one by one."""
        model = self._model
        everything, began = model.rows_record, self._deadline.clock()
        alone = len(windows) == 1 or model.kernel.unhooked or self.config.deadline is not None
        if everything is None or alone or not kernels.enabled():
            return super()._plan_several(windows, rngs, memories)
        plan_begins()
        stacked, states = np.stack(windows), [rng.bit_generator.state for rng in rngs]
        penalties, leads = [each.penalty(model.store) for each in memories], [each.lead for each in memories]
        made = plan_each(self, model, everything, stacked, rngs, penalties, leads)
        for b, each in enumerate(made):
            if each is None:
                rngs[b].bit_generator.state = states[b]
                made[b] = self._plan(stacked[b : b + 1], rngs[b], memories[b].penalty, began, leads[b])
        return [each for each in made if each is not None]

    def _generate(
        self,
        model: Model,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        began: float | None = None,
    ) -> Generated:
        stop_at = self._deadline.stop_at(began)
        generate = self._generate_reference
        if kernels.enabled() and (stop_at == math.inf or kernels.has_clock()):
            generate = self._generate_compiled
        made = generate(model, windows, n_samples, rng, penalty, explain=explain, stop_at=stop_at)
        if stop_at == math.inf:
            return made
        return replace(made, complete=bool((made.n_steps == self.config.n_diffusion_steps).all()))

    def _generate_reference(
        self,
        model: Model,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        stop_at: float = math.inf,
    ) -> Generated:
        """One observation after the other through `diffusion/`."""
        queries, poses = model.kernel.features(windows), model.transfer.poses(windows[:, -1])
        sampler, process, clock = SAMPLERS[self.config.sampler], self.config.make_process(), self._deadline.clock
        k, size, n_steps = self.n_neighbors(model), model.transfer.chunk_size, self.config.n_diffusion_steps
        made = unfilled(len(queries), n_samples, size, k, len(model.transfer.hands))
        made.rows[:], made.weights[:] = -1, 0.0
        for b, query in enumerate(queries):
            near = model.neighborhood(query, k, poses[b])
            noise = rng.standard_normal((n_samples, size))
            denoiser = self._denoiser(model, near, penalty, self.perturbations(rng, model), b)
            last: list[Step] = []
            extra = {"rng": rng} if sampler is ddpm else {}

            def keep_last(step: Step, last: list[Step] = last) -> None:
                last[:] = [step]
                if step.index + 1 < n_steps and clock() >= stop_at:
                    raise _OutOfTimeError

            try:
                made.chunks[b] = sampler(denoiser, process, noise, n_steps=n_steps, callback=keep_last, **extra)
            except _OutOfTimeError:
                made.chunks[b] = last[0].denoised
            made.n_steps[b], made.ended[b] = last[0].index + 1, clock()
            made.choices[b], made.distances[b] = near.choice, near.distance
            made.rows[b, : len(near.rows)] = near.rows
            made.weights[b, :, : len(near.rows)] = denoiser.weights(last[0].sample, last[0].time)
            made.mixed[b] = is_mixture(made.chunks[b], denoiser.actions)
        return _generated(made)

    def _generate_compiled(
        self,
        model: Model,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        stop_at: float = math.inf,
    ) -> Generated:
        """All observations through the fused kernel, on all cores if there are many."""
        from closedform.kernels.plan import plan_batch

        queries, poses = model.kernel.features(windows), model.transfer.poses(windows[:, -1])
        k, size = self.n_neighbors(model), model.transfer.chunk_size
        planned = unfilled(len(queries), n_samples, size, k if explain else 0, len(model.transfer.hands))
        draws = self.draw(rng, len(queries), n_samples, size)
        metric, transfers = model.kernel.record, model.transfer.record
        sampling = Sampling(self.steps, self.cut(k), stop_at)
        everything = None if model.kernel.unhooked else model.rows_record
        n_threads = len(queries) // _BATCH_PER_THREAD
        n_threads = min(n_cores(), n_threads) if n_threads > 1 else 1
        if everything is not None and n_threads == 1 and plan_batch.overloads:
            terms = model.kernel.term_records(penalty)
            plan_batch(everything, metric, terms, transfers, sampling, draws, queries, poses, k, _NONE_FOUND, planned)
            return _generated(planned)

        def run(part: slice, rows: Rows, metric: Metric, found: np.ndarray, penalty: Penalty) -> None:
            terms, some = model.kernel.term_records(penalty), Draws(*(each[part] for each in draws))
            made = Planned(*(each[part] for each in planned))
            plan_batch(rows, metric, terms, transfers, sampling, some, queries[part], poses[part], k, found, made)

        def run_found(b: int) -> None:
            """Finds the rows with the index before it calls the compiled planner."""
            rows, some, metric = model.found(queries[b], k, penalty)
            here, extra = np.arange(len(rows)), penalty.at(rows)
            for term in model.kernel.unhooked:
                extra = extra + term(Candidates(queries[b], rows, some.columns.T, some.episodes))
            found = np.pad(here, (0, k - len(rows)), constant_values=-1)[None]
            run(slice(b, b + 1), some, metric, found, Penalty(here, extra))
            if explain:
                planned.rows[b, : len(rows)] = rows

        jobs: list[Callable[[], None]]
        if everything is None:
            jobs = [partial(run_found, b) for b in range(len(queries))]
        else:
            bounds = np.linspace(0, len(queries), n_threads + 1).astype(int)
            jobs = [partial(run, slice(a, b), everything, metric, _NONE_FOUND, penalty) for a, b in pairwise(bounds)]
        if n_threads > 1 and plan_batch.overloads:  # compiling in several threads at once would take longer
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(lambda job: job(), jobs))
        else:
            with kernels.announced(plan_batch):
                for job in jobs:
                    job()
        return _generated(planned)

    def draw(self, rng: np.random.Generator, n_plans: int, n_samples: int, size: int) -> Draws:
        """Random numbers, plan by plan."""
        n_steps = len(self.steps) if self.config.sampler == "ddpm" else 0
        n_perturbations = self.config.n_perturbations if self.config.tau else 0
        n_fresh = max(n_steps - 1, 0) * n_samples  # the last step adds none
        drawn = rng.standard_normal((n_plans, n_samples + n_perturbations + n_fresh, size))
        perturbations = drawn[:, n_samples : n_samples + n_perturbations]
        perturbations *= self.config.tau
        fresh = np.zeros((n_plans, n_steps, n_samples, size))
        if n_fresh:
            fresh[:, :-1] = drawn[:, n_samples + n_perturbations :].reshape(n_plans, -1, n_samples, size)
        noise = np.ascontiguousarray(drawn[:, :n_samples])
        if not n_perturbations:
            return Draws(noise, np.zeros((n_plans, 1, size)), fresh)
        return Draws(noise, np.ascontiguousarray(perturbations), fresh)

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
        from closedform.policies.batch_planner import BatchPlanner

        return BatchPlanner(self, device)

    def cut(self, k: int) -> float:
        """Nats below the largest of k terms at which they are dropped."""
        dropped = self.config.pruning_error * HEADROOM
        return math.log(k / dropped) if dropped else math.inf

    @cached_property
    def steps(self) -> np.ndarray:
        """(S, 5), the sampler's steps as the kernel reads them: gain, noise, keep, jump, spread."""
        process = self.config.make_process()
        steps = step_weights(SAMPLERS[self.config.sampler], process, self.config.n_diffusion_steps)
        return np.array([(process.gain(s.time), process.noise(s.time), s.keep, s.jump, s.spread) for s in steps])

    def _denoiser(
        self, model: Model, near: Neighborhood, penalty: Penalty, perturbations: np.ndarray, number: int = 0
    ) -> ClosedForm:
        """The denoiser for one of several observations."""
        log_weights = near.log_weights(model, penalty)
        if log_weights is None:
            raise unmeasured(number)
        return ClosedForm(
            process=self.config.make_process(),
            actions=model.normalized_chunks(near.rows, near.choice),
            log_weights=log_weights,
            perturbations=perturbations,
        )

    def perturbations(self, rng: np.random.Generator, model: Model) -> np.ndarray:
        """(M, N_a * D) draws of N(0, tau^2 I), the same for all steps and samples; one zero without smoothing."""
        size = model.transfer.chunk_size
        if not self.config.tau:
            return np.zeros((1, size))
        return self.config.tau * rng.standard_normal((self.config.n_perturbations, size))


class _OutOfTimeError(Exception):
    """The deadline leaves no time for another step."""


def _generated(planned: Planned) -> Generated:
    *rest, mixed = planned
    return Generated(*rest, mixed=mixed)
