"""Shrinkage: how far the local covariance is shrunk toward a sphere, chosen by leave-one-out error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from closedform.judge.relevance import transferred_chunks
from closedform.transfer.transfer import Transfer
from closedform.weights.metric import usual_shrinkage

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

CANDIDATES = (0.0, 0.1, 0.3)  # besides the usual shrinkage, which depends on the number of episodes
_N_QUERIES, _N_POOL, _N_NEAREST = 400, 1_000, 16
_QUERIES_AT_ONCE = 20  # so that other threads can run in between
_RANK = 3  # the neighbor whose distance is the bandwidth, so that metrics are compared at the same effective bandwidth
_MOST_STEPS = 16  # of a chunk whose mean is predicted
_WIDEST = 256  # features; beyond this, choosing takes too long
_AS_GOOD = 0.5  # standard errors that a smaller shrinkage may be worse by, where a covariance can be estimated
_BETTER = 1.0  # standard errors that it has to predict better by, where it cannot
_FEWEST_EPISODES = 8


def choose_shrinkage(spec: ModelSpec, store: Store, features: np.ndarray, kernel: ObservationKernel) -> float | None:
    """The shrinkage that predictions call for, one of `CANDIDATES`; None for the usual one.

    With at least as many episodes as features a covariance can be estimated, and the smallest shrinkage is taken that
    predicts about as well as the best. With fewer, another one than the usual has to predict surely better.

    Windows are predicted from those of other episodes: the mean of a window's actions, which is robust to noise in
    single actions. Whether numbers that vary little count as much as those that vary a lot is a property of the task,
    which few episodes suffice to reveal.

    Args:
        spec: of the model.
        store: the episodes that are predicted.
        features: (n, D_z), of its windows.
        kernel: the kernel whose metric is shrunk.
    """
    counted = kernel.counted
    if np.count_nonzero(store.counts[:: store.n_copies]) < _FEWEST_EPISODES or not 0 < len(counted) <= _WIDEST:
        return None
    pool = np.unique(np.linspace(0, len(store) - 1, min(_N_POOL, len(store))).astype(int))
    queries = np.unique(np.linspace(0, len(pool) - 1, min(_N_QUERIES, len(pool))).astype(int))
    features, episodes = np.take(features, pool, axis=0)[:, counted], store.origins(pool)
    fewest = len(pool) - int(np.bincount(episodes).max())
    k = min(round(spec.search.n_neighbors * len(pool) / len(store)) or 1, fewest)
    if k <= _N_NEAREST:
        return None
    usual = usual_shrinkage(len(counted), len(store.recorded))
    values = (usual, *(value for value in CANDIDATES if value < usual))
    transfer, found = Transfer.of(spec.transfer, store), []
    for some in np.split(queries, np.arange(_QUERIES_AT_ONCE, len(queries), _QUERIES_AT_ONCE)):
        near, along, variances = _principal(features, episodes, some, k)
        errors = []
        for shrinkage in values:
            shrunk = (1 - shrinkage) * variances + shrinkage * variances.mean(1, keepdims=True)
            squared = (along @ (1 / (shrunk + kernel.spec.regularization))[..., None])[..., 0]
            errors.append(prediction_errors(store, transfer, pool, some, near, squared))
        found.append(errors)
    errors = np.concatenate(found, axis=1)
    asked = episodes[queries]
    chosen = _smallest_good(errors, asked) if len(counted) <= len(store.recorded) else _surely_best(errors, asked)
    return values[chosen] if chosen else None  # the usual one changes with the number of episodes


def _smallest_good(errors: np.ndarray, episodes: np.ndarray) -> int:
    """The place of the smallest value that predicts about as well as the best one.

    Args:
        errors: (values, q), squared; of the usual value, and of smaller ones in ascending order.
        episodes: (q,), of the queries.
    """
    size = np.median(errors[0]) + 1e-300
    best = int(np.argmin(np.mean(errors / (errors + size), axis=1)))
    total, standard_error = _losses(errors, errors[best], size, episodes)
    good = total <= _AS_GOOD * standard_error
    return next((place for place in range(1, len(good)) if good[place]), 0)


def _surely_best(errors: np.ndarray, episodes: np.ndarray) -> int:
    """The place of the value that predicts best among those that surely predict better than the first; 0 if none does.

    Args:
        errors: (values, q), squared.
        episodes: (q,), of the queries.
    """
    total, standard_error = _losses(errors, errors[0], np.median(errors[0]) + 1e-300, episodes)
    return int(np.argmin(np.where(total < -_BETTER * standard_error, total, 0.0)))


def _losses(
    errors: np.ndarray, reference: np.ndarray, size: float, episodes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How much worse each value predicts than a reference, relative, and the standard error of that; both (values,).

    Windows of one episode are not independent, and errors below `size` count little.
    """
    losses = (errors - reference) / (errors + reference + size)
    sums = np.array([losses[:, episodes == e].sum(1) for e in np.unique(episodes)])
    return sums.sum(0), np.sqrt(len(sums)) * sums.std(0)


def _principal(
    features: np.ndarray, episodes: np.ndarray, queries: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Neighbors along the principal axes of each query's neighborhood, which shrinkage does not change.

    Returns:
        The k nearest windows of other episodes (q, k), their squared differences from the query along each axis
        (q, k, D), and the variances along the axes (q, D).
    """
    origin = features[queries]
    squared = np.einsum("nd,nd->n", features, features) - 2 * origin @ features.T
    squared[episodes[queries][:, None] == episodes] = np.inf
    near = np.argpartition(squared, k - 1, axis=1)[:, :k]
    differences = features[near] - origin[:, None]
    centered = differences - differences.mean(1, keepdims=True)
    values, axes = np.linalg.eigh(np.swapaxes(centered, 1, 2) @ centered / max(k - 1, 1))
    along = differences @ axes
    return near, np.square(along, out=along), np.maximum(values, 0.0)


def prediction_errors(
    store: Store, transfer: Transfer, pool: np.ndarray, queries: np.ndarray, near: np.ndarray, squared: np.ndarray
) -> np.ndarray:
    """The squared error of the prediction for each query, (q,), of the mean of its actions.

    Args:
        store, transfer: of the windows.
        pool: rows of the store.
        queries: (q,), places in the pool.
        near: (q, k), places of their neighbors.
        squared: (q, k), squared distances of these.
    """
    first = np.argpartition(squared, _N_NEAREST - 1, axis=1)[:, :_N_NEAREST]
    order = np.argsort(np.take_along_axis(squared, first, 1), axis=1, kind="stable")
    first = np.take_along_axis(first, order, 1)
    squared, rows = np.take_along_axis(squared, first, 1), np.take_along_axis(near, first, 1)
    share = np.exp(-0.5 * (squared - squared[:, :1]) / np.maximum(squared[:, _RANK, None], 1e-300))
    share /= share.sum(1, keepdims=True)
    chunks, own = transferred_chunks(store, transfer, pool[rows], pool[queries], _MOST_STEPS)
    error = np.einsum("qk,qkd->qd", share, chunks.mean(-2)) - own.mean(-2)
    return np.sum(error * error, axis=1)
