"""Windows: the rows of a store, computed on demand from the recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from closedform import kernels
from closedform.demos.episode import Episode

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec


class Computed:
    """Reads like an array, but its rows are computed on demand."""

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], length: int):
        self._function = function
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self._length))
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        rows = np.where(rows < 0, rows + self._length, rows)
        return self._function(rows) if rows.ndim else self._function(rows[None])[0]


class Recorded:
    """The steps of all episodes as recorded, concatenated; they may be memory-mapped.

    Args:
        parts: consecutive arrays (T, D): the original steps, and those added since; none if they are elsewhere.
    """

    def __init__(self, parts: Sequence[np.ndarray]):
        self.parts = tuple(parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, steps: np.ndarray) -> np.ndarray:
        """Some steps. (...) -> (..., D)."""
        first = self.parts[0]
        if len(self.parts) == 1:
            return first[steps]
        result = first[np.minimum(steps, len(first) - 1)]
        late = steps >= len(first)
        result[late] = self.parts[1][steps[late] - len(first)]
        return result

    def add(self, values: np.ndarray) -> Recorded:
        """With more steps; the original ones are not copied."""
        return Recorded([self.parts[0], np.concatenate([*self.parts[1:], values])])


class Located(NamedTuple):
    """The episode of each of some windows, and the step of its first action; (m,) each."""

    episodes: np.ndarray
    steps: np.ndarray


class Windows:
    """The windows of recorded episodes; only the episodes themselves are stored.

    Args:
        spec: of the model.
        observations, actions: the recorded steps.
        lengths: (E,), of the episodes.
    """

    def __init__(self, spec: ModelSpec, observations: Recorded, actions: Recorded, lengths: np.ndarray):
        self._spec, self._cutting, self._transfer = spec, spec.windows, spec.transfer
        self.observations, self.actions = observations, actions
        self.lengths = lengths
        cutting = spec.windows
        self.counts = cutting.n_windows(lengths)
        self.padded_lengths = lengths + (cutting.n_action_steps - 1) * (lengths > 0) * cutting.padding
        self._begins = np.cumsum(lengths) - lengths
        self._row_ends, self._padded_ends = np.cumsum(self.counts), np.cumsum(self.padded_lengths)
        self._is_vector = np.zeros(cutting.action_layout.width, bool)
        for entry, columns in cutting.action_layout.slices():
            self._is_vector[columns] = entry.kind == "vector"

    def __len__(self) -> int:
        return int(self._row_ends[-1])

    @classmethod
    def of(cls, spec: ModelSpec, episodes: Sequence[Episode]) -> Windows:
        """The windows of episodes, whose steps are copied into contiguous arrays."""
        lengths = np.array([len(episode) for episode in episodes])
        observations = Recorded([np.concatenate([episode.observations for episode in episodes])])
        actions = Recorded([np.concatenate([episode.actions for episode in episodes])])
        return cls(spec, observations, actions, lengths)

    def add(self, episode: Episode) -> Windows:
        """With one more episode."""
        return Windows(
            self._spec,
            self.observations.add(episode.observations),
            self.actions.add(episode.actions),
            np.append(self.lengths, len(episode)),
        )

    def episode_views(self) -> tuple[Episode, ...]:
        """The episodes, which read the recorded steps in place."""
        ends, n_first = np.cumsum(self.lengths), len(self.observations.parts[0])
        views = []
        for end, length in zip(ends.tolist(), self.lengths.tolist(), strict=True):
            part, shift = (0, 0) if end <= n_first else (1, n_first)
            piece = slice(end - length - shift, end - shift)
            views.append(Episode.view(self.observations.parts[part][piece], self.actions.parts[part][piece]))
        return tuple(views)

    def locate(self, rows: np.ndarray) -> Located:
        """Where some rows are."""
        if kernels.enabled():
            from closedform.kernels.gather import locate

            episodes = np.empty(len(rows), np.int64)
            locate(self._row_ends, rows, episodes)
        else:
            episodes = np.searchsorted(self._row_ends, rows, side="right")
        return Located(episodes, rows - (self._row_ends - self.counts)[episodes] + self._cutting.first_step)

    def episodes(self, rows: np.ndarray) -> np.ndarray:
        """The episode of each row."""
        return self.locate(rows).episodes

    def steps(self, rows: np.ndarray) -> np.ndarray:
        """The step of each row's first action."""
        return self.locate(rows).steps

    def starts(self, rows: np.ndarray) -> np.ndarray:
        """Where each row's actions begin among the actions of padded episodes."""
        at = self.locate(rows)
        return at.steps + (self._padded_ends - self.padded_lengths)[at.episodes]

    def observed(self, at: Located) -> np.ndarray:
        """(m, N_o, D_o), the observations of windows."""
        back = np.arange(self._cutting.n_obs_steps - 1, -1, -1)
        steps = np.maximum(at.steps[:, None] - back, 0)
        return self.observations[self._begins[at.episodes][:, None] + steps]

    def lifted(self, rows: np.ndarray) -> np.ndarray:
        """Features before they are scaled. (m,) -> (m, D_z)."""
        return self._spec.kernel.feature_map.lift(self.observed(self.locate(rows)))

    def poses(self, rows: np.ndarray) -> np.ndarray:
        """Of the last observation of each row. (m,) -> (m, bodies, width)."""
        at = self.locate(rows)
        return self._transfer.body_poses(self.observations[self._begins[at.episodes] + at.steps])

    def chunks(self, at: Located) -> np.ndarray:
        """The encoded actions of windows, padded beyond an episode's end as `cut` does. -> (m, N_a, D)."""
        cutting, lengths, begins = self._cutting, self.lengths[at.episodes], self._begins[at.episodes]
        if kernels.enabled() and self.actions.parts:
            from closedform.kernels.gather import gather_actions

            actions = np.empty((len(at.steps), cutting.n_action_steps, cutting.action_layout.width))
            parts = self.actions.parts
            gather_actions(parts[0], parts[-1], begins, lengths, at.steps, self._is_vector, actions)
        else:
            steps = at.steps[:, None] + np.arange(cutting.n_action_steps)
            beyond = steps >= lengths[:, None]
            actions = self.actions[begins[:, None] + np.minimum(steps, lengths[:, None] - 1)]
            actions[beyond[..., None] & self._is_vector] = 0
        return self._transfer.encoding.encode(actions)

    def encoded_actions(self, at: np.ndarray) -> np.ndarray:
        """Encoded actions of padded episodes. (...) -> (..., D)."""
        episodes = np.searchsorted(self._padded_ends, at, side="right")
        steps = at - (self._padded_ends - self.padded_lengths)[episodes]
        last = self.lengths[episodes] - 1
        actions = self.actions[self._begins[episodes] + np.minimum(steps, last)]
        actions[(steps > last)[..., None] & self._is_vector] = 0
        return self._transfer.encoding.encode(actions)
