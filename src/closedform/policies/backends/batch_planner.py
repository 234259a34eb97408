"""BatchPlanner: plans for many observations in one call on a GPU (extra `neural`)."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.diffusion.denoiser import ClosedForm
from closedform.diffusion.mixture import ROUNDING
from closedform.errors import ConfigError, MissingExtraError
from closedform.policies.backends.device_store import on_device, padded
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan_batch import PlanBatch
from closedform.policies.randomness import Seed, generator

if TYPE_CHECKING:
    import torch

    from closedform.policies.closed_form import ClosedFormPolicy

_DISTANCES_AT_ONCE = 2**29  # numbers in the largest matrix, 2 GiB
_SAMPLES_AT_ONCE, LOGITS_AT_ONCE = 2**16, 2**27
N_KEPT = 64 + 1024 + 1  # neighbors that the fused kernel sees, and one to bound the rest
_SECOND_AT_ONCE, _SECOND_SEES = (64, 1024), 64 + 2048  # samples that get a second try, and neighbors that it sees
_REDONE_AT_ONCE = 32  # samples computed at once with all neighbors
_N_GRAPHS = 12  # batch shapes whose graphs are kept


class BatchPlanner:
    """The demonstrations of a closed-form policy on a device, as they were when it was made.

    Plans are those of the policy in float32: search, metric, frames and candidates in torch, and all diffusion steps of
    a sample in one fused kernel. Between observations and chunks, nothing is copied back to the host except which
    samples are left over, if any. On a GPU the work for each batch shape is captured once as a graph and then replayed.
    Threads that share a planner wait for each other.

        planner = policy.batch_planner("cuda")
        chunks = planner.sample(observations, n_samples=8)

    Args:
        policy: a `ClosedFormPolicy`.
        device: `cuda`, or any other torch device; `cpu` computes the same without the fused kernel.
    """

    def __init__(self, policy: ClosedFormPolicy, device: str = "cuda"):
        try:
            import torch
        except ImportError as error:
            raise MissingExtraError("torch", "neural", "planning on a device") from error
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise ConfigError(f"device: expected one that torch can use here, found {device!r}") from error
        if self.device.type == "cuda" and importlib.util.find_spec("triton") is None:
            raise ConfigError(
                "device: expected triton beside torch for planning on 'cuda', found none; pip install triton"
            )
        self.policy, self.model = policy, policy.model
        self.device_store, self._center = on_device(self.model, self.tensor)
        if self.device.type == "cuda" and policy.diffusion.steps[:, 5].any():
            raise ConfigError(f"sampler: expected one of a single stage on 'cuda', found {policy.config.sampler!r}")
        self._steps = self.tensor(policy.diffusion.steps[:, :5])
        if self.device_store.normalized is not None:
            bounds = self.device_store.normalized.aminmax(dim=0)
            self._range = [bound.repeat(policy.config.n_action_steps)[None] for bound in bounds]
        self._lock = threading.Lock()
        self._graphs: dict[tuple[str, int, int], Callable[..., Any]] = {}

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array on the device, in float32."""
        import torch

        return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float32).to(self.device)

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a), as `ClosedFormPolicy.sample`, but with different random numbers."""
        import torch

        windows = self.policy.sampling_windows(observations, n_samples)
        DemonstrationPolicy.check_size(self.policy, self.model, len(windows), int(n_samples))  # it draws in parts
        queries = self.queries(windows)
        rng = torch.Generator(self.device).manual_seed(int(generator(seed).integers(2**63)))
        at_once = min(_DISTANCES_AT_ONCE // len(self.model), _SAMPLES_AT_ONCE // int(n_samples))
        if self.device.type != "cuda":
            at_once = min(at_once, self._unfused_at_once(int(n_samples)))
        parts = [self.chunks(some, int(n_samples), rng) for some in queries.split(max(1, at_once))]
        chunks, choices, distances, mixed = (
            np.concatenate([part[i].cpu().numpy() for part in parts]) for i in range(4)
        )
        model, shape = self.model, (len(chunks), int(n_samples))
        batch = PlanBatch.unfilled(*shape, model.transfer.chunk_size, 0, choices.shape[1])._replace(
            chunks=chunks.astype(np.float64),
            choices=choices,
            distances=distances,
            mixed=mixed,
        )
        actions = model.transfer.back(batch.chunks, choices, windows[:, -1])
        checked = batch._replace(actions=actions).checked(model, windows)
        return self.policy.planner_of(model).to_robot(checked.actions, windows)

    def queries(self, windows: np.ndarray) -> torch.Tensor:
        """Features of observation windows, as the device stores those of the demonstrations, and poses after them."""
        features = padded(self.model.kernel.features(windows) - self._center)
        return self.tensor(np.hstack([features, self.model.transfer.poses(windows[:, -1]).reshape(len(windows), -1)]))

    def chunks(
        self, queries: torch.Tensor, n_samples: int, rng: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalized chunks (B, n, D), how they are transferred, distances, and whether chunks are mixtures (B, n)."""
        with self._lock:
            near, chunks = self.plan(queries, self.draw(len(queries), n_samples, rng))
            return chunks.clone(), near.choices.clone(), near.distances.clone(), near.contain(chunks)

    def plan(self, queries: torch.Tensor, numbers: Numbers) -> tuple[Neighbors, torch.Tensor]:
        """The neighbors of queries, and chunks (B, n, D) made from random numbers; the next call overwrites both."""

        if self.device.type != "cuda":
            return self._unfused(queries, numbers)
        near, chunks, left_over = self._replay(self._fused, queries, numbers)
        samples = left_over.nonzero()
        if len(samples) and self._k <= _SECOND_SEES:  # neighbors with little weight at first may matter later
            at_once = _SECOND_AT_ONCE[len(samples) > _SECOND_AT_ONCE[0]]
            samples = self._redo(self._fused_in_order, samples, at_once, queries, numbers, near, chunks)
        if len(samples):  # more neighbors matter than the fused kernel can hold
            at_once = min(_REDONE_AT_ONCE, self._unfused_at_once(1))
            self._redo(self._unfused, samples, at_once, queries, numbers, near, chunks)
        return near, chunks

    def _redo(
        self,
        plan: Callable[..., Any],
        samples: torch.Tensor,
        at_once: int,
        queries: torch.Tensor,
        numbers: Numbers,
        near: Neighbors,
        chunks: torch.Tensor,
    ) -> torch.Tensor:
        """Makes some samples (m, 2), of plan and sample, again, in batches; returns those still left over."""
        import torch

        left = [samples[:0]]
        for some in samples.split(at_once):
            padded = torch.cat([some, some[:1].expand(at_once - len(some), 2)])
            plans, which = padded.T
            attempts = chunks[plans, which][:, None]
            found, made, *left_over = self._replay(plan, queries[plans], numbers.of(plans, which), attempts)
            chunks[some[:, 0], some[:, 1]] = made[: len(some), 0]
            if self.device_store.normalized is None:
                near.low[some[:, 0]], near.high[some[:, 0]] = found.low[: len(some)], found.high[: len(some)]
            left += [some[each[: len(some), 0] > 0] for each in left_over]
        return torch.cat(left)

    def _unfused_at_once(self, n_samples: int) -> int:
        """How many plans fit at once, given the logits of all samples, perturbations and neighbors."""
        return max(1, LOGITS_AT_ONCE // (n_samples * self.policy.config.n_perturbations * self._k))

    def _fused(
        self, queries: torch.Tensor, numbers: Numbers, attempts: torch.Tensor
    ) -> tuple[Neighbors, torch.Tensor, torch.Tensor]:
        near = self.neighbors(queries)
        return near, *self._diffuse_fused(near, numbers)

    def _fused_in_order(
        self, queries: torch.Tensor, numbers: Numbers, attempts: torch.Tensor
    ) -> tuple[Neighbors, torch.Tensor, torch.Tensor]:
        """All neighbors, ordered by their weight where the first attempts (B, 1, D) ended, or at the start."""
        from closedform.kernels.triton_diffuse import SECOND_TILES
        from closedform.policies.backends import torch_plan

        near = self.neighbors(queries, everything=True)
        chunks = self.gathered(near, attempts.shape[2])
        gain, sigma = self._steps[-1, 0], self._steps[-1, 1]
        late = torch_plan.lead(chunks, near.log_weights, numbers.perturbations, attempts[:, 0], gain, sigma)
        order = late.maximum(near.log_weights).argsort(1, descending=True)
        near = replace(near, offsets=near.offsets.gather(1, order), log_weights=near.log_weights.gather(1, order))
        return near, *self._diffuse_fused(near, numbers, SECOND_TILES)

    def _unfused(
        self, queries: torch.Tensor, numbers: Numbers, attempts: torch.Tensor | None = None
    ) -> tuple[Neighbors, torch.Tensor]:
        near = self.neighbors(queries, everything=True)
        return near, self._diffuse_all(near, numbers)

    def draw(self, n_plans: int, n_samples: int, rng: torch.Generator) -> Numbers:
        """Random numbers for some plans."""
        import torch

        config, size = self.policy.config, self.model.transfer.chunk_size

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=rng, device=self.device)

        fresh = normal(len(self._steps), n_plans, n_samples, size) if self._steps[:, 4].any() else None
        if fresh is not None:
            fresh[-1] = 0.0  # the last step adds none
        n_perturbations = config.n_perturbations if config.tau else 1
        return Numbers(
            noise=normal(n_plans, n_samples, size),
            perturbations=config.tau * normal(n_plans, n_perturbations, size),
            fresh=fresh,
        )

    @property
    def _k(self) -> int:
        return self.policy.n_neighbors(self.model)

    def neighbors(self, queries: torch.Tensor, *, everything: bool = False) -> Neighbors:
        """The neighbors with the most weight for each query (B, D_z): as many as the fused kernel sees, or all."""
        import torch

        from closedform.policies.backends import torch_plan

        store = self.device_store
        width = store.features.shape[1]
        poses, queries = queries[:, width:], queries[:, :width].contiguous()
        if poses.shape[1]:
            poses = poses.reshape(len(queries), *store.rows.poses.shape[1:])
        rows = torch_plan.nearest_rows(store, queries, self._k)
        squared = torch_plan.squared_distances(store, queries, rows)
        choices = torch_plan.choose_transfer(store, rows, squared, poses)
        log_weights = torch_plan.log_weights_of(store, queries, rows, squared)
        measured = torch.isfinite(store.metric.precision * squared.amax(1)) & ~log_weights.isnan().any(1)
        distances = torch.where(measured, squared.amin(1).sqrt(), torch.nan)
        n_kept = self._k if everything else min(self._k, N_KEPT)
        log_weights, order = log_weights.sort(1, descending=True)
        log_weights, rows = log_weights[:, :n_kept].contiguous(), rows.gather(1, order[:, :n_kept])
        width = store.rows.actions.shape[1]
        if store.normalized is not None:
            offsets = store.rows.starts[rows] * width
            return Neighbors(choices, distances, store.normalized, offsets, log_weights, *self._range)
        encoded = torch_plan.encoded_chunks(store, rows)
        chunks = torch_plan.transferred(store, encoded, store.rows.poses[rows], choices)
        chunks = torch_plan.normalized(store, chunks, choices)
        size = self.policy.config.n_action_steps * width
        offsets = torch.arange(0, rows.numel() * size, size, device=rows.device).view(rows.shape)
        return Neighbors(choices, distances, chunks, offsets, log_weights, *chunks.flatten(2).aminmax(dim=1))

    def gathered(self, near: Neighbors, size: int) -> torch.Tensor:
        """The chunks of neighbors, (B, m, D)."""
        import torch

        return near.chunks.reshape(-1)[near.offsets[..., None] + torch.arange(size, device=self.device)]

    def _diffuse_all(self, near: Neighbors, numbers: Numbers) -> torch.Tensor:
        """The reference's own denoiser and sampler, on tensors."""
        diffusion, chunks = self.policy.diffusion, self.gathered(near, numbers.noise.shape[2])
        denoiser = ClosedForm(diffusion.process, chunks, near.log_weights, numbers.perturbations)
        n_steps, rng = diffusion.config.n_diffusion_steps, None if numbers.fresh is None else _Drawn(numbers.fresh)
        return diffusion.sampler(denoiser, diffusion.process, numbers.noise, n_steps=n_steps, rng=rng)

    def _diffuse_fused(
        self, near: Neighbors, numbers: Numbers, tiles: tuple[tuple[int, int, bool], ...] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        from closedform.kernels.triton_diffuse import TILES, diffuse, steps_with_drift

        return diffuse(
            near.chunks,
            near.offsets,
            near.log_weights,
            numbers.perturbations,
            numbers.noise,
            numbers.fresh,
            steps_with_drift(self._steps),
            self.policy.diffusion.cut(self._k),
            tiles or TILES,
        )

    def _replay(
        self, plan: Callable[..., Any], queries: torch.Tensor, numbers: Numbers, attempts: torch.Tensor | None = None
    ) -> Any:
        """Runs a planning method, whose work for batches of this shape is captured at the first call."""
        import torch

        key = plan.__name__, len(queries), numbers.noise.shape[1]
        attempts = queries[:0] if attempts is None else attempts
        with torch.cuda.device(self.device):
            graph = self._graphs.pop(key, None)
            graph = graph or _capture(plan, queries.clone(), numbers.clone(), attempts.clone())
            self._graphs[key] = graph  # most recently used last
            if len(self._graphs) > _N_GRAPHS:
                del self._graphs[next(iter(self._graphs))]
            return graph(queries, numbers, attempts)


def _capture(
    plan: Callable[..., Any], queries: torch.Tensor, numbers: Numbers, attempts: torch.Tensor
) -> Callable[..., Any]:
    """A function like `plan` that replays its work on the device; the next call overwrites its results."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiling and allocating must not happen while capturing
        plan(queries, numbers, attempts)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        planned = plan(queries, numbers, attempts)

    def replay(new_queries: torch.Tensor, new_numbers: Numbers, new_attempts: torch.Tensor) -> Any:
        queries.copy_(new_queries)
        numbers.copy_(new_numbers)
        attempts.copy_(new_attempts)
        graph.replay()
        return planned

    return replay


class _Drawn:
    """Fresh noise (S, B, n, D) drawn in advance, served to a sampler step by step."""

    def __init__(self, fresh: torch.Tensor):
        self._left = iter(fresh)

    def standard_normal(self, size: Any) -> torch.Tensor:
        """The noise of the next step."""
        return next(self._left)


@dataclass(frozen=True)
class Numbers:
    """Random numbers of B plans: noise (B, n, D), perturbations (B, M, D), and fresh (S, B, n, D) or None."""

    noise: torch.Tensor
    perturbations: torch.Tensor
    fresh: torch.Tensor | None

    @classmethod
    def like_the_reference(cls, planner: BatchPlanner, n_plans: int, rng: np.random.Generator) -> Numbers:
        """The numbers that the reference draws for plans of one sample each with a deterministic sampler."""
        diffusion, size = planner.policy.diffusion, planner.model.transfer.chunk_size
        pairs = [(rng.standard_normal((1, size)), diffusion.perturbations(rng, size)) for _ in range(n_plans)]
        noise, perturbations = (planner.tensor(np.array(part)) for part in zip(*pairs, strict=True))
        return cls(noise, perturbations, None)

    def of(self, plans: torch.Tensor, samples: torch.Tensor) -> Numbers:
        """The numbers of one sample each of some plans."""
        fresh = None if self.fresh is None else self.fresh[:, plans, samples][:, :, None]
        return Numbers(self.noise[plans, samples][:, None], self.perturbations[plans], fresh)

    def clone(self) -> Numbers:
        """A copy."""
        return Numbers(
            self.noise.clone(), self.perturbations.clone(), None if self.fresh is None else self.fresh.clone()
        )

    def copy_(self, other: Numbers) -> None:
        """Copies the numbers of others of the same shape."""
        self.noise.copy_(other.noise)
        self.perturbations.copy_(other.perturbations)
        if self.fresh is not None and other.fresh is not None:
            self.fresh.copy_(other.fresh)


@dataclass(frozen=True)
class Neighbors:
    """The neighbors with the most weight for each of B plans.

    Attributes:
        choices: (B, H, 2); distances: (B,), to the nearest; NaN if some distances are not finite.
        chunks, offsets: the chunk of neighbor i of plan b begins at number offsets[b, i] of chunks.
        log_weights: (B, m), the largest first, which is 0.
        low, high: (B, D) or (1, D), the range of chunks, of these neighbors or of all.
    """

    choices: torch.Tensor
    distances: torch.Tensor
    chunks: torch.Tensor
    offsets: torch.Tensor
    log_weights: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def contain(self, samples: torch.Tensor) -> torch.Tensor:
        """Whether each sample lies within the range of chunks, up to rounding. (B, n, D) -> (B, n)."""
        slack = ROUNDING * (1 + self.high - self.low)
        inside = (samples >= (self.low - slack)[:, None]) & (samples <= (self.high + slack)[:, None])
        return inside.all(-1)
