"""Compiled diffusion: all steps of one sample, with provable pruning.

Only a few of the k neighbors carry weight, but which ones changes along the run: at low noise the distance between
sample and chunk outweighs the distance between observations. So nothing is dropped for good. Relative to a reference
chunk c, with x = a - G c and A_i the chunks less c, the logit of neighbor i under perturbation j is

    l_ij = log w_i + (G / sigma^2) (x + eps_j) . A_i - (G^2 / 2 sigma^2) |A_i|^2        (eq:smoothed_cond_kernel)

up to terms that are the same for every i. At each step

- *active* neighbors get their exact weights;
- *candidates* that are not active have an upper bound on max_j l_ij at least `cut` below the sum's largest term; for
  most of them one with |x| |A_i| in place of x . A_i is enough;
- *the others* were never fetched: since a square is not negative, l_ij <= log w_i + |x + eps_j|^2 / (2 sigma^2). If
  that bound is not `cut` below the largest term, more are fetched and the run starts over.

What is left out at a step is therefore at most k exp(-cut) of the weight.
"""

from __future__ import annotations

import math

import numpy as np

from closedform.diffusion.mixture import ROUNDING, TINY
from closedform.kernels.clock import seconds
from closedform.kernels.jit import float32_of_bits, jit
from closedform.kernels.search import dot

_RECENTER = 30.0  # nats by which another neighbor must lead to become the center of distances


@jit(inline=True)
def exp32(x):
    """exp of a number that is not positive, to float32 accuracy; small enough to be inlined and vectorized."""
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


@jit(reorder=True)
def measure_from(center, chunks, candidates, offsets, lengths):
    """Writes the candidates' chunks less the center, and their lengths."""
    for i in range(candidates.size):
        chunk = candidates[i]
        total = 0.0
        for d in range(center.size):
            difference = chunks[chunk, d] - center[d]
            offsets[i, d] = difference
            total += difference * difference
        lengths[i] = math.sqrt(total)


@jit(reorder=True)
def could_matter(log_weights, lengths, highest, distance, slope, half, least, close):
    """Lists the candidates whose bound is at least `least` if x points at them, and returns how many there are.

    Args:
        distance: |x|, so that x . A_i is at most this times |A_i|.
        close: (count + 1,), the list.
    """
    count = 0
    for i in range(log_weights.size):
        bound = log_weights[i] + slope * (distance * lengths[i] + highest[i]) - half * lengths[i] * lengths[i]
        close[count] = i
        count += bound >= least
    return count


@jit(reorder=True)
def shifts_of(i, offsets, perturbations, shifts, highest, lowest):
    """Fills eps_j . A_i for all j, and their extremes."""
    highest[i], lowest[i] = -np.inf, np.inf
    for j in range(perturbations.shape[0]):
        total = 0.0
        for d in range(perturbations.shape[1]):
            total += perturbations[j, d] * offsets[i, d]
        shifts[i, j] = total
        highest[i] = max(highest[i], total)
        lowest[i] = min(lowest[i], total)


@jit(reorder=True)
def logits_of(bases, shifts, slope, active, n_active, logits, largest):
    """Fills the exact logits of the active candidates, and the largest of them for each perturbation."""
    for j in range(largest.size):
        largest[j] = -np.inf
    for n in range(n_active):
        i = active[n]
        for j in range(largest.size):
            value = bases[n] + slope * shifts[i, j]
            logits[n, j] = value
            largest[j] = max(largest[j], value)


@jit(reorder=True)
def reach_needed(x, variance, directions, norms, largest, distances):
    """How far below the best neighbor's weight one must look: max_j |x + eps_j|^2 / (2 sigma^2) - max_i l_ij.

    Args:
        directions: (D, M), the perturbations.
        norms: (M,), their squared lengths.
        distances: (M,), scratch.
    """
    length = 0.0
    for j in range(norms.size):
        distances[j] = norms[j]
    for d in range(x.size):
        length += x[d] * x[d]
        twice = 2.0 * x[d]
        for j in range(norms.size):
            distances[j] += twice * directions[d, j]
    needed = -np.inf
    for j in range(norms.size):
        needed = max(needed, 0.5 * (length + distances[j]) / variance - largest[j])
    return needed


