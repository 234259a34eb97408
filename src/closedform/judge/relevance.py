"""Relevance: which entries of an observation make predictions worse, and how much less they should count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from closedform.judge.group_scale import crowd_weights
from closedform.judge.selection import select_features
from closedform.transfer.transfer import Transfer
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.metric import LEFT_OUT

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

N_QUERIES, N_NEIGHBORS, _N_POOL = 300, 100, 10_000
_QUERIES_AT_ONCE = 25  # so that other threads can run in between
N_VOTERS, N_STEPS = 10, 4  # neighbors that choose a frame, and actions of a chunk that are compared
_RANK = 3  # the neighbor whose distance is the bandwidth
_FEWEST_EPISODES, _FEWEST_WINDOWS = 8, 100
_SURE = 2.0  # standard errors
_HALVINGS = 6  # an entry weighted by 2^-6 is dropped


def relevances(spec: ModelSpec, store: Store, features: np.ndarray, kernel: ObservationKernel) -> np.ndarray:
    """What to multiply each feature with, (D_z,): what is left out, crowded, or harmful and therefore counts less.

    Args:
        spec: of the model.
        store: of the episodes that are asked.
        features: (n, D_z), of its windows, not weighed.
        kernel: which features count at all.
    """
    weights = np.ones(features.shape[1])
    if spec.kernel.relevance:
        weights = crowd_weights(spec, features, kernel)
        features = features * weights
    if spec.kernel.selection:
        selected = select_features(spec, store, features, kernel)
        weights, features = np.where(selected > LEFT_OUT, weights, LEFT_OUT), features * (selected > LEFT_OUT)
    if not spec.kernel.relevance:
        return weights
    return np.where(weights > LEFT_OUT, weights * entry_weights(spec, store, features), weights)


def entry_weights(spec: ModelSpec, store: Store, features: np.ndarray) -> np.ndarray:
    """The factor of each feature, (D_z,): a power of two for each entry of the layout.

    Windows are predicted from those of other episodes with the observation kernel. In closed form, the derivative of
    the error with respect to the logarithm of an entry's weight tells whether it would be better to trust that entry
    less. While that is sure for some entries, over all predictions, their weights are halved. Nothing is ever given
    more weight: entries that predict well are left alone, and so is everything where few episodes tell little.

    The idea is that of metric learning for kernel regression (Weinberger and Tesauro, 2007), one step at a time.

    Args:
        spec: of the model.
        store: the episodes that are predicted.
        features: (n, D_z), of its windows, before weighting.
    """
    weights = np.ones(features.shape[1])
    columns = _entry_columns(spec)
    fewest = 2 if spec.kernel.drop_redundant else 1  # weights are relative: halving all of them says nothing
    if (
        len(columns) < fewest
        or np.count_nonzero(store.counts[:: store.n_copies]) < _FEWEST_EPISODES
        or len(store) < _FEWEST_WINDOWS
    ):
        return weights
    pool = np.unique(np.linspace(0, len(store) - 1, min(_N_POOL, len(store))).astype(int))
    queries = np.unique(np.linspace(0, len(pool) - 1, min(N_QUERIES, len(pool))).astype(int))
    features, episodes = np.take(features, pool, axis=0), store.origins(pool)
    others = len(pool) - np.bincount(episodes)[episodes[queries]]
    k = min(N_NEIGHBORS, int(others.min()))
    if k <= _RANK:
        return weights
    norms, transfer = np.sum(features * features, axis=1), Transfer.of(spec.transfer, store)
    found = []
    for some in np.split(queries, np.arange(_QUERIES_AT_ONCE, len(queries), _QUERIES_AT_ONCE)):
        near = _neighbors(features, norms, episodes, some, k)
        difference = np.square(features[near] - features[some][:, None])
        parts = np.stack([difference[..., c].sum(-1) for c in columns], axis=-1)
        targets = transferred_chunks(store, transfer, pool[near], pool[some], N_STEPS)
        found.append((parts, *(target.reshape(*target.shape[:-2], -1) for target in targets)))
    parts, chunks, own = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    halved = np.zeros(len(columns), int)
    for _ in range(_HALVINGS):
        worse = _slopes(parts * 0.25**halved, chunks, own, episodes[queries]) > _SURE
        if not worse.any():
            break
        halved += worse
    for index, times in enumerate(halved):
        weights[columns[index]] = 0.5**times
    return weights


def n_judging(n_episodes: int) -> int:
    """How many of `n_episodes` episodes are used: a number that seldom changes as episodes come and go."""
    n = _FEWEST_EPISODES
    while n + n // 4 <= n_episodes:
        n += n // 4
    return n if n_episodes >= _FEWEST_EPISODES else 0


def _entry_columns(spec: ModelSpec) -> list[np.ndarray]:
    """The features of each entry, from all observations of a window."""
    feature_map = spec.kernel.feature_map
    if not isinstance(feature_map, GeometricFeatures):
        return []
    width = feature_map.encoding.width
    starts = np.arange(spec.windows.n_obs_steps)[:, None] * width
    counting = (c for entry, c in feature_map.encoding.slices() if entry.kind != "ignored")
    return [(starts + np.arange(c.start, c.stop)).ravel() for c in counting]


def _slopes(parts: np.ndarray, chunks: np.ndarray, own: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """(entries,), the derivative of the error with respect to the logarithm of each weight, in standard errors.

    Args:
        parts: (q, k, entries), what each entry adds to the squared distance of each neighbor.
        chunks, own: (q, k, n) and (q, n), of the neighbors and of the queries themselves.
        episodes: (q,), of the queries.
    """
    squared = parts.sum(-1)
    h2 = np.maximum(np.partition(squared, _RANK, axis=1)[:, _RANK, None], 1e-300)
    share = np.exp(-0.5 * (squared - squared.min(1, keepdims=True)) / h2)
    share /= share.sum(1, keepdims=True)
    error = np.einsum("qk,qkd->qd", share, chunks) - own
    loss = np.sum(error * error, axis=1)
    pull = np.einsum("qd,qkd->qk", error, chunks)  # the effect of more weight for a neighbor on the error
    pull -= np.sum(share * pull, axis=1, keepdims=True)
    scale = share * pull / (h2 * (loss + np.median(loss) + 1e-300)[:, None])  # of the error's logarithm, roughly
    slopes = -2 * np.einsum("qk,qke->qe", scale, parts)
    own_episodes = np.unique(episodes)
    sums = np.array([slopes[episodes == e].sum(0) for e in own_episodes])  # windows of one episode are not independent
    return sums.sum(0) / np.maximum(np.sqrt(len(sums)) * sums.std(0), 1e-12)


def _neighbors(
    features: np.ndarray, norms: np.ndarray, episodes: np.ndarray, queries: np.ndarray, k: int
) -> np.ndarray:
    """The k nearest windows of other episodes, nearest first, (q, k); `norms` are squared lengths of the features."""
    squared = norms[queries, None] + norms - 2 * features[queries] @ features.T
    squared[episodes[queries][:, None] == episodes] = np.inf
    near = np.argpartition(squared, k - 1, axis=1)[:, :k]
    return np.take_along_axis(near, np.argsort(np.take_along_axis(squared, near, 1), axis=1, kind="stable"), 1)


def transferred_chunks(
    store: Store, transfer: Transfer, near: np.ndarray, queries: np.ndarray, n_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Chunks of neighbors (q, k, steps, D) and of the queries themselves (q, steps, D), transferred about as in a plan.

    Each hand has the frame in which the chunks of its nearest neighbors vary least, and grasps what the query's window
    grasps. Unlike in a plan all voters count the same, and the whole pose of a body is not preferred.
    """
    scaling = transfer.scaling
    steps = np.unique(np.linspace(0, transfer.spec.n_action_steps - 1, n_steps).astype(int))
    rows = np.concatenate([queries[:, None], near], axis=1)
    unit = np.sqrt(scaling.weight)
    fixed = unit == 0
    unit[fixed] = scaling.scale[0, fixed] / 2
    result = np.empty((*rows.shape, len(steps), transfer.encoding.width))

    def transferred(rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        flat = rows.ravel()
        encoded = store.actions[store.starts[flat][:, None] + steps]
        return (transfer.into(encoded, store.poses[flat], choice) * unit).reshape(*rows.shape, len(steps), -1)

    for h, hand in enumerate(transfer.hands):
        holding = store.held[queries][:, h]
        for held in np.unique(holding):
            some = np.flatnonzero(holding == held)
            best, least = np.zeros(len(some), int), np.full(len(some), np.inf)
            choice = transfer.world.copy()
            choice[h, 1] = held
            allowed = [f for f, frame in enumerate(transfer.frames) if frame.body < 0 or frame.body != held]
            for f in allowed:
                choice[h, 0] = f
                votes = transferred(rows[some, 1 : N_VOTERS + 1], choice)[..., hand.columns]
                variance = votes.var(1).sum((1, 2))
                best = np.where(variance < least, f, best)
                least = np.minimum(variance, least)
            for f in np.unique(best):
                choice[h, 0] = f
                these = some[best == f]
                part = result[these]
                part[..., hand.columns] = transferred(rows[these], choice)[..., hand.columns]
                result[these] = part
    return result[:, 1:], result[:, 0]
