"""The fused kernel: search, metric, frame and all diffusion steps of a batch of plans, with provable pruning.

Only a few of the k neighbours carry weight, but which ones changes along the run: at low noise the distance between
sample and chunk outweighs the distance between observations. So nothing is dropped for good. Relative to a reference
chunk c, with x = a - G c and A_i the chunks less c, the logit of neighbour i under perturbation j is

    l_ij = log w_i + (G / sigma^2) (x + eps_j) . A_i - (G^2 / 2 sigma^2) |A_i|^2        (eq:smoothed_cond_kernel)

up to terms that are the same for every i. At each step

- *active* neighbours get their exact weights;
- *candidates* that are not active have an upper bound on max_j l_ij at least `cut` below the sum's largest term;
- *the others* were never fetched: since a square is not negative, l_ij <= log w_i + |x + eps_j|^2 / (2 sigma^2). If
  that bound is not `cut` below the largest term, more are fetched and the run starts over.

What is left out at a step is therefore at most k exp(-cut) of the weight.
"""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.carry import carry_chunk, choose_frame
from closedform.kernels.jit import float32_of_bits, jit
from closedform.kernels.search import add_scaled, dot, metric_distances, retrieve

ROUNDING = 4e-6  # times |x| |A_i|: more than the float32 bound on x . A_i can be off by
RECENTRE = 30.0  # nats by which another neighbour must lead before distances are measured from it


@jit(inline=True)
def exp32(x):
    """exp of a number that is not positive, to float32 accuracy; small enough to be inlined and vectorised."""
    scaled = max(x, np.float32(-87.0)) * np.float32(1.4426950408889634)
    whole = np.floor(scaled + np.float32(0.5))
    rest = (scaled - whole) * np.float32(0.6931471805599453)
    series = rest * np.float32(1 / 720) + np.float32(1 / 120)
    series = series * rest + np.float32(1 / 24)
    series = series * rest + np.float32(1 / 6)
    series = series * rest + np.float32(0.5)
    series = series * rest + np.float32(1.0)
    series = series * rest + np.float32(1.0)
    return series * float32_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))


@jit()
def logits_of(base, slope, shifts, logits, largest):
    """logits = base + slope * shifts, and the largest so far for each perturbation."""
    for j in range(logits.size):
        value = base + slope * shifts[j]
        logits[j] = value
        largest[j] = max(largest[j], value)


@jit(reorder=True)
def exponentials(logits, largest, totals, weights):
    """weights = exp(logits - largest), added up over neighbours in `totals`."""
    for j in range(weights.size):
        weight = exp32(np.float32(logits[j] - largest[j]))
        weights[j] = weight
        totals[j] += weight


@jit(reorder=True)
def add_products(coordinate, values, total):
    """total += coordinate * values, in float32."""
    for i in range(total.size):
        total[i] += coordinate * values[i]


