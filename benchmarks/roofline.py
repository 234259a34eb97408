"""The limits of this core: exponentials and bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from closedform.kernels.diffuse import exp32
from closedform.kernels.jit import REORDER

IN_FIRST_LEVEL = 2048  # numbers of four bytes; two such arrays fit in any L1 cache
BEYOND_CACHES = 256 << 20  # bytes
REPEATS = 7


@numba.njit(fastmath=REORDER, error_model="numpy")
def add_exponentials(values, totals, n_times):
    """totals += exp(values), n_times; as the kernel computes and sums its weights."""
    for _ in range(n_times):
        for i in range(values.size):
            totals[i] += exp32(values[i])


@numba.njit(fastmath=REORDER, error_model="numpy")
def add_up(values, n_times):
    """The sum of all values, n_times."""
    total = 0.0
    for _ in range(n_times):
        for i in range(values.size):
            total += values[i]
    return total


def shortest(function: Callable[..., Any], *arguments: Any) -> float:
    """The shortest of several times, in seconds: what the core can do when undisturbed."""
    function(*arguments)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times)


def exponential_rate() -> float:
    """Exponentials per second, of numbers in the L1 cache."""
    values = np.random.default_rng(0).uniform(-30, 0, IN_FIRST_LEVEL).astype(np.float32)
    n_times = 5000
    return IN_FIRST_LEVEL * n_times / shortest(add_exponentials, values, np.zeros_like(values), n_times)


def read_rate(n_bytes: int) -> float:
    """Bytes read per second from an array of that size, repeatedly."""
    values = np.ones(max(n_bytes // 8, 1))  # not zeros, which would all be one page of memory
    n_times = max(1, (BEYOND_CACHES >> 1) // values.nbytes)
    return values.nbytes * n_times / shortest(add_up, values, n_times)
