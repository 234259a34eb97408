"""Chunks: the sliding windows of an episode (the paper's "Dataset preprocessing")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.geometry.layout import Layout


@dataclass(frozen=True)
class Chunks:
    """The windows of one episode, as views where possible.

    Window i observes steps `steps[i] - n_obs_steps + 1 .. steps[i]`; its actions are those of the steps from `steps[i]`
    on, `actions[steps[i] : steps[i] + n_action_steps]`.

    Attributes:
        observations: (n, n_obs_steps, D_o)
        actions: (T or T + n_action_steps - 1, D_a), the episode's actions, padded at the end if requested.
        steps: (n,)
    """

    observations: np.ndarray
    actions: np.ndarray
    steps: np.ndarray


def _window_length(n_obs_steps: int, n_action_steps: int, padding: bool) -> int:
    """The number of steps an episode needs to yield at least one window."""
    return 1 if padding else n_obs_steps + n_action_steps - 1


def cut(
    episode: Episode, n_obs_steps: int, n_action_steps: int, *, padding: bool = False, action_layout: Layout
) -> Chunks:
    """Cuts an episode into windows, `N_o - 1 <= t <= T - N_a`; an episode that is too short yields none.

    With `padding`, every step starts a window: the first observation is repeated before the start, as an agent does,
    and the last action after the end, except that displacements (`vector`) are padded with zeros.
    """
    observations, actions = episode.observations, episode.actions
    if padding and len(episode):
        first = np.repeat(observations[:1], n_obs_steps - 1, axis=0)
        last = np.repeat(actions[-1:], n_action_steps - 1, axis=0)
        for entry, columns in action_layout.slices():
            if entry.kind == "vector":
                last[:, columns] = 0
        observations = np.concatenate([first, observations])
        actions = np.concatenate([actions, last])
        steps = np.arange(len(episode))
    else:
        steps = np.arange(n_obs_steps - 1, len(episode) - n_action_steps + 1)
    if not len(steps):
        return Chunks(np.empty((0, n_obs_steps, observations.shape[1])), actions, np.empty(0, np.int64))
    windows = np.lib.stride_tricks.sliding_window_view(observations, n_obs_steps, axis=0)
    return Chunks(np.moveaxis(windows, 2, 1)[: len(steps)], actions, steps)


def too_short(lengths: list[int], n_obs_steps: int, n_action_steps: int) -> DataError:
    """The error for demonstrations that are all too short."""
    needed = _window_length(n_obs_steps, n_action_steps, padding=False)
    return DataError(
        f"every episode is shorter than one window: expected at least {needed} steps (n_obs_steps + n_action_steps - 1 "
        f"= {n_obs_steps} + {n_action_steps} - 1), found at most {max(lengths)}; record longer episodes, use "
        "shorter chunks, or set padding=True"
    )