@jit()
def diffuse(log_weights, chunks, reach, steps, perturbations, fresh, cut, sample, shares):
    """Runs one sample through all steps; `sample` (D,) is the noise on entry and the chunk on return.

    Args:
        log_weights: (k,), of the neighbours, the largest being 0.
        chunks: (k, D), filled for the neighbours within `reach[0]` nats.
        reach: (1,), how many nats below the best one chunks are filled; asks for more by returning False.
        steps: (S, 5) of gain, noise, keep, jump, spread.
        perturbations: (M, D)
        fresh: (S, D) or empty, noise to add.
        cut: nats below the largest term at which terms are dropped.
        shares: (k,) or empty, receives the weight of each neighbour in the chunk.
    """
    k, width = chunks.shape
    n_perturbations = perturbations.shape[0]
    longest = 0.0
    for j in range(n_perturbations):
        longest = max(longest, math.sqrt(dot(perturbations[j], perturbations[j])))
    count = 0
    for i in range(k):
        count += log_weights[i] >= -reach[0]
    candidates = np.empty(count, np.int64)
    centre = np.empty(width)
    count = 0
    for i in range(k):
        if log_weights[i] >= -reach[0]:
            candidates[count] = i
            count += 1
        if log_weights[i] == 0.0:
            centre[:] = chunks[i]
    offsets = np.empty((count, width))  # A_i
    columns = np.empty((width, count), np.float32)  # the same, for the bounds
    lengths = np.empty(count)  # |A_i|
    highest = np.empty(count)  # max_j eps_j . A_i, or a bound on it
    lowest = np.empty(count)  # min_j eps_j . A_i, or a bound on it
    exact = np.zeros(count, np.bool_)  # whether highest and lowest are exact and `shifts` is filled
    shifts = np.empty((count, n_perturbations))  # eps_j . A_i
    products = np.empty(count, np.float32)
    active = np.empty(count + 1, np.int64)
    logits = np.empty((count, n_perturbations))
    weights = np.empty((count, n_perturbations), np.float32)
    largest = np.empty(n_perturbations)
    totals = np.empty(n_perturbations)
    mean_weights = np.empty(count)
    x, denoised, moved = np.empty(width), np.empty(width), np.empty(width)
    recentre, n_active = True, 0

    for s in range(steps.shape[0]):
        gain, variance = steps[s, 0], steps[s, 1] * steps[s, 1]
        slope = gain / variance
        half = 0.5 * gain * slope
        if recentre:
            for i in range(count):
                for d in range(width):
                    difference = chunks[candidates[i], d] - centre[d]
                    offsets[i, d] = difference
                    columns[d, i] = difference
                lengths[i] = math.sqrt(dot(offsets[i], offsets[i]))
                highest[i] = longest * lengths[i]
                lowest[i] = -highest[i]
                exact[i] = False
            recentre = False
        for d in range(width):
            x[d] = sample[d] - gain * centre[d]
        distance = math.sqrt(dot(x, x))

        products[:] = 0
        for d in range(width):
            add_products(np.float32(x[d]), columns[d], products)
        floor = -np.inf
        for i in range(count):
            base = log_weights[candidates[i]] + slope * products[i] - half * lengths[i] * lengths[i]
            floor = max(floor, base + slope * (lowest[i] - ROUNDING * distance * lengths[i]))
        n_active = 0
        for i in range(count):
            base = log_weights[candidates[i]] + slope * products[i] - half * lengths[i] * lengths[i]
            active[n_active] = i
            n_active += base + slope * (highest[i] + ROUNDING * distance * lengths[i]) >= floor - cut

        largest[:] = -np.inf
        for n in range(n_active):
            i = active[n]
            if not exact[i]:
                highest[i], lowest[i] = -np.inf, np.inf
                for j in range(n_perturbations):
                    shift = dot(perturbations[j], offsets[i])
                    shifts[i, j] = shift
                    highest[i] = max(highest[i], shift)
                    lowest[i] = min(lowest[i], shift)
                exact[i] = True
            base = log_weights[candidates[i]] + slope * dot(x, offsets[i]) - half * lengths[i] * lengths[i]
            logits_of(base, slope, shifts[i], logits[n], largest)

        if count < k:
            needed = -np.inf
            for j in range(n_perturbations):
                moved[:] = x
                add_scaled(moved, 1.0, perturbations[j])
                needed = max(needed, 0.5 * dot(moved, moved) / variance - largest[j])
            if needed + cut > reach[0]:
                reach[0] = 1.5 * (needed + cut)
                return False

        totals[:] = 0.0
        for n in range(n_active):
            exponentials(logits[n], largest, totals, weights[n])
        for j in range(n_perturbations):
            totals[j] = 1.0 / (totals[j] * n_perturbations)
        denoised[:] = centre
        leader = 0
        for n in range(n_active):
            share = 0.0
            for j in range(n_perturbations):
                share += weights[n, j] * totals[j]
            mean_weights[n] = share
            add_scaled(denoised, share, offsets[active[n]])
            if share > mean_weights[leader]:
                leader = n
        first = active[leader]
        lead = slope * products[first] - half * lengths[first] * lengths[first] + log_weights[candidates[first]]
        if lead > RECENTRE:
            centre[:] = chunks[candidates[first]]
            recentre = True
        for d in range(width):
            sample[d] = steps[s, 2] * sample[d] + steps[s, 3] * denoised[d]
            if fresh.shape[0]:
                sample[d] += steps[s, 4] * fresh[s, d]
    if shares.size:
        for n in range(n_active):
            shares[candidates[active[n]]] = mean_weights[n]
    return True


