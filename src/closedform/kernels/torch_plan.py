"""Plans for many observations at once on torch tensors: search, metric, frames and hands, candidates.

The same mathematics as the reference's in `retrieval/`, batched and in float32. Nothing waits for the device, so that
a whole plan can be captured as a CUDA graph.

Letters in shapes: B plans, n samples each, k neighbours, m of them with most weight, N rows, E episodes, H hands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from closedform.retrieval.frame import CLEARLY, N_AGREEING

Tensor = torch.Tensor
WIDEST = 64  # features that the fused metric holds


@dataclass(frozen=True)
class DeviceStore:
    """What a plan reads, on a device.

    Attributes:
        features: (N, >= D_z), less their mean, so that little is lost in float32, and padded with zeros.
        width: D_z.
        half_norms: (N,), half their squared lengths.
        factor: (D_z, D_z), of a metric that is the same everywhere, or None for the local one.
        actions: (steps, D), encoded; starts, row_episodes: (N,); poses: (N, bodies, width); held: (N, H)
        frames: of body, turns, whole; frame_bodies, frame_turns: (F,), the first two of these.
        hands: of body, position, rotation; turns: (H, 3, 3)
        blocks: of start, size, turns, moves, hand.
        dimension: 2 or 3, of space.
        hand_of: (D,), the hand that each number of an action belongs to.
        offset, scale: (F, D); weight: (D,); see `ActionScaling`.
        normalised: (steps, D), the actions as diffusion sees them where nothing is carried over; else None.
        goal_columns, goal_middle, goal_scale, goal_tolerance: see `Goal`; the middle less the features' mean.
        goal_still: (G, N), the motion that each row still makes.
        n_episodes: E.
    """

    features: Tensor
    width: int
    half_norms: Tensor
    factor: Tensor | None
    actions: Tensor
    starts: Tensor
    row_episodes: Tensor
    poses: Tensor
    held: Tensor
    frames: tuple[tuple[int, bool, bool], ...]
    frame_bodies: Tensor
    frame_turns: Tensor
    hands: tuple[tuple[int, int, int], ...]
    turns: Tensor
    blocks: tuple[tuple[int, int, bool, bool, int], ...]
    dimension: int
    hand_of: Tensor
    offset: Tensor
    scale: Tensor
    weight: Tensor
    normalised: Tensor | None
    goal_columns: Tensor
    goal_still: Tensor
    goal_middle: Tensor
    goal_scale: Tensor
    goal_tolerance: float
    n_episodes: int


def nearest_rows(store: DeviceStore, queries: Tensor, k: int) -> Tensor:
    """The k nearest rows in the Euclidean metric, in any order. (B, D_z) -> (B, k)."""
    if k >= len(store.features):
        return torch.arange(len(store.features), device=queries.device).repeat(len(queries), 1)
    closeness = torch.addmm(-store.half_norms, queries, store.features.T)
    return torch.topk(closeness, k, sorted=False).indices


def squared_distances(
    store: DeviceStore, queries: Tensor, rows: Tensor, regularization: float, shrinkage: float
) -> Tensor:
    """In the metric. (B, D_z), (B, k) -> (B, k)."""
    factor = store.factor
    if factor is None and queries.is_cuda and store.width <= WIDEST:
        from closedform.kernels.triton_metric import local_squared_distances

        return local_squared_distances(store.features, queries, rows, store.width, regularization, shrinkage)
    features, queries = store.features[rows][..., : store.width], queries[:, : store.width]
    if factor is None:
        deviations = features - features.mean(1, keepdim=True)
        covariance = deviations.mT @ deviations / max(rows.shape[1] - 1, 1)
        eye = torch.eye(queries.shape[1], device=queries.device)
        sphere = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]
        covariance = (1 - shrinkage) * covariance + (shrinkage * sphere + regularization) * eye
        factor = torch.linalg.cholesky_ex(covariance).L
    whitened = torch.linalg.solve_triangular(factor, (features - queries[:, None]).mT, upper=False)
    return (whitened * whitened).sum(1)


def goal_penalty(store: DeviceStore, queries: Tensor, rows: Tensor) -> Tensor:
    """`Goal.penalty` but for a constant. (B, D_z), (B, k) -> (B, k)."""
    needed = store.goal_middle - queries[:, store.goal_columns]
    total = torch.full(rows.shape, store.goal_tolerance, device=rows.device)
    for g, still in enumerate(store.goal_still):
        total += ((still[rows] - needed[:, g, None]) * store.goal_scale[g]) ** 2
    return torch.log(total)


def voters(store: DeviceStore, rows: Tensor, squared: Tensor) -> tuple[Tensor, Tensor]:
    """The reference's `voters`: indices into the neighbours (B, v), and their squared distances, infinite for none."""
    n_voters = min(N_AGREEING, rows.shape[1])
    nearest = torch.topk(squared, n_voters, largest=False)
    if store.n_episodes == 1:
        return nearest.indices, nearest.values
    # Distances are not negative, so that their bits are in their order; with the index below, one minimum finds both.
    here = torch.arange(rows.shape[1], device=rows.device)
    packed = (squared.contiguous().view(torch.int32).to(torch.int64) << 32) | here
    none = torch.iinfo(torch.int64).max
    best = torch.full((len(rows), store.n_episodes), none, device=rows.device)
    best.scatter_reduce_(1, store.row_episodes[rows], packed, "amin")
    chosen = torch.topk(best, min(n_voters, store.n_episodes), largest=False).values
    alone = (chosen[:, 1:2] == none) if chosen.shape[1] > 1 else torch.ones_like(chosen, dtype=torch.bool)
    missing = chosen.new_full((len(rows), n_voters - chosen.shape[1]), none)
    chosen = torch.cat([chosen, missing], 1)
    found = chosen != none
    indices = torch.where(found, chosen & 0xFFFFFFFF, 0)
    distances = torch.where(found, squared.gather(1, indices), torch.inf)
    return torch.where(alone, nearest.indices, indices), torch.where(alone, nearest.values, distances)


