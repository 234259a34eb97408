"""The fused kernel: search, metric, frame and all diffusion steps of a batch of plans."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.diffuse import diffuse
from closedform.kernels.jit import jit
from closedform.kernels.records import Draws, Observed, PenaltyTerm, Planned, Terms, Told
from closedform.kernels.relation import relate
from closedform.kernels.search import dot, metric_distances, retrieve
from closedform.kernels.transfer import choose_transfer, transfer_back, transfer_chunk

ATTEMPTS = 20  # to reach far enough; after that all neighbors are used


@jit()
def _nearest_distance(squared, precision):
    """The distance to the nearest neighbor; infinite if any distance or weight is not finite."""
    nearest = np.inf
    for i in range(squared.size):
        if not squared[i] * precision < np.inf:
            return np.inf
        nearest = min(nearest, squared[i])
    return math.sqrt(nearest)


@jit()
def weigh(rows, query, neighbors, squared, precision, terms, log_weights):
    """Fills the log weights (k,) of the neighbors, the largest being 0: metric and terms.

    Returns whether none of them is NaN.
    """
    goal, penalty = terms.goal, terms.penalty
    middle = np.empty(goal.columns.size)
    for g in range(middle.size):
        middle[g] = goal.middle[g] + goal.ratios[g] * query[goal.references[g]]
    largest, measured = -np.inf, True
    p = 0
    for i in range(neighbors.size):
        row = neighbors[i]
        log_weights[i] = -precision * squared[i]
        while p < penalty.rows.size and penalty.rows[p] < row:
            p += 1
        if p < penalty.rows.size and penalty.rows[p] == row:
            log_weights[i] -= precision * penalty.values[p]
        if goal.weight > 0.0:
            difference = goal.tolerance
            for g in range(goal.columns.size):
                d = goal.columns[g]
                still = goal.ends[rows.episodes[row], g] - rows.columns[d, row]
                difference += ((still - middle[g] + query[d]) * goal.scale[g]) ** 2
            log_weights[i] -= precision * goal.weight * math.log(difference)
    if terms.relation.weight > 0.0:
        relate(terms.relation, rows, query, neighbors, precision, log_weights)
    for i in range(neighbors.size):
        largest = max(largest, log_weights[i])
        measured = measured and log_weights[i] < np.inf  # false for NaN
    for i in range(neighbors.size):
        log_weights[i] -= largest
    return measured and largest > -np.inf


@jit()
def with_most_weight(rows, weights, least, found, shares):
    """Writes the rows with weights above `least`, and their weights, the largest first; returns how many there are.

    Among equal weights the earlier row is first, as in a stable sort.
    """
    count = 0
    for i in range(rows.size):
        if weights[i] > least:
            at = count
            while at > 0 and shares[at - 1] < weights[i]:
                shares[at], found[at] = shares[at - 1], found[at - 1]
                at -= 1
            shares[at], found[at] = weights[i], rows[i]
            count += 1
    return count


@jit()
def clear(planned, b):
    """Resets the outputs of a plan."""
    for i in range(planned.rows.shape[1]):
        planned.rows[b, i] = -1
    for n in range(planned.chunks.shape[1]):
        planned.n_steps[b, n] = 0
        planned.ended[b, n] = np.nan
        planned.mixed[b, n] = True
        for i in range(planned.weights.shape[2]):
            planned.weights[b, n, i] = 0.0


@jit()
def plan_batch(rows, metric, terms, transfers, sampling, draws, queries, poses, k, found, planned):
    """Plans for B observations with n samples each.

    Args:
        rows, metric, terms, transfers, sampling, draws: see `records`.
        queries: (B, D_z)
        poses: (B, bodies, pose width), current; no bodies if nothing is transferred.
        k: how many neighbors.
        found: (B, k) rows found by another index, -1 where there are fewer, or (0, 0) to search here.
        planned: is filled.
    """
    size, n_perturbations = draws.noise.shape[2], draws.perturbations.shape[1]
    rotation = np.empty((transfers.dimension, transfers.dimension))
    directions = np.empty((size, n_perturbations))
    reach = np.empty(1)
    smallest = np.inf
    for s in range(sampling.steps.shape[0]):
        smallest = min(smallest, sampling.steps[s, 1])
    for b in range(queries.shape[0]):
        clear(planned, b)
        if found.shape[0]:
            count = 0
            while count < found.shape[1] and found[b, count] >= 0:
                count += 1
            neighbors = found[b, :count]
            squared = np.empty(count)
            metric_distances(rows.columns, queries[b], neighbors, metric, squared)
        else:
            neighbors, squared = retrieve(rows.columns, rows.n_rows, queries[b], k, metric)
        planned.distances[b] = _nearest_distance(squared, metric.precision)
        if not planned.distances[b] < np.inf:  # also if it is NaN
            planned.distances[b] = np.nan
            continue
        choice = planned.choices[b]
        choose_transfer(rows, neighbors, squared, poses[b], transfers, rotation, choice)
        log_weights = np.empty(neighbors.size)
        if not weigh(rows, queries[b], neighbors, squared, metric.precision, terms, log_weights):
            planned.distances[b] = np.nan
            continue

        perturbations, longest = draws.perturbations[b], 0.0
        for j in range(n_perturbations):
            longest = max(longest, dot(perturbations[j], perturbations[j]))
            for d in range(size):
                directions[d, j] = perturbations[j, d]
        reach[0] = 0.6 * longest / (smallest * smallest) + size + sampling.cut  # about what the last step will need
        filled = -1.0
        chunks = np.empty((neighbors.size, size))
        for n in range(draws.noise.shape[1]):
            done, attempts = False, 0
            while not done:
                attempts += 1
                if attempts > ATTEMPTS or not reach[0] < np.inf:
                    reach[0] = np.inf
                if filled < reach[0]:
                    for i in range(neighbors.size):
                        if -log_weights[i] <= reach[0] and -log_weights[i] > filled:
                            transfer_chunk(rows, neighbors[i], transfers, choice, rotation, chunks[i])
                    filled = reach[0]
                for d in range(size):
                    planned.chunks[b, n, d] = draws.noise[b, n, d]
                done = diffuse(
                    log_weights,
                    chunks,
                    reach,
                    sampling,
                    perturbations,
                    directions,
                    draws.fresh[b, :, n],
                    planned.chunks[b, n],
                    planned.weights[b, n],
                    planned.n_steps[b, n : n + 1],
                    planned.ended[b, n : n + 1],
                    planned.mixed[b, n : n + 1],
                )
        if planned.rows.size:
            for i in range(neighbors.size):
                planned.rows[b, i] = neighbors[i]


@jit()
def plan_one(rows, metric, terms, transfers, sampling, draws, observed, k, least, planned, told):
    """Plans for one observation, transfers the chunk back, and lists the demonstrations behind it.

    Args:
        rows, metric, terms, transfers, sampling, draws, observed: see `records`.
        k: how many neighbors.
        least: demonstrations up to this weight are not listed.
        planned: scratch; its choices are those of the plan.
        told: is filled.

    Returns:
        How many demonstrations are listed; 0 if planning failed: some number is not finite, or not a mixture.
    """
    query = np.empty_like(observed.lifted)
    for d in range(query.shape[1]):
        query[0, d] = (observed.lifted[0, d] - observed.offset[d]) * observed.scale[d]
        if not math.isfinite(query[0, d]):
            return 0
    none = np.empty((0, 0), np.int64)
    plan_batch(rows, metric, terms, transfers, sampling, draws, query, observed.poses, k, none, planned)
    if not (math.isfinite(planned.distances[0]) and planned.mixed[0, 0]):
        return 0
    count = with_most_weight(planned.rows[0], planned.weights[0, 0], least, told.rows, told.weights)
    total = 0.0
    for i in range(count):
        total += told.weights[i]
    for i in range(count):
        told.weights[i] /= total
    told.actions[0, 0, :] = planned.chunks[0, 0]
    transfer_back(told.actions, planned.choices, observed.poses, transfers)
    for d in range(told.actions.shape[2]):
        if not math.isfinite(told.actions[0, 0, d]):
            return 0
    return count


@jit()
def plan_each(rows, metric, terms, bounds, transfers, sampling, draws, observed, k, least, planned, told):
    """`plan_one` for B observations, each with a penalty of its own.

    Args:
        rows, metric, transfers, sampling, draws, observed: see `records`; draws and observed are those of B plans.
        terms: see `records`; the penalties of all plans, one after the other.
        bounds: (B + 1,), where the penalty of each plan begins, and where the last one ends.
        k, least: as of `plan_one`.
        planned: scratch for B plans.
        told: is filled, B times what one plan has.

    Returns:
        (B,), what `plan_one` returns.
    """
    counts = np.empty(bounds.size - 1, np.int64)
    for b in range(counts.size):
        begin, end = bounds[b], bounds[b + 1]
        penalty = PenaltyTerm(terms.penalty.rows[begin:end], terms.penalty.values[begin:end])
        counts[b] = plan_one(
            rows,
            metric,
            Terms(terms.goal, terms.relation, penalty),
            transfers,
            sampling,
            Draws(draws.noise[b : b + 1], draws.perturbations[b : b + 1], draws.fresh[b : b + 1]),
            Observed(observed.lifted[b : b + 1], observed.offset, observed.scale, observed.poses[b : b + 1]),
            k,
            least,
            Planned(
                planned.chunks[b : b + 1],
                planned.choices[b : b + 1],
                planned.distances[b : b + 1],
                planned.rows[b : b + 1],
                planned.weights[b : b + 1],
                planned.n_steps[b : b + 1],
                planned.ended[b : b + 1],
                planned.mixed[b : b + 1],
            ),
            Told(told.actions[b : b + 1], told.rows[b], told.weights[b]),
        )
    return counts
