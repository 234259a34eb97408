"""Deadline: how long a plan may take, and how much of that is reserved for finishing it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FINISH_MARGIN = 1.5  # the reserve before a deadline, in units of the recent time to finish a plan
FORGETTING = 0.99  # decay per plan of the recorded time to finish a plan

# Approximate seconds on one core; `make bench` measures them.
_OVERHEAD = 1.5e-4  # of any plan
_PER_SEARCHED, _PER_MEASURED = 3e-10, 3e-10  # number of a window's features; product of two of a neighbor's features
_PER_TRANSFERRED, _PER_TRIED = 3e-9, 2e-8  # number of a neighbor's chunk; of a voter's chunk in one frame
_PER_PRODUCT = 1e-9  # of a perturbation and a chunk, which the reference computes for all neighbors


def seconds_not_cut(
    n_searched: int,
    n_features: int,
    n_neighbors: int,
    chunk_size: int,
    n_tried: int,
    n_perturbations: int,
    *,
    compiled: bool,
) -> float:
    """Estimates the time that no deadline can shorten: search, metric, frames, chunks and the first diffusion step.

    Computed, not measured, so that it is the same every time.

    Args:
        n_searched: windows compared with an observation.
        n_features: D_z.
        n_neighbors: k.
        chunk_size: numbers in a chunk.
        n_tried: chunks transferred to choose a frame.
        n_perturbations: M.
        compiled: whether plans use compiled code.
    """
    seconds = _OVERHEAD + _PER_SEARCHED * n_searched * n_features + _PER_MEASURED * n_neighbors * n_features**2
    seconds += (_PER_TRANSFERRED * n_neighbors + _PER_TRIED * n_tried) * chunk_size
    return seconds if compiled else seconds + _PER_PRODUCT * n_neighbors * n_perturbations * chunk_size


class Deadline:
    """When diffusion has to stop so that a plan is ready in time.

    After the last step a plan is converted to robot units and remembered. The time this recently took is reserved, but
    never more than half of the time allowed.

    Args:
        seconds: the time allowed for a plan; None for no limit.
        clock: returns the time; compiled code reads the one behind `time.perf_counter`.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.perf_counter):
        self.seconds = seconds
        self.clock = clock
        self._finishing = 0.0  # recent worst case, in seconds, from the last diffusion step to the plan
        self._remembering = 0.0  # and from the plan to the end of remembering it

    @property
    def reserve(self) -> float:
        """Seconds reserved for finishing a plan."""
        if self.seconds is None:
            return 0.0
        return min(FINISH_MARGIN * (self._finishing + self._remembering), self.seconds / 2)

    def stop_at(self, began: float | None) -> float:
        """The time after which no further step begins, for a plan that began at `began`; None: without a deadline."""
        if began is None or self.seconds is None:
            return math.inf
        return began + self.seconds - self.reserve

    def finished(self, ended: float) -> None:
        """Records that a plan whose last diffusion step ended at `ended` is complete."""
        self._finishing = max(FORGETTING * self._finishing, self.clock() - ended)

    def remembered(self, planned: float) -> None:
        """Records that a plan completed at `planned` is now remembered."""
        self._remembering = max(FORGETTING * self._remembering, self.clock() - planned)