@jit(reorder=True)
def average(logits, largest, active, n_active, offsets, totals, weights, shares, denoised):
    """denoised += the average of the active candidates' offsets; returns which of them has the most weight."""
    n_perturbations = largest.size
    for j in range(n_perturbations):
        totals[j] = np.float32(0.0)
    for n in range(n_active):
        for j in range(n_perturbations):
            weight = exp32(np.float32(logits[n, j] - largest[j]))
            weights[n, j] = weight
            totals[j] += weight
    for j in range(n_perturbations):
        totals[j] = np.float32(1.0) / (totals[j] * np.float32(n_perturbations))
    leader = 0
    for n in range(n_active):
        share = 0.0
        for j in range(n_perturbations):
            share += weights[n, j] * totals[j]
        shares[n] = share
        if share > shares[leader]:
            leader = n
        i = active[n]
        for d in range(denoised.size):
            denoised[d] += share * offsets[i, d]
    return leader


@jit()
def is_mixture(sample, chunks, candidates, active, n_active, offsets):
    """Whether each number of a sample lies within the range of the chunks it was made of: the active ones and c."""
    if n_active == 0:
        return False
    first = active[0]
    for d in range(sample.size):
        center = chunks[candidates[first], d] - offsets[first, d]
        low, high = 0.0, 0.0
        for n in range(n_active):
            low, high = min(low, offsets[active[n], d]), max(high, offsets[active[n], d])
        slack = ROUNDING * (high - low) + TINY * (1.0 + abs(center))
        if not low - slack <= sample[d] - center <= high + slack:  # also if it is NaN
            return False
    return True


