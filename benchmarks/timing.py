"""Timing: contenders take turns, so that noise on the machine affects all of them alike.

A contender makes many calls in a turn, since its first calls find the caches full of another's data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from energy import joules_between, read_counters

MOST_ROUNDS = 30
QUICK = 10  # how many times fewer calls a quick run makes
FEWEST = 4
FAST, CALLS_IN_A_TURN = 1000, 100  # with so many calls, those of a turn are so fast that cold caches would dominate

Call = Callable[[int], object]


@dataclass(frozen=True)
class Timed:
    """Something to time: `call(i)` for i from 0 to n_calls - 1."""

    call: Call
    n_calls: int


def fewer(n_calls: int, quick: bool) -> int:
    """The number of calls in a quick run."""
    least = FEWEST if n_calls < FAST else FEWEST * CALLS_IN_A_TURN
    return min(n_calls, max(least, n_calls // QUICK)) if quick else n_calls


def summarize(contenders: Mapping[str, Timed], what: str) -> dict[str, dict[str, Any]]:
    """Milliseconds of each contender's calls, and joules per call if the machine reports them."""
    for contender in contenders.values():
        contender.call(0)  # compiling and loading are measured elsewhere
    rounds = min(MOST_ROUNDS, *(contender.n_calls for contender in contenders.values()))  # each is called in each
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    joules: dict[str, list[float | None]] = {name: [] for name in contenders}
    for index in tqdm(range(rounds), desc=what, leave=False):
        for name, contender in contenders.items():
            before = read_counters()
            for i in range(contender.n_calls * index // rounds, contender.n_calls * (index + 1) // rounds):
                start = time.perf_counter()
                contender.call(i)
                seconds[name].append(time.perf_counter() - start)
            joules[name].append(joules_between(before, read_counters()))
    return {name: {**quantiles(times), "joules": mean_joules(joules[name], times)} for name, times in seconds.items()}


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    p50, p99 = 1e3 * np.quantile(seconds, [0.5, 0.99])
    return {"p50": float(p50), "p99": float(p99), "worst": 1e3 * max(seconds), "calls": len(seconds)}


def mean_joules(joules: list[float | None], seconds: list[float]) -> float | None:
    """Joules per call; None if the machine does not report them."""
    known = [value for value in joules if value is not None]
    return sum(known) / len(seconds) if len(known) == len(joules) else None


def median_seconds(n_calls: int, function: Callable[[], object]) -> float:
    """The median time of some calls."""
    times = []
    for _ in range(n_calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
