"""Deadline: how long a plan may take, and what of that is left for finishing it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FINISH_MARGIN = 1.5  # times what it took lately to finish a plan is left before a deadline
FORGETTING = 0.99  # of how long finishing a plan took, from plan to plan

# Roughly what one core takes, in seconds; `make bench` measures it.
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
    """About how long what no deadline cuts short takes: search, metric, frames, chunks and the first diffusion step.

    Counted and not measured, so that it is the same every time.

    Args:
        n_searched: windows that are compared with an observation.
        n_features: D_z.
        n_neighbors: k.
        chunk_size: numbers in a chunk.
        n_tried: chunks that are transferred to choose a frame.
        n_perturbations: M.
        compiled: whether plans use compiled code.
    """
    seconds = _OVERHEAD + _PER_SEARCHED * n_searched * n_features + _PER_MEASURED * n_neighbors * n_features**2
    seconds += (_PER_TRANSFERRED * n_neighbors + _PER_TRIED * n_tried) * chunk_size
    return seconds if compiled else seconds + _PER_PRODUCT * n_neighbors * n_perturbations * chunk_size


class Deadline:
    """When diffusion has to stop so that a plan is ready in time.

    After the last step a plan is brought into the robot's units and remembered. How long that took lately is learned
    and held back, but never more than half of the time there is.

    Args:
        seconds: that a plan may take; None for as long as it takes.
        clock: tells the time; compiled code reads the one behind `time.perf_counter`.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.perf_counter):
        self.seconds = seconds
        self.clock = clock
        self._finishing = 0.0  # seconds from the last diffusion step to the plan, at worst lately
        self._remembering = 0.0  # and to remembering it

    @property
    def reserve(self) -> float:
        """Seconds that are held back."""
        if self.seconds is None:
            return 0.0
        return min(FINISH_MARGIN * (self._finishing + self._remembering), self.seconds / 2)

    def stop_at(self, began: float | None) -> float:
        """From when on no further step is begun, for a plan that began then; None is one without a deadline."""
        if began is None or self.seconds is None:
            return math.inf
        return began + self.seconds - self.reserve

    def finished(self, ended: float) -> None:
        """Takes note that a plan, whose last step ended then, is made now."""
        self._finishing = max(FORGETTING * self._finishing, self.clock() - ended)

    def remembered(self, planned: float) -> None:
        """Takes note that a plan, which was made then, is remembered now."""
        self._remembering = max(FORGETTING * self._remembering, self.clock() - planned)
