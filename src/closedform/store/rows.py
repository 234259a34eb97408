"""Rows: a store's arrays with one row per window, cut from episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from closedform.demos.chunks import cut
from closedform.demos.episode import Episode
from closedform.store.spec import ModelSpec
from closedform.transfer.action_scaling import action_statistics
from closedform.weights.feature_statistics import Statistics


class Rows(NamedTuple):
    """Arrays of a store, before indexing; see `Store`."""

    lengths: np.ndarray
    counts: np.ndarray
    lifted: np.ndarray
    actions: np.ndarray
    steps: np.ndarray
    poses: np.ndarray
    held: np.ndarray
    turn_sums: np.ndarray
    feature_statistics: Statistics
    action_statistics: Statistics
    action_ranges: np.ndarray
    last_observations: np.ndarray


def rows_of(spec: ModelSpec, episodes: Sequence[Episode]) -> Rows:
    """All arrays of a store in one pass over the steps of all episodes together."""
    cutting, transfer = spec.windows, spec.transfer
    cutting.check_size(np.array([len(episode) for episode in episodes]), transfer.encoding.width)
    sizes = cutting.n_obs_steps, cutting.n_action_steps
    pieces = [cut(e, *sizes, padding=cutting.padding, action_layout=cutting.action_layout) for e in episodes]
    counts = np.array([len(piece.steps) for piece in pieces])
    lengths = np.array([len(piece.actions) for piece in pieces])
    windows = np.concatenate([piece.observations for piece in pieces])
    lifted = spec.kernel.feature_map.lift(windows) if len(windows) else np.zeros((0, 1))
    actions = transfer.encoding.encode(np.concatenate([piece.actions for piece in pieces]))
    poses, recorded = transfer.poses_of(episodes)
    held = [transfer.held(of)[piece.steps] for of, piece in zip(recorded, pieces, strict=True)]
    turn_sums = [transfer.turn_sums(*pair) for pair in zip(episodes, recorded, strict=True)]
    steps = np.concatenate([piece.steps for piece in pieces])
    feature_statistics = Statistics.of(lifted, counts)
    return Rows(
        lengths=lengths,
        counts=counts,
        lifted=lifted,
        actions=actions,
        steps=steps,
        poses=np.concatenate([of[piece.steps] for of, piece in zip(poses, pieces, strict=True)]),
        held=np.concatenate(held),
        turn_sums=np.array(turn_sums),
        feature_statistics=feature_statistics,
        action_statistics=action_statistics(transfer, episodes, np.concatenate(poses)),
        action_ranges=np.array([action_range(episode) for episode in episodes]),
        last_observations=np.array([last_observation(episode) for episode in episodes]),
    )


def action_range(episode: Episode) -> np.ndarray:
    """(2, D_a), the lowest and highest value of each number of an action; infinite for an empty episode."""
    return np.array([episode.actions.min(0, initial=np.inf), episode.actions.max(0, initial=-np.inf)])


def last_observation(episode: Episode) -> np.ndarray:
    """(D_o,), NaN for an empty episode."""
    return episode.observations[-1] if len(episode) else np.full(episode.observations.shape[1], np.nan)


def starts_of(counts: np.ndarray, lengths: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Where the actions of each row begin, given windows and actions of each episode, and the steps of the rows."""
    return np.repeat(np.cumsum(lengths) - lengths, counts) + steps


def joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Both, concatenated."""
    return np.concatenate([first, second])


def kept(array: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The rows where `mask` is true."""
    return np.take(array, np.flatnonzero(mask), axis=0)
