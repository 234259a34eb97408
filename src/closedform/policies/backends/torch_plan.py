"""Plans for many observations at once on torch tensors: search, metric, frames and hands, candidates.

The same mathematics as the reference in `store/`, `weights/` and `transfer/`, batched and in float32. Nothing
synchronizes with the device, so that a whole plan can be captured as a CUDA graph.

Letters in shapes: B plans, n samples each, k neighbors, m of them with the most weight, N rows, E episodes, H hands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from closedform.geometry.encoding import Block
from closedform.geometry.rigid import into_frame, onto_grasped, pose_axes
from closedform.kernels.records import Candidates, GoalTerm, Metric, RowsRecord, Transfers

Tensor = torch.Tensor
WIDEST = 64  # features that the fused metric holds


@dataclass(frozen=True)
class DeviceStore:
    """What a plan reads, on a device: the records of the compiled planner, with tensors in place of arrays.

    Attributes:
        rows: the demonstrated windows. The mean is subtracted from features, so that little is lost in float32, and
            they are padded with zeros; `rows.columns` is a view of them.
        width: D_z, without the padding.
        half_norms: (N,), half the squared lengths of the features.
        metric: its factor is None for the local one.
        goal: with the features' mean subtracted from its middle.
        goal_still: (G, N), the remaining motion of each row; none without a goal.
        terms: those without a hook, with tensors; they are written against the array API.
        center: (D_z,), the mean that is subtracted from features.
        transfers: with blocks, frames and hands as Python's numbers, which a captured graph can branch on.
        frame_bodies, frame_turns: (F,), of the frames.
        hand_blocks: for each hand, the blocks of an action that turn with it.
        hand_of: (D,), the hand that each number of an action belongs to.
        normalized: (steps, D), the normalized actions if nothing is transferred; else None.
        n_episodes: E.
    """

    rows: RowsRecord
    width: int
    half_norms: Tensor
    metric: Metric
    goal: GoalTerm
    goal_still: Tensor
    terms: tuple[Callable[[Any], Tensor], ...]
    center: Tensor
    transfers: Transfers
    frame_bodies: Tensor
    frame_turns: Tensor
    hand_blocks: tuple[tuple[Block, ...], ...]
    hand_of: Tensor
    normalized: Tensor | None
    n_episodes: int

    @property
    def features(self) -> Tensor:
        """(N, >= D_z)"""
        return self.rows.columns.T


def nearest_rows(store: DeviceStore, queries: Tensor, k: int) -> Tensor:
    """The k nearest rows in the Euclidean metric, in any order. (B, D_z) -> (B, k)."""
    if k >= len(store.features):
        return torch.arange(len(store.features), device=queries.device).repeat(len(queries), 1)
    closeness = torch.addmm(-store.half_norms, queries, store.features.T)
    return torch.topk(closeness, k, sorted=False).indices


def squared_distances(store: DeviceStore, queries: Tensor, rows: Tensor) -> Tensor:
    """Squared distances in the metric. (B, D_z), (B, k) -> (B, k)."""
    factor, regularization, shrinkage, _, share = store.metric
    if factor is None and queries.is_cuda and store.width <= WIDEST:
        from closedform.kernels.triton_metric import local_squared_distances

        return local_squared_distances(store.features, queries, rows, store.width, regularization, shrinkage, share)
    features, queries = store.features[rows][..., : store.width], queries[:, : store.width]
    if factor is None:
        deviations = features - features.mean(1, keepdim=True)
        covariance = deviations.mT @ deviations / max(rows.shape[1] - 1, 1)
        eye = torch.eye(queries.shape[1], device=queries.device)
        sphere = covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * share
        covariance = (1 - shrinkage) * covariance + (shrinkage * sphere + regularization) * eye
        factor = torch.linalg.cholesky_ex(covariance).L
    whitened = torch.linalg.solve_triangular(factor, (features - queries[:, None]).mT, upper=False)
    return (whitened * whitened).sum(1)


def _goal_penalty(store: DeviceStore, queries: Tensor, rows: Tensor) -> Tensor:
    """The goal's term up to a constant. (B, D_z), (B, k) -> (B, k)."""
    goal = store.goal
    needed = goal.middle + goal.ratios * queries[:, goal.references] - queries[:, goal.columns]
    total = torch.full(rows.shape, goal.tolerance, device=rows.device)
    for g, still in enumerate(store.goal_still):
        total += ((still[rows] - needed[:, g, None]) * goal.scale[g]) ** 2
    return torch.log(total)


