"""Deadline: how long a plan may take, and what of that is left for finishing it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

FINISH_MARGIN = 1.5  # times what it took lately to finish a plan is left before a deadline
FORGETTING = 0.99  # of how long finishing a plan took, from plan to plan


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