@jit()
def plan_batch(
    columns,
    queries,
    found,
    k,
    metric,
    regularization,
    global_factor,
    penalty,
    precision,
    actions,
    starts,
    row_episodes,
    poses,
    n_action_steps,
    blocks,
    frames,
    dimension,
    offset,
    scale,
    weight,
    steps,
    noise,
    perturbations,
    fresh,
    cut,
    chunks,
    chosen,
    distances,
    rows,
    shares,
):
    """Plans for B observations with n samples each.

    Args:
        columns: (D_z, N), features of all rows.
        queries: (B, D_z)
        found: (B, k) rows found by another index, -1 where there are fewer, or (0, 0) to search here.
        k, metric, regularization, global_factor: the neighbourhood, as for `retrieve`.
        penalty: (N,) added to squared distances, or (0,).
        precision: 1 / (2 h^2).
        actions, starts, row_episodes, poses, n_action_steps: the store's.
        blocks, frames, dimension: as for `carry_chunk`; frames is (F, 2).
        offset, scale: (F, D); weight: (D,)
        steps: (S, 5); see `diffuse`.
        noise: (B, n, N_a * D); perturbations: (B, M, N_a * D); fresh: (B, S, n, N_a * D) or (B, 0, n, 0).
        cut: nats; see `diffuse`.

    Fills:
        chunks: (B, n, N_a * D), normalised, in the frame chosen.
        chosen: (B,), the frame.
        distances: (B,), to the nearest neighbour.
        rows, shares: (B, k) and (B, n, k), the neighbours (-1 beyond the last) and their weights in each chunk,
            or (B, 0) and (B, n, 0).
    """
    n_samples, size = noise.shape[1], noise.shape[2]
    rotation = np.empty((dimension, dimension))
    smallest = steps[:, 1].min()
    for b in range(queries.shape[0]):
        if found.shape[0]:
            neighbours = found[b, : np.sum(found[b] >= 0)]
            squared = np.empty(neighbours.size)
            metric_distances(columns, queries[b], neighbours, metric, regularization, global_factor, squared)
        else:
            neighbours, squared = retrieve(columns, queries[b], k, metric, regularization, global_factor)
        n_neighbours = neighbours.size
        distances[b] = math.sqrt(squared.min())
        frame = choose_frame(
            neighbours,
            squared,
            actions,
            starts,
            row_episodes,
            poses,
            n_action_steps,
            blocks,
            frames,
            offset,
            scale,
            weight,
            rotation,
        )
        chosen[b] = frame
        log_weights = -precision * squared
        if penalty.size:
            for i in range(n_neighbours):
                log_weights[i] -= precision * penalty[neighbours[i]]
        log_weights -= log_weights.max()

        longest = 0.0
        for j in range(perturbations.shape[1]):
            longest = max(longest, dot(perturbations[b, j], perturbations[b, j]))
        reach = np.array([0.6 * longest / (smallest * smallest) + size + cut])
        filled = -1.0
        neighbour_chunks = np.empty((n_neighbours, size))
        for n in range(n_samples):
            done = False
            while not done:
                if filled < reach[0]:
                    for i in range(n_neighbours):
                        if -log_weights[i] <= reach[0] and -log_weights[i] > filled:
                            row = neighbours[i]
                            carry_chunk(
                                actions,
                                starts[row],
                                n_action_steps,
                                blocks,
                                frames[frame],
                                poses[row],
                                rotation,
                                offset[frame],
                                scale[frame],
                                neighbour_chunks[i],
                            )
                    filled = reach[0]
                chunks[b, n] = noise[b, n]
                done = diffuse(
                    log_weights,
                    neighbour_chunks,
                    reach,
                    steps,
                    perturbations[b],
                    fresh[b, :, n],
                    cut,
                    chunks[b, n],
                    shares[b, n],
                )
        if rows.size:
            rows[b, :n_neighbours] = neighbours
