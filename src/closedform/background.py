"""Background work: the next model is built without delaying plans on the current one."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_INTERVAL = 1e-4  # seconds after which Python hands the interpreter to a thread that waits for it; by itself, 5 ms
_NICENESS = 10  # by which the thread that works is nicer, so that a busy core plans first


class _Busy:
    """How many threads work in the background, and Python's own interval."""

    lock = threading.Lock()
    count = 0
    usual = 0.0


def in_background(work: Callable[[], T]) -> T:
    """The result of work that is done at low priority, so that other threads go on planning meanwhile.

    The work gets a thread of its own, because the priority of a thread cannot be raised again. While it lasts, Python
    switches between threads as often as a plan needs it. Long computations release the interpreter by themselves.
    """
    with _switching_often(), ThreadPoolExecutor(1, "closedform-background", _lower_priority) as pool:
        return pool.submit(work).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # where threads have priorities of their own
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)


@contextlib.contextmanager
def _switching_often() -> Iterator[None]:
    with _Busy.lock:
        if not _Busy.count:
            _Busy.usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_Busy.usual, _INTERVAL))
        _Busy.count += 1
    try:
        yield
    finally:
        with _Busy.lock:
            _Busy.count -= 1
            if not _Busy.count:
                sys.setswitchinterval(_Busy.usual)
