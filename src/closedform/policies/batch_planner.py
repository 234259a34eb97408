"""BatchPlanner: plans for many observations in one call on a GPU (extra `neural`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.errors import ConfigError, MissingExtraError
from closedform.policies.demonstration_policy import Generated, refuse_unmeasured
from closedform.policies.randomness import Seed, generator
from closedform.retrieval.store import Store

if TYPE_CHECKING:
    import torch

    from closedform.kernels.torch_plan import DeviceStore
    from closedform.policies.closed_form import ClosedFormPolicy

DISTANCES_AT_ONCE = 2**29  # numbers in the largest matrix, 2 GiB
REDONE_AT_ONCE = 256  # samples that all neighbours are weighed for
N_GRAPHS = 8  # shapes of batches whose graphs are kept


class BatchPlanner:
    """The demonstrations of a closed-form policy on a device, as they were when it was made.

    Plans are those of the policy in float32: search, metric, frames and candidates in torch, and all diffusion steps of
    a sample in one fused kernel. Between the observations going in and the chunks coming out nothing returns to the
    host. On a GPU the work for each shape of batch is captured once as a graph and replayed after that.

        planner = policy.batch_planner("cuda")
        chunks = planner.sample(observations, n_samples=8)

    Args:
        policy: a `ClosedFormPolicy`.
        device: `cuda`, or any other of torch's; `cpu` computes the same with nothing fused.
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
        self.policy, self._host = policy, policy._store
        self._store, self._centre = _on_device(policy, self._host, self._tensor)
        self._steps = self._tensor(policy._steps)
        self._graphs: dict[tuple[int, int], Callable[..., Any]] = {}

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        import torch

        return torch.as_tensor(np.ascontiguousarray(array), dtype=torch.float32).to(self.device)

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a), as `ClosedFormPolicy.sample`; the numbers drawn are others."""
        import torch

        windows = self.policy._sampling_windows(observations, n_samples)
        queries = self._queries(windows)
        rng = torch.Generator(self.device).manual_seed(int(generator(seed).integers(2**63)))
        made = []
        at_once = max(1, DISTANCES_AT_ONCE // max(len(self._host), 1))
        for start in range(0, len(queries), at_once):
            made.append(self._sample(queries[start : start + at_once], int(n_samples), rng))
        chunks, carries, distances = (np.concatenate(parts) for parts in zip(*made, strict=True))
        none = np.empty((len(chunks), 0), np.int64)
        generated = Generated(chunks, carries, distances, rows=none, weights=none[..., None], n_steps=none)
        refuse_unmeasured(generated)
        return self.policy._to_robot(self._host, windows, generated)

    def _queries(self, windows: np.ndarray) -> torch.Tensor:
        return self._tensor(_padded(self._host.features_of(windows) - self._centre))

    def _sample(
        self, queries: torch.Tensor, n_samples: int, rng: torch.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Chunks, carries and distances of a part of the plans."""
        numbers = self._draw(len(queries), n_samples, rng)
        if self.device.type != "cuda":
            near = self._neighbours(queries, self._k)
            chunks = self._diffuse_all(near, numbers)
        else:
            near, chunks, left_over = self._graph(queries, n_samples)(queries, numbers)
            again = left_over.any(1).nonzero()[:, 0]  # more neighbours matter than the fused kernel holds
            if len(again):
                chunks = chunks.clone()
                for some in again.split(max(1, REDONE_AT_ONCE // n_samples)):
                    chunks[some] = self._diffuse_all(self._neighbours(queries[some], self._k), numbers.of(some))
        return chunks.double().cpu().numpy(), near.carries.cpu().numpy(), near.distances.double().cpu().numpy()

    def _draw(self, n_plans: int, n_samples: int, rng: torch.Generator) -> _Numbers:
        import torch

        config, size = self.policy.config, self.policy._chunk_size(self._host)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=rng, device=self.device)

        fresh = normal(len(self._steps), n_plans, n_samples, size) if config.sampler == "ddpm" else None
        if fresh is not None:
            fresh[-1] = 0.0  # the last step adds none
        n_perturbations = config.n_perturbations if config.tau else 1
        return _Numbers(
            noise=normal(n_plans, n_samples, size),
            perturbations=config.tau * normal(n_plans, n_perturbations, size),
            fresh=fresh,
        )

    @property
    def _k(self) -> int:
        return self.policy._n_neighbors(self._host)

    def _neighbours(self, queries: torch.Tensor, n_kept: int) -> _Neighbours:
        """The `n_kept` neighbours with most weight, of each of the queries (B, D_z)."""
        import torch

        from closedform.kernels import torch_plan

        config, store = self.policy.config, self._store
        precision = 1 / (2 * self.policy._bandwidth(self._centre) ** 2)
        rows = torch_plan.nearest_rows(store, queries, self._k)
        squared = torch_plan.squared_distances(store, queries, rows, config.regularization, self._host.shrinkage)
        carries = torch_plan.choose_carry(store, rows, squared, config.n_action_steps)
        log_weights = torch_plan.log_weights_of(store, queries, rows, squared, precision, config.goal_weight)
        measured = torch.isfinite(precision * squared.amax(1))
        distances = torch.where(measured, squared.amin(1).sqrt(), torch.nan)
        log_weights, order = log_weights.sort(1, descending=True)
        log_weights, rows = log_weights[:, :n_kept].contiguous(), rows.gather(1, order[:, :n_kept])
        size = config.n_action_steps * store.actions.shape[1]
        if store.normalised is not None:
            chunks, offsets = store.normalised, store.starts[rows] * store.actions.shape[1]
        else:
            encoded = torch_plan.encoded_chunks(store, rows, config.n_action_steps)
            chunks = torch_plan.carried(store, encoded, store.poses[rows], carries)
            chunks = torch_plan.normalised(store, chunks, carries)
            offsets = torch.arange(0, rows.numel() * size, size, device=rows.device).view(rows.shape)
        return _Neighbours(carries, distances, chunks, offsets, log_weights)

    def _diffuse_all(self, near: _Neighbours, numbers: _Numbers) -> torch.Tensor:
        import torch

        from closedform.kernels.torch_plan import diffuse_all

        size = torch.arange(numbers.noise.shape[2], device=self.device)
        chunks = near.chunks.reshape(-1)[near.offsets[..., None] + size]
        return diffuse_all(chunks, near.log_weights, numbers.perturbations, numbers.noise, numbers.fresh, self._steps)

    def _diffuse_fused(self, near: _Neighbours, numbers: _Numbers) -> tuple[torch.Tensor, torch.Tensor]:
        from closedform.kernels.triton_diffuse import diffuse, steps_with_drift

        return diffuse(
            near.chunks,
            near.offsets,
            near.log_weights,
            numbers.perturbations,
            numbers.noise,
            numbers.fresh,
            steps_with_drift(self._steps),
            self.policy._cut(self._k),
        )

    def _graph(self, queries: torch.Tensor, n_samples: int) -> Callable[..., Any]:
        """What plans for batches of this shape; the first call captures it."""
        key = len(queries), n_samples
        if key not in self._graphs:
            if len(self._graphs) >= N_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = self._capture(*key)
        return self._graphs[key]

    def _capture(self, n_plans: int, n_samples: int) -> Callable[..., Any]:
        import torch

        from closedform.kernels.triton_diffuse import N_KEPT

        queries = self._store.features[:1].repeat(n_plans, 1)
        numbers = self._draw(n_plans, n_samples, torch.Generator(self.device).manual_seed(0))

        def plan() -> tuple[_Neighbours, torch.Tensor, torch.Tensor]:
            near = self._neighbours(queries, min(self._k, N_KEPT))
            return near, *self._diffuse_fused(near, numbers)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles and allocates what must not happen while capturing
            plan()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            planned = plan()

        def replay(new_queries: torch.Tensor, new_numbers: _Numbers) -> tuple[_Neighbours, torch.Tensor, torch.Tensor]:
            queries.copy_(new_queries)
            numbers.copy_(new_numbers)
            graph.replay()
            return planned

        return replay


@dataclass(frozen=True)
class _Numbers:
    """Random numbers of B plans: noise (B, n, D), perturbations (B, M, D), and fresh (S, B, n, D) or None."""

    noise: torch.Tensor
    perturbations: torch.Tensor
    fresh: torch.Tensor | None

    def of(self, plans: torch.Tensor) -> _Numbers:
        """Those of some plans."""
        fresh = None if self.fresh is None else self.fresh[:, plans]
        return _Numbers(self.noise[plans], self.perturbations[plans], fresh)

    def copy_(self, other: _Numbers) -> None:
        """Takes over the numbers of others of the same shape."""
        self.noise.copy_(other.noise)
        self.perturbations.copy_(other.perturbations)
        if self.fresh is not None and other.fresh is not None:
            self.fresh.copy_(other.fresh)


@dataclass(frozen=True)
class _Neighbours:
    """The neighbours with most weight of B plans.

    Attributes:
        carries: (B, H, 2); distances: (B,), to the nearest, not a number where some could not be measured.
        chunks, offsets: the chunk of neighbour i of plan b begins at number offsets[b, i] of chunks.
        log_weights: (B, m), the largest first, which is 0.
    """

    carries: torch.Tensor
    distances: torch.Tensor
    chunks: torch.Tensor
    offsets: torch.Tensor
    log_weights: torch.Tensor


def _on_device(
    policy: ClosedFormPolicy, store: Store, tensor: Callable[[np.ndarray], torch.Tensor]
) -> tuple[DeviceStore, np.ndarray]:
    """A store's arrays in float32 on a device, and the middle of its features, which they are measured from."""
    import torch

    from closedform.kernels.torch_plan import DeviceStore

    spec, goal = store.spec, store.goal
    features = store.index.rows()
    centre = features.mean(0)
    centred = tensor(_padded(features - centre))
    factor = store.fixed_factor(policy.config.metric)
    blocks, frames, hands = spec.tables
    hand_of = np.zeros(spec.encoding.width, np.int64)
    for start, size, _, _, hand in blocks:
        hand_of[start : start + size] = hand

    def whole(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(array, np.int64)).to(centred.device)

    carries = len(spec.selected_frames) > 1 or spec.selected_frames[0].body >= 0 or any(h.holds for h in spec.hands)
    scaled = (store.actions - store.scaling.offset[0]) * store.scaling.scale[0]
    return DeviceStore(
        features=centred,
        width=features.shape[1],
        half_norms=0.5 * (centred * centred).sum(1),
        factor=tensor(factor) if factor.size else None,
        actions=tensor(store.actions),
        starts=whole(store.starts),
        row_episodes=whole(store.row_episodes),
        poses=tensor(store.poses),
        held=whole(store.held),
        frames=tuple((int(body), bool(turns), bool(full)) for body, turns, full in frames),
        frame_bodies=whole(frames[:, 0]),
        frame_turns=whole(frames[:, 1]) > 0,
        hands=tuple((body, position, rotation) for body, position, rotation in hands.tolist()),
        turns=tensor(store.carrier.turns),
        blocks=tuple(
            (start, size, bool(turns), bool(moves), hand) for start, size, turns, moves, hand in blocks.tolist()
        ),
        dimension=spec.body_poses.dimension,
        hand_of=whole(hand_of),
        offset=tensor(store.scaling.offset),
        scale=tensor(store.scaling.scale),
        weight=tensor(store.scaling.weight),
        normalised=None if carries else tensor(scaled),
        goal_columns=whole(goal.columns),
        goal_still=tensor((goal.ends[store.row_episodes] - features[:, goal.columns]).T),
        goal_middle=tensor(goal.middle - centre[goal.columns]),
        goal_scale=tensor(goal.scale),
        goal_tolerance=goal.tolerance,
        n_episodes=len(store.episodes),
    ), centre


def _padded(features: np.ndarray) -> np.ndarray:
    """With zeros up to a power of two of at least 16 columns, which a kernel reads faster."""
    width = max(16, 2 ** (features.shape[1] - 1).bit_length())
    return np.pad(features, ((0, 0), (0, width - features.shape[1])))
