"""Mirror symmetries that demonstrations show, although no layout declares them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ClosedFormError
from closedform.geometry.layout import ROTATIONS, Layout
from closedform.judge.shrinkage import prediction_errors
from closedform.rewrites.copies import Symmetry, is_declared
from closedform.transfer.transfer import Transfer

if TYPE_CHECKING:
    from closedform.store.model import Model

MIRRORS = ("mirror_x", "mirror_y")
FEWEST_EPISODES, MOST_EPISODES = 10, 50  # more do not need mirror images, which make the end less precise
_N_JUDGES = 25  # episodes
_N_QUERIES, _N_POOL, _N_NEAREST = 400, 4_000, 16
_N_ANY = 128  # windows that predictions from any windows are made of
_WORSE = 0.1  # by which mirror images may predict worse than the episodes themselves, of 1: people have habits
_BETTER = 1.0  # standard errors by which both together must be better
_PREDICTS = 0.5  # of the error of predictions from any windows: episodes with larger errors do not predict each other


def find_mirrored(demos: Demos, build: Callable[[Demos, Symmetry], Model]) -> Layout | None:
    """The layout of observations with the mirror symmetry of a body in the plane; None if none is found.

    If a body looks the same in a mirror, then the mirror images of some episodes predict the others as well as these
    episodes do, and both together predict them better. If it does not, they predict what nobody did.

    Args:
        demos: demonstrations.
        build: makes the model of demonstrations and their images.
    """
    layouts = _candidates(demos)
    if not layouts or not FEWEST_EPISODES <= len(demos) <= MOST_EPISODES:
        return None
    chosen = np.unique(np.linspace(0, len(demos) - 1, min(len(demos), _N_JUDGES)).astype(int))
    judges = Demos([demos[int(index)] for index in chosen], demos.observation_layout, demos.action_layout, demos.rate)
    found = []
    for layout in layouts:
        mirrored = judges.with_layouts(layout, judges.action_layout)
        try:
            symmetry = Symmetry.find(mirrored)
        except ClosedFormError:  # it does not end in one direction, so that there is nowhere to mirror it
            continue
        if symmetry is not None and (worse := _judged(build(mirrored, symmetry))) is not None:
            found.append((worse, layout))
    return min(found, key=lambda one: one[0])[1] if found else None


def _candidates(demos: Demos) -> list[Layout]:
    """Layouts that declare a mirror of the one body that turns, if everything else can be mirrored in the plane."""
    layout, actions = demos.observation_layout, demos.action_layout
    entries = (*layout.entries, *actions.entries)
    turning = [i for i, entry in enumerate(layout.entries) if entry.kind in ROTATIONS]
    if is_declared(layout, actions) or len(turning) != 1 or any(entry.kind in ROTATIONS for entry in actions.entries):
        return []
    turned = layout.entries[turning[0]]
    places = {entry.body for entry in layout.entries if entry.kind == "position" and entry.size == 2}
    moves = turned.body is not None and turned.body in places and turned.body not in actions.bodies
    flat = all(e.size == 2 for e in entries if e.kind in ("position", "vector"))
    if not (moves and flat and turned.kind == "angle") or any(entry.kind == "other" for entry in entries):
        return []
    marked = [replace(turned, symmetry=mirror) for mirror in MIRRORS]
    return [Layout(tuple(one if i == turning[0] else e for i, e in enumerate(layout.entries))) for one in marked]


def _judged(model: Model) -> float | None:
    """By how much mirror images predict worse than the episodes do, of 1; None if they are not of the same kind."""
    store = model.store
    pool = np.unique(np.linspace(0, len(store) - 1, min(_N_POOL, len(store))).astype(int))
    images, origins = store.copies_of(pool), store.origins(pool)
    queries = np.flatnonzero(images == 0)
    queries = queries[np.unique(np.linspace(0, len(queries) - 1, min(_N_QUERIES, len(queries))).astype(int))]
    features = model.storage.index.rows()[pool]
    squared = np.sum(features * features, axis=1) - 2 * features[queries] @ features.T
    squared += np.sum(features[queries] ** 2, axis=1, keepdims=True)
    squared[origins[queries][:, None] == origins] = np.inf
    transfer = Transfer.of(model.spec.transfer, store)

    def errors(places: np.ndarray, distances: np.ndarray) -> np.ndarray:
        near = np.argpartition(distances, _N_NEAREST - 1, axis=1)[:, :_N_NEAREST]
        squared = np.take_along_axis(distances, near, 1)
        return prediction_errors(store, transfer, pool, queries, places[near], squared)

    recorded, mirrored, all_ = np.flatnonzero(images == 0), np.flatnonzero(images > 0), np.arange(len(pool))
    own, others = errors(recorded, squared[:, recorded]), errors(mirrored, squared[:, mirrored])
    any_ = np.random.default_rng(0).permutation(len(pool))[:_N_ANY]
    if np.median(own) > _PREDICTS * np.median(errors(any_, np.where(np.isinf(squared[:, any_]), np.inf, 1.0))):
        return None
    worse, _ = _difference(own, others, origins[queries])
    change, error = _difference(own, errors(all_, squared), origins[queries])
    return worse if worse < _WORSE and change < -_BETTER * error else None


def _difference(before: np.ndarray, after: np.ndarray, episodes: np.ndarray) -> tuple[float, float]:
    """How much larger squared errors are, of 1, and the standard error: windows of an episode are not independent."""
    losses = (after - before) / (after + before + np.median(before) + 1e-300)
    means = np.array([losses[episodes == episode].mean() for episode in np.unique(episodes)])
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))
