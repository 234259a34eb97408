"""Selection: which observed numbers predict actions, and which only make everything look far away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from closedform.transfer.transfer import Transfer
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.metric import LEFT_OUT, covariance_factor

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

_N_QUERIES, _N_POOL, _N_NEAREST = 150, 1_500, 12
_N_VOTERS, _N_STEPS = 10, 4  # neighbors that choose a frame, and actions of a chunk that are compared
_RANK = 3  # the neighbor whose distance is the bandwidth
_WIDEST = 128  # numbers or entries beyond which judging takes too long
_FEWEST_EPISODES, _FEWEST_WINDOWS = 8, 100
_SURE, _ADDS = 3.0, 2.0  # standard errors by which a selection has to be better than all, and a number than none


def select_features(spec: ModelSpec, store: Store, features: np.ndarray, kernel: ObservationKernel) -> np.ndarray:
    """What to multiply each feature with, (D_z,): 1, or `LEFT_OUT` for those without which predictions are better.

    With many useless numbers none of them can be told to be harmful, since without it the others still hide what
    matters. So it is asked the other way round: starting from what has a known meaning (positions, vectors, rotations),
    the number that improves predictions of windows from other episodes most is added as long as it surely does (forward
    selection). Everything is kept unless the selection predicts surely better than all together, and where nothing has
    a known meaning: predictions alone do not tell what a rollout needs.

    Args:
        spec: of the model.
        store: of the episodes that are asked.
        features: (n, D_z), of its windows, not weighed.
        kernel: which features count at all.
    """
    weights = np.ones(features.shape[1])
    known, numbers = groups_of(spec, kernel)
    if not known or not 1 <= len(numbers) <= _WIDEST or np.count_nonzero(store.counts) < _FEWEST_EPISODES:
        return weights
    pool = np.unique(np.linspace(0, len(store) - 1, min(_N_POOL, len(store))).astype(int))
    queries = np.unique(np.linspace(0, len(pool) - 1, min(_N_QUERIES, len(pool))).astype(int))
    features, episodes = np.take(features, pool, axis=0), store.row_episodes[pool]
    if len(pool) < _FEWEST_WINDOWS or len(pool) - np.bincount(episodes).max() <= _N_NEAREST:
        return weights
    same, asked = episodes[queries][:, None] == episodes, episodes[queries]
    predictions = _Predictions(store, Transfer.of(spec.transfer, store), pool, queries)

    def squared(columns: np.ndarray) -> np.ndarray:
        return _squared_distances(features[:, columns], queries, same)

    def best_errors(columns: np.ndarray) -> np.ndarray:
        """In the better one of two metrics, since it is not known which one plans will have."""
        whitened = np.linalg.solve(
            covariance_factor(features[:, columns], kernel.spec.regularization), features[:, columns].T
        )
        plain, white = (
            predictions.errors(squared(columns)),
            predictions.errors(_squared_distances(whitened.T, queries, same)),
        )
        return min(plain, white, key=lambda errors: np.mean(errors / (errors + np.median(plain) + 1e-300)))

    chosen = np.concatenate(known)
    distances = squared(chosen)
    parts = [squared(group) for group in numbers]
    errors = predictions.errors(distances)
    size = np.median(errors) + 1e-300
    left = list(range(len(numbers)))
    while left:
        found = [predictions.errors(distances + parts[i]) for i in left]
        best = int(np.argmin([np.mean(one / (one + size)) for one in found]))
        if _standard_errors(errors, found[best], asked) < _ADDS:
            break
        errors, distances = found[best], distances + parts[left[best]]
        chosen = np.append(chosen, numbers[left.pop(best)])
    everything = np.concatenate([*known, *numbers])
    if left and _standard_errors(best_errors(everything), best_errors(chosen), asked) > _SURE:
        weights[np.setdiff1d(everything, chosen)] = LEFT_OUT
    return weights


def groups_of(spec: ModelSpec, kernel: ObservationKernel) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The features, in all observations of a window, of entries with a known meaning, and of single other numbers.

    Those that do not count at all are left out.
    """
    known: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    feature_map = spec.kernel.feature_map
    if not isinstance(feature_map, GeometricFeatures):
        return known, numbers
    starts = np.arange(spec.windows.n_obs_steps)[:, None] * feature_map.encoding.width
    for entry, columns in feature_map.encoding.slices():
        if entry.kind in ("other", "binary"):
            numbers += [(starts + column).ravel() for column in range(columns.start, columns.stop)]
        elif entry.kind != "ignored":
            known.append((starts + np.arange(columns.start, columns.stop)).ravel())
    return _counting(known, kernel), _counting(numbers, kernel)


