"""WindowSpec: how episodes are cut into windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.geometry.layout import Layout
from closedform.limits import check_size


@dataclass(frozen=True)
class WindowSpec:
    """How episodes are cut into windows.

    Attributes:
        observation_layout, action_layout: of the demonstrations.
        n_obs_steps, n_action_steps: observations and actions of a window.
        padding: whether windows may reach beyond both ends of an episode.
    """

    observation_layout: Layout
    action_layout: Layout
    n_obs_steps: int
    n_action_steps: int
    padding: bool

    def n_windows(self, lengths: np.ndarray) -> np.ndarray:
        """How many windows episodes of these lengths have."""
        missing = 0 if self.padding else self.n_obs_steps + self.n_action_steps - 2
        return np.maximum(lengths - missing, 0)

    def check_size(self, lengths: np.ndarray, action_width: int) -> None:
        """Refuses episodes of these lengths if their windows or padded actions would take too much memory."""
        n_windows, n_steps = int(self.n_windows(lengths).sum()), int(lengths.sum())
        windows = n_windows * self.n_obs_steps * self.observation_layout.width
        what = f"{n_windows} windows of n_obs_steps = {self.n_obs_steps} observations"
        check_size(windows, what, "lower n_obs_steps, or use fewer demonstrations")
        padded = n_steps + self.padding * len(lengths) * (self.n_action_steps - 1)
        what = f"{len(lengths)} episodes padded for n_action_steps = {self.n_action_steps}"
        check_size(padded * action_width, what, "lower n_action_steps, or use fewer demonstrations")

    @property
    def first_step(self) -> int:
        """The step of the first action of an episode's first window."""
        return 0 if self.padding else self.n_obs_steps - 1

    def window_steps(self, length: int) -> np.ndarray:
        """The steps of the first actions of an episode's windows."""
        return self.first_step + np.arange(int(self.n_windows(np.array(length))))