@jit()
def diffuse(
    neighbor_log_weights,
    chunks,
    reach,
    sampling,
    perturbations,
    directions,
    fresh,
    sample,
    shares,
    taken,
    ended,
    mixed,
):
    """Runs one sample through all steps; `sample` (D,) is the noise on entry and the chunk on return.

    If there is no time for all steps, the chunk is the denoised one of the last step taken. Either way it is a mixture
    of the neighbors' chunks; `mixed` is false only if overflow made it anything else.

    Args:
        neighbor_log_weights: (k,), the largest being 0.
        chunks: (k, D), filled for the neighbors within `reach[0]` nats of the best.
        reach: (1,); if it proves too small, it is raised and False is returned.
        sampling: `Sampling`.
        perturbations, directions: (M, D) and its transpose (D, M).
        fresh: (S, D) or (0, D), noise to add.
        shares: (k,) or (0,), receives the weight of each neighbor in the chunk.
        taken, ended: (1,), receive the number of steps taken and, if there is a time to stop at, when the last ended.
        mixed: (1,), receives whether the chunk is a mixture.
    """
    mixed[0] = False
    k, width = chunks.shape
    n_perturbations = perturbations.shape[0]
    steps, cut, stop_at = sampling.steps, sampling.cut, sampling.stop_at
    candidates = np.empty(k, np.int64)
    log_weights = np.empty(k)
    count, best = 0, 0
    for i in range(k):
        if neighbor_log_weights[i] >= -reach[0]:
            candidates[count] = i
            log_weights[count] = neighbor_log_weights[i]
            count += 1
        if neighbor_log_weights[i] > neighbor_log_weights[best]:
            best = i
    if count == 0:  # all weights are NaN
        return True
    candidates, log_weights = candidates[:count], log_weights[:count]
    center = np.empty(width)
    for d in range(width):
        center[d] = chunks[best, d]
    norms = np.empty(n_perturbations)
    longest = 0.0
    for j in range(n_perturbations):
        norms[j] = dot(perturbations[j], perturbations[j])
        longest = max(longest, math.sqrt(norms[j]))

    offsets = np.empty((count, width))  # A_i
    lengths = np.empty(count)  # |A_i|
    highest = np.empty(count)  # max_j eps_j . A_i, or a bound on it
    lowest = np.empty(count)  # min_j eps_j . A_i, or a bound on it
    exact = np.empty(count, np.bool_)  # whether these two are exact and `shifts` is filled
    shifts = np.empty((count, n_perturbations))  # eps_j . A_i
    close, active = np.empty(count + 1, np.int64), np.empty(count, np.int64)
    bases = np.empty(count)  # of the active ones, l_ij without eps_j
    logits = np.empty((count, n_perturbations))
    weights = np.empty((count, n_perturbations), np.float32)
    largest, distances = np.empty(n_perturbations), np.empty(n_perturbations)
    totals = np.empty(n_perturbations, np.float32)
    mean_weights = np.empty(count)
    x, denoised = np.empty(width), np.empty(width)
    recenter, n_active, leader = True, 0, 0
    for i in range(count):
        if candidates[i] == best:
            leader = i
    clock = np.empty(2, np.int64)
    recalls = False
    for s in range(steps.shape[0]):
        recalls = recalls or steps[s, 5] != 0.0
    before, sampled = np.empty(width), np.empty(width)

    for s in range(steps.shape[0]):
        gain, variance = steps[s, 0], steps[s, 1] * steps[s, 1]
        slope = gain / variance
        half = 0.5 * gain * slope
        if recenter:
            measure_from(center, chunks, candidates, offsets, lengths)
            for i in range(count):
                highest[i] = longest * lengths[i]
                lowest[i] = -highest[i]
                exact[i] = False
            active[0], n_active = leader, 1
            recenter = False
        for d in range(width):
            x[d] = sample[d] - gain * center[d]
            denoised[d] = center[d]
        floor = -np.inf  # not more than the largest term, whatever the perturbation
        for n in range(n_active):
            i = active[n]
            base = log_weights[i] + slope * dot(x, offsets[i]) - half * lengths[i] * lengths[i]
            floor = max(floor, base + slope * lowest[i])
        least, distance = floor - cut, math.sqrt(dot(x, x))
        n_close = could_matter(log_weights, lengths, highest, distance, slope, half, least, close)
        n_active = 0
        for n in range(n_close):
            i = close[n]
            base = log_weights[i] + slope * dot(x, offsets[i]) - half * lengths[i] * lengths[i]
            if base + slope * highest[i] >= least and not exact[i]:
                shifts_of(i, offsets, perturbations, shifts, highest, lowest)
                exact[i] = True
            if base + slope * highest[i] >= least:
                active[n_active] = i
                bases[n_active] = base
                n_active += 1
        logits_of(bases, shifts, slope, active, n_active, logits, largest)
        if count < k and 0.5 * (distance + longest) ** 2 / variance - np.min(largest) + cut > reach[0]:
            needed = reach_needed(x, variance, directions, norms, largest, distances) + cut
            if needed > reach[0]:
                reach[0] = 1.5 * needed
                return False
        first = average(logits, largest, active, n_active, offsets, totals, weights, mean_weights, denoised)
        leader = active[first]
        if bases[first] > _RECENTER:
            recenter = True
            for d in range(width):
                center[d] = chunks[candidates[leader], d]
        taken[0] = s + 1
        if stop_at < np.inf:
            ended[0] = seconds(clock)
            if s + 1 < steps.shape[0] and ended[0] >= stop_at:
                for d in range(width):
                    sample[d] = denoised[d]
                break
        if recalls:
            for d in range(width):
                before[d] = sampled[d] if s > 0 else sample[d]
                sampled[d] = sample[d]
        for d in range(width):
            sample[d] = steps[s, 2] * sample[d] + steps[s, 3] * denoised[d]
        if steps[s, 5] != 0.0:
            for d in range(width):
                sample[d] += steps[s, 5] * before[d]
        if fresh.shape[0]:
            for d in range(width):
                sample[d] += steps[s, 4] * fresh[s, d]
    mixed[0] = is_mixture(sample, chunks, candidates, active, n_active, offsets)
    if shares.size:
        for n in range(n_active):
            shares[candidates[active[n]]] = mean_weights[n]
    return True