def voters(store: DeviceStore, rows: Tensor, squared: Tensor) -> tuple[Tensor, Tensor]:
    """The reference's `voters`: indices into the neighbors (B, v), and their squared distances, infinite for none."""
    n_voters = min(store.transfers.n_voters, rows.shape[1])
    nearest = torch.topk(squared, n_voters, largest=False)
    if store.n_episodes == 1:
        return nearest.indices, nearest.values
    # Distances are not negative, so their bits sort like them; with the index in the low bits, one minimum finds both.
    here = torch.arange(rows.shape[1], device=rows.device)
    packed = (squared.contiguous().view(torch.int32).to(torch.int64) << 32) | here
    none = torch.iinfo(torch.int64).max
    best = torch.full((len(rows), store.n_episodes), none, device=rows.device)
    best.scatter_reduce_(1, store.rows.episodes[rows], packed, "amin")
    chosen = torch.topk(best, min(n_voters, store.n_episodes), largest=False).values
    alone = (chosen[:, 1:2] == none) if chosen.shape[1] > 1 else torch.ones_like(chosen, dtype=torch.bool)
    missing = chosen.new_full((len(rows), n_voters - chosen.shape[1]), none)
    chosen = torch.cat([chosen, missing], 1)
    found = chosen != none
    indices = torch.where(found, chosen & 0xFFFFFFFF, 0)
    distances = torch.where(found, squared.gather(1, indices), torch.inf)
    return torch.where(alone, nearest.indices, indices), torch.where(alone, nearest.values, distances)


def choose_transfer(store: DeviceStore, rows: Tensor, squared: Tensor, now: Tensor) -> Tensor:
    """For each hand the frame in which the voters' chunks agree best, and the grasped body. -> (B, H, 2).

    `now` are the current poses (B, bodies, width).
    """
    frames, hands = store.transfers.frames, store.transfers.hands
    world = next((f for f, (body, _, _) in enumerate(frames) if body < 0), 0)
    choice = torch.empty((len(rows), len(hands), 2), dtype=torch.int64, device=rows.device)
    choice[..., 0], choice[..., 1] = world, -1
    if len(frames) == 1 and not any(min(hand[:2]) >= 0 for hand in hands):
        return choice
    indices, distances = voters(store, rows, squared)
    votes = torch.isfinite(distances)
    mean = torch.where(votes, distances, 0).sum(1) / votes.sum(1)
    weights = torch.exp(-0.5 * distances / mean.clamp(min=1e-30)[:, None])
    weights = torch.where(votes, weights, 0)
    weights = (weights / weights.sum(1, keepdim=True))[:, :, None, None]
    voting = rows.gather(1, indices)
    encoded = encoded_chunks(store, voting)
    poses = store.rows.poses[voting]
    for h in range(len(hands)):
        held = store.rows.held[voting, h]
        same = ((held[:, :, None] == held[:, None]) & votes[:, None]).sum(2)
        wins = votes & (2 * same > votes.sum(1, keepdim=True))
        grasped = torch.where(wins, held, -1).amax(1)
        hand = hands[h][0]
        if hand >= 0:
            then = torch.linalg.vector_norm(poses[:, :, hand, :3] - _pick(poses, grasped)[..., :3], dim=2)
            farthest = torch.where(votes & (held == grasped[:, None]), then, 0).amax(1)
            apart = torch.linalg.vector_norm(now[:, hand, :3] - _pick(now[:, None], grasped)[:, 0, :3], dim=1)
            grasped = torch.where(apart <= farthest + store.transfers.slack[h], grasped, -1)
        choice[:, h, 1] = grasped
        best, least = choice[:, h, 0].clone(), torch.full((len(rows),), torch.inf, device=rows.device)
        in_world = least
        share = torch.where(store.hand_of == h, store.transfers.weight, 0)
        for f, (body, _, whole) in enumerate(frames):
            choice[:, h, 0] = f
            chunks = transferred(store, encoded, poses, choice)
            deviations = chunks - (weights * chunks).sum(1, keepdim=True)
            variance = (weights * deviations * deviations * share).sum((1, 2, 3))
            if body < 0:
                in_world = variance
            if whole != 1:  # a body without a rotation counts as a whole pose if it is better than the world
                counts_once = (variance < in_world * (1 - 1e-6) - 1e-12) & (whole == 2)
                variance = torch.where(counts_once, variance, store.transfers.preference * variance)
            better = variance < least * (1 - 1e-6) - 1e-12
            if body >= 0:
                better &= choice[:, h, 1] != body
            best, least = torch.where(better, f, best), torch.where(better, variance, least)
        choice[:, h, 0] = best
    return choice