def choose_carry(store: DeviceStore, rows: Tensor, squared: Tensor, n_action_steps: int) -> Tensor:
    """For each hand the frame in which the voters' chunks agree best, and what it holds. -> (B, H, 2)."""
    world = next((f for f, (body, _, _) in enumerate(store.frames) if body < 0), 0)
    carry = torch.empty((len(rows), len(store.hands), 2), dtype=torch.int64, device=rows.device)
    carry[..., 0], carry[..., 1] = world, -1
    holding = any(min(hand) >= 0 for hand in store.hands)
    if len(store.frames) == 1 and not holding:
        return carry
    indices, distances = voters(store, rows, squared)
    votes = torch.isfinite(distances)
    mean = torch.where(votes, distances, 0).sum(1) / votes.sum(1)
    weights = torch.exp(-0.5 * distances / mean.clamp(min=1e-30)[:, None])
    weights = torch.where(votes, weights, 0)
    weights = (weights / weights.sum(1, keepdim=True))[:, :, None, None]
    voting = rows.gather(1, indices)
    encoded = encoded_chunks(store, voting, n_action_steps)
    poses = store.poses[voting]
    for h in range(len(store.hands)):
        held = store.held[voting, h]
        same = ((held[:, :, None] == held[:, None]) & votes[:, None]).sum(2)
        wins = votes & (2 * same > votes.sum(1, keepdim=True))
        carry[:, h, 1] = torch.where(wins, held, -1).amax(1)
        best, least = carry[:, h, 0].clone(), torch.full((len(rows),), torch.inf, device=rows.device)
        share = torch.where(store.hand_of == h, store.weight, 0)
        for f, (body, _, whole) in enumerate(store.frames):
            carry[:, h, 0] = f
            chunks = carried(store, encoded, poses, carry)
            deviations = chunks - (weights * chunks).sum(1, keepdim=True)
            variance = (weights * deviations * deviations * share).sum((1, 2, 3)) * (1.0 if whole else CLEARLY)
            better = variance < least * (1 - 1e-6) - 1e-12
            if body >= 0:
                better &= carry[:, h, 1] != body
            best, least = torch.where(better, f, best), torch.where(better, variance, least)
        carry[:, h, 0] = best
    return carry


def encoded_chunks(store: DeviceStore, rows: Tensor, n_action_steps: int) -> Tensor:
    """(B, m) -> (B, m, N_a, D)."""
    return store.actions[store.starts[rows][..., None] + torch.arange(n_action_steps, device=rows.device)]


