"""The same mathematics fused for speed; `CLOSEDFORM_DISABLE_KERNELS=1` turns it off."""

from __future__ import annotations

import contextlib
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
    """Prints a message if the call of a kernel has to wait long for the compiler."""
    if kernel.overloads:  # already compiled or read from disk
        yield
        return

    def announce() -> None:
        if not kernel.stats.cache_hits:  # else it was read from disk
            message = (
                "compiling the planner for this processor; the result is cached on disk, so this happens only once"
            )
            logging.getLogger("closedform").warning(message)

    timer = threading.Timer(PATIENCE, announce)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
