"""Compiled retrieval: exact k nearest neighbors, local covariance and Mahalanobis distances of one query."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.jit import jit

BLOCK = 512  # rows whose distances stay in the first-level cache while the columns stream past
COLUMNS = 8  # between checks for stopping early
SAMPLE, _RUN = 512, 8  # distances sampled to estimate that of the k-th neighbor, and consecutive ones among them


@jit()
def _add_squared_differences(column, coordinate, total):
    """total += (column - coordinate)^2, rounded as numpy rounds it."""
    for i in range(total.size):
        difference = column[i] - coordinate
        total[i] += difference * difference


@jit(reorder=True)
def smallest(values):
    """The smallest of some numbers."""
    least = np.inf
    for i in range(values.size):
        least = min(least, values[i])
    return least


@jit()
def _rows_within(columns, n, query, within, rows, distances):
    """Writes which of the first n rows are within a squared Euclidean distance, and their distances; returns how many.

    Sums only grow: once all rows of a block are beyond `within`, the block is skipped. Consecutive steps lie in the
    same block, so that most of a large set is skipped early.
    """
    width, block, count = columns.shape[0], np.empty(BLOCK), 0
    for start in range(0, n, BLOCK):
        total = block[: min(BLOCK, n - start)]
        for i in range(total.size):
            total[i] = 0.0
        far = False
        for d in range(width):
            if d > 0 and d % COLUMNS == 0 and width - d >= COLUMNS and smallest(total) > within:
                far = True
                break
            _add_squared_differences(columns[d, start : start + total.size], query[d], total)
        if not far:
            for i in range(total.size):
                rows[count], distances[count] = start + i, total[i]
                count += not total[i] > within
    return count


@jit()
def _sampled_distances(columns, n, query):
    """Squared distances to rows spread over all of them, a few consecutive ones since memory is read in cache lines."""
    n_runs = SAMPLE // _RUN
    sample = np.zeros(SAMPLE)
    for r in range(n_runs):
        start = (n - _RUN) * r // (n_runs - 1)
        for d in range(columns.shape[0]):
            _add_squared_differences(columns[d, start : start + _RUN], query[d], sample[r * _RUN : (r + 1) * _RUN])
    return sample


@jit()
def _kth_smallest(values, k):
    """The k-th smallest (from 0) of `values`, which are reordered (Hoare's quickselect)."""
    low, high = 0, values.size - 1
    while low < high:
        a, b, c = values[low], values[(low + high) >> 1], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@jit()
def _keep_smallest(distances, k, rows):
    """Keeps those of the ascending rows with the k smallest distances; among equal ones the earlier."""
    limit = _kth_smallest(distances.copy(), k - 1)
    at_limit = k
    for i in range(rows.size):
        at_limit -= distances[i] < limit
    kept = 0
    for i in range(rows.size):
        tied = distances[i] == limit and at_limit > 0
        rows[kept] = rows[i]
        kept += distances[i] < limit or tied
        at_limit -= tied


@jit()
def nearest_rows(columns, n, query, k, distances, rows):
    """Writes the k nearest of the first n rows in ascending order; among equal distances the earlier rows.

    A sample estimates a distance within which slightly more than k rows lie; only those are examined. `rows` and
    `distances`, which is scratch, need room for n. Returns how many there are.
    """
    if k >= n:
        for i in range(n):
            rows[i] = i
        return n
    sample = _sampled_distances(columns, n, query) if n >= SAMPLE else np.empty(0)
    share = k / n
    rank = int(sample.size * share + 6.0 * math.sqrt(sample.size * share * (1.0 - share))) + 4
    count = 0
    while count < k:  # ends with all rows at the latest: NaN is not beyond any distance
        within = _kth_smallest(sample, rank) if rank < sample.size else np.inf
        rank = min(2 * rank, SAMPLE)
        count = _rows_within(columns, n, query, within, rows, distances)
    _keep_smallest(distances[:count], k, rows[:count])
    return k


@jit(reorder=True)
def _mean_of(values):
    """The mean."""
    total = 0.0
    for i in range(values.size):
        total += values[i]
    return total / values.size


@jit()
def _subtract(values, number, out):
    """out = values - number."""
    for i in range(values.size):
        out[i] = values[i] - number


@jit(reorder=True)
def dot(a, b):
    """The inner product, summed in any order."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@jit(reorder=True)
def _add_scaled(total, factor, values):
    """total += factor * values."""
    for i in range(total.size):
        total[i] += factor * values[i]


@jit()
def cholesky(matrix, least):
    """Replaces the lower triangle of a matrix by its Cholesky factor; pivots are at least `least` despite rounding.

    If rounding pushed a pivot below `least`, the column below it is rounding error too: divided by the pivot, it would
    grow from column to column.
    """
    floor = math.sqrt(least)
    for a in range(matrix.shape[0]):
        for b in range(a + 1):
            rest = matrix[a, b]
            for c in range(b):
                rest -= matrix[a, c] * matrix[b, c]
            if a == b:
                matrix[a, b] = math.sqrt(max(rest, least))
            else:
                matrix[a, b] = rest / matrix[b, b] if matrix[b, b] > floor else 0.0


@jit(reorder=True)
def _add_squares_of_scaled(total, factor, values):
    """values *= factor; total += values^2."""
    for i in range(total.size):
        values[i] *= factor
        total[i] += values[i] * values[i]


@jit()
def metric_distances(columns, query, rows, metric, squared):
    """Squared distances of the rows in the metric (`squared_distances` of the reference). Fills `squared` (k,).

    The factor of the local metric is that of the rows' own covariance, shrunk and regularized as in the reference's
    `covariance_factor`.
    """
    width, k = columns.shape[0], rows.size
    factor, regularization, shrinkage = metric.factor, metric.regularization, metric.shrinkage
    differences = np.empty((width, k))
    for d in range(width):
        for i in range(k):
            differences[d, i] = columns[d, rows[i]]
    if not factor.size:
        factor = np.empty((width, width))
        centered = np.empty((width, k))
        for d in range(width):  # not from the differences: far from the query the spread would be lost to rounding
            _subtract(differences[d], _mean_of(differences[d]), centered[d])
        sphere = 0.0
        for a in range(width):
            for b in range(a + 1):
                factor[a, b] = dot(centered[a], centered[b]) / max(k - 1, 1)
            sphere += factor[a, a] / width
        for a in range(width):
            for b in range(a + 1):
                factor[a, b] *= 1.0 - shrinkage
            factor[a, a] += shrinkage * (sphere * metric.share) + regularization
        cholesky(factor, regularization)
    for d in range(width):
        _subtract(differences[d], query[d], differences[d])
    for i in range(k):
        squared[i] = 0.0
    for a in range(width):  # forward substitution for all rows at once
        for b in range(a):
            _add_scaled(differences[a], -factor[a, b], differences[b])
        _add_squares_of_scaled(squared, 1.0 / factor[a, a], differences[a])


@jit()
def retrieve(columns, n, query, k, metric):
    """The k nearest of the first n columns, ascending, and their squared distances in the metric."""
    rows = np.empty(n, np.int64)
    k = nearest_rows(columns, n, query, k, np.empty(n), rows)
    squared = np.empty(k)
    metric_distances(columns, query, rows[:k], metric, squared)
    return rows[:k], squared
