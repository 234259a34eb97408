"""RemoteSteps: the recorded steps of a fleet's episodes, fetched from its table as plans need them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.fleet.fleet_table import FleetTable
from closedform.store.windows import Recorded


class EpisodeCache:
    """Episodes of a fleet's table, of which the last ones that were needed stay in memory.

    Args:
        table: the fleet's table.
        numbers: (E,), the rows of the episodes.
        lengths: (E,), their steps.
        n_bytes: how much stays in memory, besides what one plan needs.
    """

    def __init__(self, table: FleetTable, numbers: np.ndarray, lengths: np.ndarray, n_bytes: int):
        self.table, self.numbers, self.lengths = table, numbers, lengths
        self.ends = np.cumsum(lengths)
        self.n_fetched = 0  # episodes, since it was made
        self._kept: OrderedDict[int, Episode] = OrderedDict()
        self._room, self._lock = n_bytes, threading.Lock()

    def get(self, indices: list[int]) -> dict[int, Episode]:
        """Some episodes by their indices; those that are not in memory are fetched together."""
        with self._lock:
            missing = [index for index in indices if index not in self._kept]
            for index, episode in zip(missing, self._fetch(missing), strict=True):
                self._kept[index] = episode
                self._room -= _n_bytes(episode)
            found = {}
            for index in indices:
                self._kept.move_to_end(index)
                found[index] = self._kept[index]
            while self._room < 0 and len(self._kept) > len(found):
                self._room += _n_bytes(self._kept.popitem(last=False)[1])
            return found

    def _fetch(self, indices: list[int]) -> list[Episode]:
        episodes = self.table.episodes_at(self.numbers[indices].tolist()) if indices else []
        for index, episode in zip(indices, episodes, strict=True):
            if len(episode) != self.lengths[index]:
                raise DataError(
                    f"{self.table.uri}: expected {self.lengths[index]} steps in row {self.numbers[index]}, found "
                    f"{len(episode)}: the table was replaced"
                )
        self.n_fetched += len(indices)
        return episodes


class RemoteSteps(Recorded):
    """Observations or actions of all episodes, concatenated, which are fetched when they are read.

    Args:
        cache: the episodes.
        name: `observations` or `actions`.
        width: D.
        steps: the range of steps that this is a view of; by default all.
    """

    def __init__(self, cache: EpisodeCache, name: str, width: int, steps: range | None = None):
        super().__init__([])
        self.cache, self._name, self._width = cache, name, width
        self._steps = range(int(cache.lengths.sum())) if steps is None else steps

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def shape(self) -> tuple[int, int]:
        """(T, D)"""
        return len(self._steps), self._width

    def __getitem__(self, steps: Any) -> Any:
        """Some steps (...) -> (..., D), which are fetched; of a slice, a view, which is not."""
        if isinstance(steps, slice):
            return RemoteSteps(self.cache, self._name, self._width, self._steps[steps])
        steps = np.asarray(steps)
        at = np.where(steps < 0, steps + len(self), steps).ravel() + self._steps.start
        owners = np.searchsorted(self.cache.ends, at, side="right")
        fetched = self.cache.get(np.unique(owners).tolist())
        result = np.empty((len(at), self._width))
        for owner, episode in fetched.items():
            own = owners == owner
            begin = self.cache.ends[owner] - self.cache.lengths[owner]
            result[own] = getattr(episode, self._name)[at[own] - begin]
        return result.reshape(*steps.shape, self._width)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[np.arange(len(self))], dtype)


def _n_bytes(episode: Episode) -> int:
    return episode.observations.nbytes + episode.actions.nbytes
