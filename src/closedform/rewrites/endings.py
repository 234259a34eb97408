"""Ending: where hands stay after demonstrations, if all of these end at one place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from closedform.weights.terms.goal import Goal, nearest_reference, robust_variance

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

_ONE_PLACE = 0.2  # of the spread of commanded positions: how far apart ends may be


def ended_alike(spec: ModelSpec, store: Store, kernel: ObservationKernel) -> Store:
    """The store with hands that stay, past the end of each episode, where the episodes end on average.

    Windows that reach beyond an episode repeat its last action. No two episodes end in quite the same place, and a
    policy that repeats one of them is no more precise than that one, but the median of their ends is known well. So
    where nothing but hands moves and a hand ends at one place, in the world or as seen from a body, it stays there.

    Args:
        spec: of the model.
        store: the demonstrations.
        kernel: scaled for them; it need not be fitted.
    """
    goal = next((term for term in spec.kernel.terms if isinstance(term, Goal)), None)
    hands, n_after = _positions(spec), spec.windows.n_action_steps - 1
    if goal is None or not goal.observed or not spec.windows.padding or not hands or not n_after or not len(store):
        return store
    filled = store.lengths > 0
    after = np.cumsum(store.lengths)[filled][:, None] - n_after + np.arange(n_after)
    final = store.actions[after[:, 0] - 1]
    staying = final.copy()
    if not goal.poses(store, kernel)[0]:
        poses = store.poses[np.cumsum(store.counts)[filled] - 1]
        images = (np.arange(len(filled)) % store.n_copies)[filled]
        for columns in hands:
            staying[:, columns] = _staying(spec, store.actions[:, columns], final[:, columns], poses, images)
    if np.array_equal(store.actions[after], np.broadcast_to(staying[:, None], (*after.shape, final.shape[1]))):
        return store
    actions = store.actions.copy()
    actions[after] = staying[:, None]
    return replace(store, actions=actions)


def _positions(spec: ModelSpec) -> list[np.ndarray]:
    """The numbers of an encoded action that are the position of a hand."""
    dimension = spec.transfer.encoding.dimension
    return [
        np.arange(columns.start, columns.stop)
        for entry, columns in spec.transfer.encoding.slices()
        if entry.body is not None and entry.kind == "position" and entry.size == dimension
    ]


def _staying(
    spec: ModelSpec, commanded: np.ndarray, final: np.ndarray, poses: np.ndarray, images: np.ndarray
) -> np.ndarray:
    """Where a hand stays after each episode, (E, d).

    Args:
        spec: of the model.
        commanded: (steps, d), all positions commanded.
        final: (E, d), the last one of each episode.
        poses: (E, bodies, width), at the end.
        images: (E,), which image of its recorded episode each is.
    """
    hands, bodies = spec.transfer.action_layout.bodies, spec.transfer.body_poses.bodies
    others = [poses[:, i, : final.shape[1]] for i, (name, *_) in enumerate(bodies) if name not in hands]
    recorded = images == 0
    found = nearest_reference(final[recorded], [place[recorded] for place in others])
    origin = np.zeros_like(final) if found is None else others[found]
    ends = final - origin
    if robust_variance(ends[recorded]).sum() > _ONE_PLACE**2 * commanded.var(0).sum():
        return final
    return origin + np.array([np.median(ends[images == image], axis=0) for image in range(images.max() + 1)])[images]
