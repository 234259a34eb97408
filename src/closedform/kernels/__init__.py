"""The same mathematics fused for speed; `CLOSEDFORM_DISABLE_KERNELS=1` turns it off."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["announced", "enabled", "has_clock"]

PATIENCE = 2.0  # seconds of silence while code is compiled


def enabled() -> bool:
    """Whether plans may use compiled code."""
    return os.environ.get("CLOSEDFORM_DISABLE_KERNELS", "") in ("", "0")


def has_clock() -> bool:
    """Whether compiled code can read the time on this system."""
    return os.name == "posix"


@contextlib.contextmanager
def announced(kernel: Any) -> Iterator[None]:
    """Prints a message if the call of a kernel has to wait long for the compiler, but not for the disk."""
    if kernel.overloads:  # already compiled or read from disk
        yield
        return
    from closedform.kernels.cache import KernelCache, when_missing

    timer = threading.Timer(PATIENCE, _announce)
    timer.daemon = True
    begin = functools.cache(timer.start)  # a timer starts once, and many functions may be missing
    if not isinstance(kernel._cache, KernelCache):  # it is compiled in each process
        begin()
    try:
        with when_missing(begin):
            yield
    finally:
        timer.cancel()


@functools.cache
def _announce() -> None:
    """Says once what takes long."""
    logging.getLogger("closedform").warning(
        "compiling the planner for this processor; the result is cached on disk, so this happens only once"
    )