def _counting(groups: list[np.ndarray], kernel: ObservationKernel) -> list[np.ndarray]:
    return [group for group in groups if kernel.scale[group].any()]


def _squared_distances(features: np.ndarray, queries: np.ndarray, same: np.ndarray) -> np.ndarray:
    """From queries (q,) to all windows, in float32; infinite for those of the same episode. (n, D) -> (q, n)."""
    norms = np.einsum("nd,nd->n", features, features)
    squared = norms[queries, None] + norms - 2 * features[queries] @ features.T
    return np.where(same, np.inf, np.maximum(squared, 0.0)).astype(np.float32)


def _standard_errors(before: np.ndarray, after: np.ndarray, episodes: np.ndarray) -> float:
    """How surely errors (q,) became smaller: their relative gain, in standard errors.

    Windows of one episode (q,) are not independent, and errors that are small anyway count little.
    """
    gains = (before - after) / (before + after + np.median(before) + 1e-300)
    sums = np.array([gains[episodes == e].sum() for e in np.unique(episodes)])
    return float(sums.sum() / max(np.sqrt(len(sums)) * sums.std(), 1e-12))


class _Predictions:
    """Predicts chunks of queries from other windows, transferred about as in a plan.

    Each hand has the frame in which the chunks of its nearest neighbors vary least, and grasps what the query's window
    grasps. Chunks in all frames are computed once, so that asking for another metric is quick.

    Args:
        store: the demonstrations.
        transfer: of their chunks.
        pool: (n,), rows of the store.
        queries: (q,), those of them that are predicted.
    """

    def __init__(self, store: Store, transfer: Transfer, pool: np.ndarray, queries: np.ndarray):
        self._queries = queries
        scaling, unit = transfer.scaling, np.sqrt(transfer.scaling.weight)
        unit[unit == 0] = scaling.scale[0, unit == 0] / 2
        steps = np.unique(np.linspace(0, transfer.spec.n_action_steps - 1, _N_STEPS).astype(int))
        encoded, poses = store.actions[store.starts[pool][:, None] + steps], store.poses[pool]
        self._hands: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for h, hand in enumerate(transfer.hands):
            grasps, held = np.unique(store.held[pool][:, h], return_inverse=True)
            chunks = np.empty((len(grasps), len(transfer.frames), len(pool), len(steps) * len(hand.columns)))
            choice = transfer.world.copy()
            for g, f in np.ndindex(chunks.shape[:2]):
                choice[h] = f, grasps[g]
                moved = transfer.into(encoded, poses, choice) * unit
                chunks[g, f] = moved[..., hand.columns].reshape(len(pool), -1)
            bodies = np.array([frame.body for frame in transfer.frames])
            barred = (bodies >= 0) & (bodies == grasps[:, None])
            self._hands.append((held[queries], np.moveaxis(chunks, 1, 2), barred))

    def errors(self, squared: np.ndarray) -> np.ndarray:
        """The squared errors (q,) of predictions with squared distances (q, n), infinite where none may be made."""
        near = np.argpartition(squared, _N_NEAREST - 1, axis=1)[:, :_N_NEAREST]
        order = np.argsort(np.take_along_axis(squared, near, 1), axis=1, kind="stable")
        near = np.take_along_axis(near, order, 1)
        squared = np.take_along_axis(squared, near, 1).astype(np.float64)
        share = np.exp(-0.5 * (squared - squared[:, :1]) / np.maximum(squared[:, _RANK, None], 1e-30))
        share /= share.sum(1, keepdims=True)
        errors, here = np.zeros(len(squared)), np.arange(len(squared))
        for held, chunks, barred in self._hands:
            neighbors = chunks[held[:, None], near]
            variance = np.where(barred[held], np.inf, neighbors[:, :_N_VOTERS].var(1).sum(-1))
            frame = variance.argmin(1)
            predicted = np.einsum(
                "qk,qkd->qd", share, neighbors[here[:, None], np.arange(near.shape[1]), frame[:, None]]
            )
            errors += np.square(predicted - chunks[held, self._queries, frame]).sum(1)
        return errors
