"""Pace: building the next model without delaying plans on the current one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

SLICE = 1e-4  # seconds of work between two pauses
_PAUSE = 1e-4  # seconds; long enough for another thread to wake up and take the interpreter
_ROWS_AT_ONCE = 5_000  # gathered between two pauses

T = TypeVar("T")


_LATELY = 2.0  # seconds after its last plan for which a thread is expected to plan again


class _State(threading.local):
    gentle = False
    rested = 0.0  # when the last pause ended


_here = _State()


class _Planning:
    thread = 0  # that planned last
    until = 0.0  # the time until which it is expected to plan again


def plan_begins() -> None:
    """Records that this thread plans, and is likely to plan again soon."""
    _Planning.thread, _Planning.until = threading.get_ident(), time.perf_counter() + _LATELY


def _others_plan(now: float) -> bool:
    return now < _Planning.until and _Planning.thread != threading.get_ident()


@contextmanager
def gently() -> Iterator[None]:
    """Within this context, `breathe` pauses in this thread; otherwise it does nothing."""
    before = _here.gentle
    _here.gentle, _here.rested = True, time.perf_counter()
    try:
        yield
    finally:
        _here.gentle = before


def breathe() -> None:
    """Lets other threads run if one of them plans and the last pause is long enough ago.

    By itself, Python releases the GIL only every 5 ms, which is longer than a plan takes. So this is called
    wherever a tenth of a millisecond may have passed with the GIL held.
    """
    if _here.gentle:
        now = time.perf_counter()
        if now - _here.rested >= SLICE and _others_plan(now):
            time.sleep(_PAUSE)
            _here.rested = time.perf_counter()


def paced(items: Iterable[T]) -> Iterator[T]:
    """The items, letting other threads run between them."""
    for item in items:
        yield item
        breathe()


def gathered(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """array[rows], some rows at a time, since numpy holds the GIL while it gathers."""
    if not _here.gentle or len(rows) <= _ROWS_AT_ONCE:
        return array[rows]
    result = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        breathe()
        result[first : first + _ROWS_AT_ONCE] = array[rows[first : first + _ROWS_AT_ONCE]]
    return result