def carried(store: DeviceStore, encoded: Tensor, poses: Tensor, carry: Tensor) -> Tensor:
    """`Carrier.into` with a carry for each plan. (B, m, N_a, D), (B, m, bodies, width), (B, H, 2) -> (B, m, N_a, D)."""
    result = encoded.clone()
    if not poses.shape[2]:
        return result
    d = store.dimension
    for h, (hand, position, rotation) in enumerate(store.hands):
        if min(hand, position, rotation) < 0:
            continue
        held = carry[:, h, 1]
        onto = _onto_held(result, poses[:, :, hand], _pick(poses, held), position, rotation, store.turns[h])
        result = torch.where((held >= 0)[:, None, None, None], onto, result)
    for h in range(len(store.hands)):
        body, turns = store.frame_bodies[carry[:, h, 0]], store.frame_turns[carry[:, h, 0]]
        pose = _pick(poses, body)
        axes = torch.where(turns[:, None, None, None], _axes(pose, d), torch.eye(d, device=poses.device))
        origin = torch.where((body >= 0)[:, None, None], pose[..., :d], 0)
        for start, size, turning, moves, owner in store.blocks:
            if owner == h and turning and size == d:
                vectors = result[..., start : start + size]
                vectors = vectors - origin[:, :, None] if moves else vectors
                turned = (vectors[..., c, None] * axes[:, :, None, c] for c in range(size))
                result[..., start : start + size] = sum(turned)
    return result


def normalised(store: DeviceStore, chunks: Tensor, carry: Tensor) -> Tensor:
    """Carried chunks as diffusion sees them. (B, m, N_a, D) -> (B, m, N_a, D)."""
    frame_of = carry[:, store.hand_of, 0]
    offset, scale = store.offset.gather(0, frame_of), store.scale.gather(0, frame_of)
    return (chunks - offset[:, None, None]) * scale[:, None, None]


def diffuse_all(
    chunks: Tensor, log_weights: Tensor, perturbations: Tensor, noise: Tensor, fresh: Tensor | None, steps: np.ndarray
) -> Tensor:
    """All diffusion steps with all neighbours, one matrix product after another.

    (B, k, D), (B, k), (B, M, D), (B, n, D), (S, B, n, D) or None, (S, 5) -> (B, n, D)
    """
    sample = noise
    shifts = perturbations @ chunks.mT
    for s, (gain, sigma, keep, jump, spread) in enumerate(steps.tolist()):
        distances = torch.cdist(sample, gain * chunks, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        logits = (log_weights[:, None] - distances / (2 * sigma**2))[:, :, None] + gain / sigma**2 * shifts[:, None]
        sample = keep * sample + jump * (torch.softmax(logits, -1).mean(2) @ chunks)
        if fresh is not None:
            sample = sample + spread * fresh[s]
    return sample


def _pick(poses: Tensor, body: Tensor) -> Tensor:
    """The pose of one body of each plan. (B, m, bodies, width), (B,) -> (B, m, width)."""
    return poses.take_along_dim(body.clamp(min=0)[:, None, None, None], 2)[:, :, 0]


def _axes(pose: Tensor, dimension: int) -> Tensor:
    """(..., width) -> (..., d, d)."""
    if dimension == 2:
        cos, sin = pose[..., 2], pose[..., 3]
        return torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
    return _rotation(pose[..., 3:])


def _rotation(columns: Tensor) -> Tensor:
    """(..., 6) -> (..., 3, 3), as `rotation_matrix`."""
    x, y = columns[..., :3], columns[..., 3:]
    x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    y = y - (x * y).sum(-1, keepdim=True) * x
    y = y / y.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return torch.stack([x, y, torch.linalg.cross(x, y)], -1)


def _onto_held(encoded: Tensor, hand: Tensor, held: Tensor, position: int, rotation: int, turn: Tensor) -> Tensor:
    """The reference's `onto_held`. (B, m, N_a, D), (B, m, 9), (B, m, 9) -> (B, m, N_a, D)."""
    result = encoded.clone()
    axes = _rotation(hand[..., 3:]) @ turn
    offset = (axes.mT @ (held[..., :3] - hand[..., :3])[..., None])[..., 0]
    grasp = axes.mT @ _rotation(held[..., 3:])
    targets = _rotation(encoded[..., rotation : rotation + 6])
    result[..., position : position + 3] += (targets @ offset[:, :, None, :, None])[..., 0]
    targets = targets @ grasp[:, :, None]
    result[..., rotation : rotation + 6] = torch.cat([targets[..., 0], targets[..., 1]], -1)
    return result


def log_weights_of(
    store: DeviceStore, queries: Tensor, rows: Tensor, squared: Tensor, precision: float, goal_weight: float
) -> Tensor:
    """The observation kernel's log weights, the largest being 0. -> (B, k)."""
    if goal_weight and len(store.goal_columns):
        squared = squared + goal_weight * goal_penalty(store, queries, rows)
    return -precision * (squared - squared.amin(1, keepdim=True))
