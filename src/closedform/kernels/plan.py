"""The fused kernel: search, metric, frame and all diffusion steps of a batch of plans."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.carry import carry_chunk, choose_carry
from closedform.kernels.diffuse import diffuse
from closedform.kernels.jit import jit
from closedform.kernels.search import dot, metric_distances, retrieve

ATTEMPTS = 20  # at reaching far enough, after which all neighbours are looked at


@jit()
def nearest_distance(squared, precision):
    """The distance to the nearest neighbour; infinite if any of them or its weight cannot be told."""
    nearest = np.inf
    for i in range(squared.size):
        if not squared[i] * precision < np.inf:
            return np.inf
        nearest = min(nearest, squared[i])
    return math.sqrt(nearest)


@jit()
def plan_batch(
    columns,
    n_rows,
    queries,
    found,
    k,
    factor,
    regularization,
    shrinkage,
    penalty_rows,
    penalties,
    goal_weight,
    goal_columns,
    goal_ends,
    goal_middle,
    goal_scale,
    goal_tolerance,
    precision,
    actions,
    starts,
    row_episodes,
    poses,
    held,
    n_action_steps,
    blocks,
    frames,
    hands,
    turns,
    dimension,
    offset,
    scale,
    weight,
    steps,
    noise,
    perturbations,
    fresh,
    cut,
    stop_at,
    chunks,
    carries,
    distances,
    rows,
    shares,
    n_steps,
    ended,
    mixed,
):
    """Plans for B observations with n samples each.

    Args:
        columns, n_rows: (D_z, >= N), features of all rows, and N.
        queries: (B, D_z)
        found: (B, k) rows found by another index, -1 where there are fewer, or (0, 0) to search here.
        k, factor, regularization, shrinkage: the neighbourhood, as for `retrieve`.
        penalty_rows, penalties: (m,), rows in ascending order and what is added to their squared distances.
        goal_weight: of the goal, which is the store's.
        precision: 1 / (2 h^2).
        actions, starts, row_episodes, poses, held, n_action_steps: the store's.
        blocks, frames, hands, turns, dimension: as for `carry_chunk`.
        offset, scale: (F, D); weight: (D,)
        steps: (S, 5); see `diffuse`.
        noise: (B, n, N_a * D); perturbations: (B, M, N_a * D); fresh: (B, S, n, N_a * D) or (B, 0, n, 0).
        cut, stop_at: see `diffuse`.

    Fills:
        chunks: (B, n, N_a * D), normalised, as they are carried over.
        carries: (B, n_hands, 2), how: the frame and the body held of each hand.
        distances: (B,), to the nearest neighbour; not a number where distances or weights could not be told.
        rows, shares: (B, k) and (B, n, k), the neighbours (-1 beyond the last) and their weights in each chunk,
            or (B, 0) and (B, n, 0).
        n_steps, ended: (B, n), steps taken for each, and when the last of them ended.
        mixed: (B, n), whether each chunk is a mixture of the neighbours' chunks, as it must be.
    """
    n_samples, size = noise.shape[1], noise.shape[2]
    n_perturbations = perturbations.shape[1]
    rotation = np.empty((dimension, dimension))
    directions = np.empty((size, n_perturbations))
    reach = np.empty(1)
    smallest = np.inf
    for s in range(steps.shape[0]):
        smallest = min(smallest, steps[s, 1])
    for b in range(queries.shape[0]):
        if found.shape[0]:
            count = 0
            while count < found.shape[1] and found[b, count] >= 0:
                count += 1
            neighbours = found[b, :count]
            squared = np.empty(count)
            metric_distances(columns, queries[b], neighbours, factor, regularization, shrinkage, squared)
        else:
            neighbours, squared = retrieve(columns, n_rows, queries[b], k, factor, regularization, shrinkage)
        n_neighbours = neighbours.size
        distances[b] = nearest_distance(squared, precision)
        if not distances[b] < np.inf:  # also if it is not a number
            distances[b] = np.nan
            continue
        choose_carry(
            neighbours,
            squared,
            actions,
            starts,
            row_episodes,
            poses,
            held,
            n_action_steps,
            blocks,
            frames,
            hands,
            turns,
            offset,
            scale,
            weight,
            rotation,
            carries[b],
        )
        log_weights = np.empty(n_neighbours)
        largest, measured = -np.inf, True
        p = 0
        for i in range(n_neighbours):
            log_weights[i] = -precision * squared[i]
            while p < penalty_rows.size and penalty_rows[p] < neighbours[i]:
                p += 1
            if p < penalty_rows.size and penalty_rows[p] == neighbours[i]:
                log_weights[i] -= precision * penalties[p]
            if goal_weight > 0.0:
                row = neighbours[i]
                difference = goal_tolerance
                for g in range(goal_columns.size):
                    d = goal_columns[g]
                    still = goal_ends[row_episodes[row], g] - columns[d, row]
                    difference += ((still - goal_middle[g] + queries[b, d]) * goal_scale[g]) ** 2
                log_weights[i] -= precision * goal_weight * math.log(difference)
            largest = max(largest, log_weights[i])
            measured = measured and log_weights[i] < np.inf  # not if it is not a number
        if not (measured and largest > -np.inf):
            distances[b] = np.nan
            continue
        for i in range(n_neighbours):
            log_weights[i] -= largest

        longest = 0.0
        for j in range(n_perturbations):
            longest = max(longest, dot(perturbations[b, j], perturbations[b, j]))
            for d in range(size):
                directions[d, j] = perturbations[b, j, d]
        reach[0] = 0.6 * longest / (smallest * smallest) + size + cut  # about what the last step will need
        filled = -1.0
        neighbour_chunks = np.empty((n_neighbours, size))
        for n in range(n_samples):
            done, attempts = False, 0
            while not done:
                attempts += 1
                if attempts > ATTEMPTS or not reach[0] < np.inf:
                    reach[0] = np.inf
                if filled < reach[0]:
                    for i in range(n_neighbours):
                        if -log_weights[i] <= reach[0] and -log_weights[i] > filled:
                            row = neighbours[i]
                            carry_chunk(
                                actions,
                                starts[row],
                                n_action_steps,
                                blocks,
                                hands,
                                turns,
                                frames,
                                carries[b],
                                poses[row],
                                rotation,
                                offset,
                                scale,
                                neighbour_chunks[i],
                            )
                    filled = reach[0]
                for d in range(size):
                    chunks[b, n, d] = noise[b, n, d]
                done = diffuse(
                    log_weights,
                    neighbour_chunks,
                    reach,
                    steps,
                    perturbations[b],
                    directions,
                    fresh[b, :, n],
                    cut,
                    stop_at,
                    chunks[b, n],
                    shares[b, n],
                    n_steps[b, n : n + 1],
                    ended[b, n : n + 1],
                    mixed[b, n : n + 1],
                )
        if rows.size:
            for i in range(n_neighbours):
                rows[b, i] = neighbours[i]
