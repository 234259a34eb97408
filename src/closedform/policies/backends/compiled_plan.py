"""The fused kernel: search, metric, terms, frame, all diffusion steps and the way back to the scene, of a batch."""

from __future__ import annotations

import math

import numpy as np
from numba import literal_unroll
from numba.extending import overload

from closedform.kernels.diffuse import diffuse
from closedform.kernels.jit import jit
from closedform.kernels.records import GoalTerm, RelationTerm
from closedform.kernels.search import dot, metric_distances, retrieve
from closedform.kernels.transfer import choose_transfer, transfer_back, transfer_chunk
from closedform.weights.terms.goal_compiled import add_goal
from closedform.weights.terms.relation_compiled import add_relation

ATTEMPTS = 20  # to reach far enough; after that all neighbors are used
ADD = {GoalTerm: add_goal, RelationTerm: add_relation}  # the compiled form of each record of a term


def _add(term, rows, query, neighbors, precision, log_weights):
    """Subtracts a term from the log weights of the neighbors, by the compiled form that its record has."""


@overload(_add, inline="never")
def _add_of(term, rows, query, neighbors, precision, log_weights):
    add = ADD[term.instance_class]

    def call(term, rows, query, neighbors, precision, log_weights):
        add(term, rows, query, neighbors, precision, log_weights)

    return call


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
def weigh(rows, query, neighbors, squared, precision, penalties, b, terms, log_weights):
    """Fills log w_i = -(d_i^2 + sum of terms) / 2 h^2 of the neighbors, (k,), the largest being 0.

    Returns whether none of them is NaN.
    """
    p, last = penalties.bounds[b], penalties.bounds[b + 1]
    for i in range(neighbors.size):
        row = neighbors[i]
        log_weights[i] = -precision * squared[i]
        while p < last and penalties.rows[p] < row:
            p += 1
        if p < last and penalties.rows[p] == row:
            log_weights[i] -= precision * penalties.values[p]
    for term in literal_unroll(terms):
        _add(term, rows, query, neighbors, precision, log_weights)
    largest, measured = -np.inf, True
    for i in range(neighbors.size):
        largest = max(largest, log_weights[i])
        measured = measured and log_weights[i] < np.inf  # false for NaN
    for i in range(neighbors.size):
        log_weights[i] -= largest
    return measured and largest > -np.inf


@jit()
def list_used(rows, weights, least, found, shares):
    """Writes the rows with weights above `least`, and their weights, the largest first; returns how many there are.

    Among equal weights the earlier row is first, as in a stable sort. The weights written sum to one.
    """
    count, total = 0, 0.0
    for i in range(rows.size):
        if weights[i] > least:
            at = count
            while at > 0 and shares[at - 1] < weights[i]:
                shares[at], found[at] = shares[at - 1], found[at - 1]
                at -= 1
            shares[at], found[at] = weights[i], rows[i]
            count += 1
    for i in range(count):
        total += shares[i]
    for i in range(count):
        shares[i] /= total
    return count


@jit()
def clear(batch, b):
    """Resets the outputs of a plan."""
    batch.n_used[b] = 0
    for h in range(batch.choices.shape[1]):
        batch.choices[b, h, 0], batch.choices[b, h, 1] = 0, -1
    for n in range(batch.actions.shape[1]):
        for d in range(batch.actions.shape[2]):
            batch.actions[b, n, d] = 0.0
    for i in range(batch.rows.shape[1]):
        batch.rows[b, i] = -1
    for n in range(batch.chunks.shape[1]):
        batch.n_steps[b, n] = 0
        batch.ended[b, n] = np.nan
        batch.mixed[b, n] = True
        for i in range(batch.weights.shape[2]):
            batch.weights[b, n, i] = 0.0


@jit()
def fill(rows, metric, penalties, terms, transfers, sampling, draws, observed, k, found, least, batch):
    """Plans for B observations with n samples each.

    Args:
        rows, metric, penalties, transfers, sampling, draws, observed: see `records`.
        terms: a tuple of the records of all terms that have a compiled form.
        k: how many neighbors.
        found: (B, k) rows found by another index, -1 where there are fewer, or (0, 0) to search here.
        least: demonstrations up to this weight are not listed as used.
        batch: `PlanBatch`; is filled.
    """
    size, n_perturbations, width = draws.noise.shape[2], draws.perturbations.shape[1], observed.lifted.shape[1]
    rotation = np.empty((transfers.dimension, transfers.dimension))
    directions = np.empty((size, n_perturbations))
    reach, query = np.empty(1), np.empty(width)
    smallest = np.inf
    for s in range(sampling.steps.shape[0]):
        smallest = min(smallest, sampling.steps[s, 1])
    for b in range(observed.lifted.shape[0]):
        clear(batch, b)
        finite = True
        for d in range(width):
            query[d] = (observed.lifted[b, d] - observed.offset[d]) * observed.scale[d]
            finite = finite and math.isfinite(query[d])
        batch.distances[b] = np.nan
        if not finite:
            continue
        if found.shape[0]:
            count = 0
            while count < found.shape[1] and found[b, count] >= 0:
                count += 1
            neighbors = found[b, :count]
            squared = np.empty(count)
            metric_distances(rows.columns, query, neighbors, metric, squared)
        else:
            neighbors, squared = retrieve(rows.columns, rows.n_rows, query, k, metric)
        distance = _nearest_distance(squared, metric.precision)
        if not distance < np.inf:  # also if it is NaN
            continue
        choice = batch.choices[b]
        choose_transfer(rows, neighbors, squared, observed.poses[b], transfers, rotation, choice)
        log_weights = np.empty(neighbors.size)
        if not weigh(rows, query, neighbors, squared, metric.precision, penalties, b, terms, log_weights):
            continue
        batch.distances[b] = distance

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
                    batch.chunks[b, n, d] = draws.noise[b, n, d]
                done = diffuse(
                    log_weights,
                    chunks,
                    reach,
                    sampling,
                    perturbations,
                    directions,
                    draws.fresh[b, :, n],
                    batch.chunks[b, n],
                    batch.weights[b, n],
                    batch.n_steps[b, n : n + 1],
                    batch.ended[b, n : n + 1],
                    batch.mixed[b, n : n + 1],
                )
            for d in range(size):
                batch.actions[b, n, d] = batch.chunks[b, n, d]
        if batch.rows.size:
            for i in range(neighbors.size):
                batch.rows[b, i] = neighbors[i]
            batch.n_used[b] = list_used(neighbors, batch.weights[b, 0], least, batch.used[b], batch.shares[b])
    transfer_back(batch.actions, batch.choices, observed.poses, transfers)
