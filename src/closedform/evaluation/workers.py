"""Workers: single-threaded processes that run episodes and exit with their parent process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import wait
from typing import Any

from closedform.errors import ConfigError

THREAD_LIMITS = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"),
    *("OPENCV_FOR_THREADS_NUM", "LP_NUM_THREADS"),  # of OpenCV, and of Mesa's renderer on the CPU
)
_MOST_WORKERS = 1024


def check_workers(n: int | None) -> None:
    """Refuses a number of processes out of range; None is one per core."""
    if n is not None and not 1 <= n <= _MOST_WORKERS:
        raise ConfigError(f"workers: expected at least 1 and at most {_MOST_WORKERS}, found {n}")


class one_thread_each:
    """Makes processes started inside the block use one thread each; more would only compete for the cores."""

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in THREAD_LIMITS}
        os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_pool(n: int, start: Callable[..., None], arguments: tuple[Any, ...]) -> ProcessPoolExecutor:
    """A pool of processes, each of which calls `start` before its first task."""
    return ProcessPoolExecutor(n, multiprocessing.get_context("spawn"), _begin, (start, arguments))


def _begin(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    _end_with_parent()
    start(*arguments)


def _end_with_parent() -> None:
    """Ends this process when its parent exits or is killed.

    Workers of a pool would otherwise wait for their next task forever, as each holds the other end of the queue open.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()