def encoded_chunks(store: DeviceStore, rows: Tensor) -> Tensor:
    """(B, m) -> (B, m, N_a, D)."""
    steps = torch.arange(store.transfers.n_action_steps, device=rows.device)
    return store.rows.actions[store.rows.starts[rows][..., None] + steps]


def transferred(store: DeviceStore, encoded: Tensor, poses: Tensor, choice: Tensor) -> Tensor:
    """Chunks with a choice for each plan. (B, m, N_a, D), (B, m, bodies, width), (B, H, 2) -> (B, m, N_a, D)."""
    if not poses.shape[2]:
        return encoded
    d, result = store.transfers.dimension, encoded
    for h, (hand, position, rotation) in enumerate(store.transfers.hands):
        if min(hand, position) >= 0:
            held = choice[:, h, 1]
            turn = store.transfers.turns[h]
            onto = onto_grasped(result, position, rotation, turn, poses[:, :, hand], _pick(poses, held))
            result = torch.where((held >= 0)[:, None, None, None], onto, result)
    for h, blocks in enumerate(store.hand_blocks):
        body, turns = store.frame_bodies[choice[:, h, 0]], store.frame_turns[choice[:, h, 0]]
        pose = _pick(poses, body)
        axes = torch.where(turns[:, None, None, None], pose_axes(pose, d), torch.eye(d, device=poses.device))
        origin = torch.where((body >= 0)[:, None, None], pose[..., :d], 0)
        result = into_frame(result, blocks, axes, origin)
    return result


def normalized(store: DeviceStore, chunks: Tensor, choice: Tensor) -> Tensor:
    """Normalizes transferred chunks. (B, m, N_a, D) -> (B, m, N_a, D)."""
    frame_of = choice[:, store.hand_of, 0]
    offset, scale = store.transfers.offset.gather(0, frame_of), store.transfers.scale.gather(0, frame_of)
    return (chunks - offset[:, None, None]) * scale[:, None, None]


def lead(
    chunks: Tensor, log_weights: Tensor, perturbations: Tensor, sample: Tensor, gain: Tensor, sigma: Tensor
) -> Tensor:
    """How close neighbors come to the largest weight at a sample, in nats, under the best perturbation.

    (B, k, D), (B, k), (B, M, D), (B, D), (), () -> (B, k), at most 0
    """
    distances = torch.cdist(sample[:, None] + perturbations, gain * chunks)
    logits = log_weights[:, None] - distances * distances / (2 * sigma * sigma)
    return (logits - logits.amax(2, keepdim=True)).amax(1)


def _pick(poses: Tensor, body: Tensor) -> Tensor:
    """The pose of one body of each plan. (B, m, bodies, width), (B,) -> (B, m, width)."""
    return poses.take_along_dim(body.clamp(min=0)[:, None, None, None], 2)[:, :, 0]


def log_weights_of(store: DeviceStore, queries: Tensor, rows: Tensor, squared: Tensor) -> Tensor:
    """The observation kernel's log weights, the largest being 0. -> (B, k)."""
    if len(store.goal_still):
        squared = squared + store.goal.weight * _goal_penalty(store, queries, rows)
    if store.terms:
        features = store.features[rows][..., : store.width] + store.center
        candidates = Candidates(queries[:, : store.width] + store.center, rows, features, store.rows.episodes[rows])
        for term in store.terms:
            squared = squared + term(candidates)
    return -store.metric.precision * (squared - squared.amin(1, keepdim=True))
