"""Scaling: how actions in each frame are normalized for diffusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.geometry.rigid import into_frame
from closedform.transfer.frame import frame_axes
from closedform.weights.feature_statistics import Statistics, half_ranges

if TYPE_CHECKING:
    from closedform.transfer.transfer import TransferSpec


class ActionScaling(NamedTuple):
    """The normalization of encoded actions in each frame, to about [-1, 1], for diffusion.

    Attributes:
        offset, scale: (frames, D), with normalized = (encoded - offset) * scale.
        weight: (D,), makes the frames' variances comparable: one common unit for lengths, 0 for numbers that no frame
            changes.
    """

    offset: np.ndarray
    scale: np.ndarray
    weight: np.ndarray


def action_statistics(spec: TransferSpec, episodes: Sequence[Episode], poses: np.ndarray) -> Statistics:
    """Statistics of the encoded actions in each frame at the same step: (E, frames * D).

    Args:
        spec: frames and encoding.
        episodes: the demonstrations.
        poses: (T, bodies, ...), of the bodies at each of their steps.
    """
    actions = spec.encoding.encode(np.concatenate([episode.actions for episode in episodes]))
    seen = [
        into_frame(actions[:, None], spec.encoding.blocks, *frame_axes(frame, poses, spec.body_poses.dimension))[:, 0]
        if frame.body >= 0
        else actions
        for frame in spec.selected_frames
    ]
    return Statistics.of(np.concatenate(seen, axis=1), np.array([len(episode) for episode in episodes]))


def action_scaling(spec: TransferSpec, statistics: Statistics) -> ActionScaling:
    """Min-max to [-1, 1]; in a body's frame lengths keep their proportions. Unit vectors need no scaling."""
    shape = (len(spec.selected_frames), spec.encoding.width)
    low, high = (bound.reshape(shape) for bound in statistics.range)
    with np.errstate(over="ignore", invalid="ignore"):
        offset, half = (low + high) / 2, half_ranges(low, high)
    if not (np.isfinite(offset).all() and np.isfinite(half).all()):
        raise DataError("actions: expected numbers of moderate size, found some too large to be squared")
    weight = np.zeros(spec.encoding.width)
    for block in spec.encoding.blocks:
        columns = slice(block.start, block.start + block.size)
        if block.unit:
            offset[:, columns], half[:, columns] = 0.0, 1.0
        elif block.turns:
            for f, frame in enumerate(spec.selected_frames):
                if frame.body >= 0:
                    half[f, columns] = half[f, columns].max()
        if block.turns:
            weight[columns] = 1 / half[:, columns].max() ** 2
    return ActionScaling(offset, 1 / half, weight)
