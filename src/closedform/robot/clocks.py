"""Clocks: simulated time that passes in lockstep with the program, and the wall clock."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable

from closedform.errors import ConfigError


class LockstepClock:
    """Simulated time, which passes only while somebody sleeps; the same program sees the same times, to the bit.

    What happens by itself in the world, such as control ticks and exposures of a camera, is registered with `every`
    and happens while time passes. What is due at the same time happens in the order of registration.

    Args:
        start: the time at first, in seconds.
    """

    def __init__(self, start: float = 0.0):
        self._now = start
        self._due: list[tuple[float, int]] = []
        self._tasks: list[tuple[float, float, Callable[[float], None]]] = []
        self._counts: list[int] = []

    def now(self) -> float:
        """Simulated seconds."""
        return self._now

    def every(self, period: float, task: Callable[[float], None], start: float | None = None) -> None:
        """Calls `task(time)` every `period` seconds from `start` (now, if None) on."""
        if not (math.isfinite(period) and period > 0):
            raise ConfigError(f"period: expected a positive number of seconds, found {period!r}")
        begun = self._now if start is None else start
        self._tasks.append((begun, period, task))
        self._counts.append(0)
        heapq.heappush(self._due, (begun, len(self._tasks) - 1))

    def sleep_until(self, time: float) -> None:
        """Lets time pass up to `time`; tasks that are due before it are called, those due at `time` are not."""
        while self._due and self._due[0][0] < time:
            due, index = heapq.heappop(self._due)
            begun, period, task = self._tasks[index]
            self._counts[index] += 1
            heapq.heappush(self._due, (begun + self._counts[index] * period, index))  # no rounding adds up
            self._now = max(self._now, due)
            task(self._now)
        self._now = max(self._now, time)


class PacedClock(LockstepClock):
    """Simulated time that does not run ahead of the wall clock, for somebody who watches.

    Args:
        start: the time at first, in seconds.
    """

    def __init__(self, start: float = 0.0):
        super().__init__(start)
        self._offset = _monotonic() - start

    def sleep_until(self, time: float) -> None:
        """Lets time pass up to `time`, and waits for the wall clock."""
        super().sleep_until(time)
        _sleep(time + self._offset - _monotonic())


class WallClock:
    """The monotonic clock of the machine, which all of its processes share."""

    def now(self) -> float:
        """Seconds since some moment in the past."""
        return _monotonic()

    def sleep_until(self, time: float) -> None:
        """Returns when it is `time`, at once if that is past."""
        _sleep(time - self.now())


def _monotonic() -> float:
    return time.monotonic()


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)
