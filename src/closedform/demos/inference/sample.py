"""Sample: the examined part of demonstrations as arrays, and facts about the columns of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closedform.demos.demos import Demos

MOST_STEPS = 20_000  # in the sample; constants and unit lengths are checked on all of the data
WIDEST = 256  # columns that are searched for relations; flattened images are wider
LARGEST = 1e100  # beyond which squares overflow


@dataclass(frozen=True)
class Column:
    """Facts about the columns of observations or actions, over all of the data. Each is (D,).

    Attributes:
        usable: finite numbers of ordinary size.
        constant: never changes.
        still: never changes within an episode.
        binary: takes one of two values.
        low, high: the range.
    """

    usable: np.ndarray
    constant: np.ndarray
    still: np.ndarray
    binary: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def varies(self) -> np.ndarray:
        """Usable columns that are not constant."""
        return self.usable & ~self.constant


@dataclass(frozen=True)
class Sample:
    """The steps of some episodes, concatenated.

    Attributes:
        x: (N, D_o), observations; unusable columns are 0.
        a: (N, D_a), actions.
        bounds: (episodes + 1,), where episodes begin and end.
        observed, commanded: facts about columns.
    """

    x: np.ndarray
    a: np.ndarray
    bounds: np.ndarray
    observed: Column
    commanded: Column

    @classmethod
    def of(cls, demos: Demos) -> Sample:
        """Whole episodes, evenly spread, up to `MOST_STEPS`; at least one, cut if it is longer."""
        observed = _columns([episode.observations for episode in demos])
        commanded = _columns([episode.actions for episode in demos])
        wanted = max(1, min(len(demos), MOST_STEPS * len(demos) // max(demos.n_steps, 1)))
        chosen = [demos[int(i)] for i in np.unique(np.linspace(0, len(demos) - 1, wanted).round())]
        most = MOST_STEPS if len(chosen) == 1 else 2 * MOST_STEPS // len(chosen)  # of each
        x = [np.where(observed.usable, e.observations[:most].astype(np.float64), 0.0) for e in chosen]
        a = [np.where(commanded.usable, e.actions[:most].astype(np.float64), 0.0) for e in chosen]
        bounds = np.cumsum([0, *map(len, x)])
        return cls(np.concatenate(x), np.concatenate(a), bounds, observed, commanded)

    @property
    def n_episodes(self) -> int:
        """How many."""
        return len(self.bounds) - 1

    @cached_property
    def left(self) -> np.ndarray:
        """(N,), the number of later steps in the episode of each step."""
        ends = np.repeat(self.bounds[1:], np.diff(self.bounds))
        return ends - 1 - np.arange(len(self.x))

    @cached_property
    def done(self) -> np.ndarray:
        """(N,), the number of earlier steps in the episode of each step."""
        starts = np.repeat(self.bounds[:-1], np.diff(self.bounds))
        return np.arange(len(self.x)) - starts

    @cached_property
    def total(self) -> np.ndarray:
        """(N + 1, D_a), the sums of all actions before each step."""
        return np.concatenate([np.zeros((1, self.a.shape[1])), np.cumsum(self.a, 0)])

    def steps(self, ahead: int, before: int = 0, most: int = 1 << 62) -> np.ndarray:
        """Steps that have `ahead` steps after them and `before` before them, `most` of them, evenly spread."""
        steps = np.flatnonzero((self.left >= ahead) & (self.done >= before))
        if len(steps) > most:
            steps = steps[np.linspace(0, len(steps) - 1, most).astype(int)]
        return steps

    @cached_property
    def starts(self) -> np.ndarray:
        """The first step of each episode that has one."""
        return self.bounds[:-1][np.diff(self.bounds) > 0]

    def moving(self, columns: list[int]) -> np.ndarray:
        """Whether these numbers change from each step to the next, in steps(1). (M,)

        Each is measured in units of its own fast steps; jitter below 2% of these counts as rest.
        """
        steps = self.steps(1)
        change = np.abs(self.x[steps + 1][:, columns] - self.x[steps][:, columns])
        if not len(steps):
            return np.zeros(0, bool)
        fast = np.quantile(change, 0.99, axis=0)
        return np.any(change > np.maximum(0.02 * fast, 1e-12), axis=1)


def dot(first: np.ndarray, second: np.ndarray) -> float:
    """The inner product without BLAS, whose threads for long vectors wait for busy cores."""
    return float(np.sum(first * second))


def _columns(arrays: list[np.ndarray]) -> Column:
    """Facts about columns of all episodes."""
    arrays = [array for array in arrays if len(array)] or [np.zeros((1, arrays[0].shape[1]))]
    with np.errstate(invalid="ignore"):
        lows, highs = (np.stack([f(array, axis=0) for array in arrays]).astype(np.float64) for f in (np.min, np.max))
        usable = np.isfinite(lows).all(0) & np.isfinite(highs).all(0)
        usable &= (np.abs(np.where(usable, lows, 0)).max(0) < LARGEST) & (
            np.abs(np.where(usable, highs, 0)).max(0) < LARGEST
        )
    lows, highs = np.where(usable, lows, 0.0), np.where(usable, highs, 0.0)
    low, high = lows.min(0), highs.max(0)
    still = (lows == highs).all(0)
    binary, switches = usable & (low < high), np.zeros(len(low), int)
    for array in arrays:
        if not binary.any():
            break
        own = array[:, binary]
        two = ((own == low[binary]) | (own == high[binary])).all(0)
        switches[binary] += (own[1:] != own[:-1]).sum(0)
        binary[np.flatnonzero(binary)[~two]] = False
    # A number that rests in each of a few episodes has few values, whatever it is.
    binary &= (switches >= 2) | (len(arrays) >= 10)
    return Column(usable, usable & (low == high), still, binary, low, high)
