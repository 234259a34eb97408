"""Real time: the scheduling that a control loop asks the system for."""

from __future__ import annotations

import gc
import os

PRIORITY = 80


def become_realtime(priority: int = PRIORITY) -> str | None:
    """Runs this thread before all ordinary ones (SCHED_FIFO) where allowed; otherwise says why not, in one line.

    Collection of garbage is frozen as well, since it takes milliseconds whenever it pleases.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    if not hasattr(os, "sched_setscheduler"):
        return "no real-time scheduling on this system: expect control ticks that are late by tens of milliseconds"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return (
            f"no real-time scheduling ({error.strerror}): expect control ticks that are late by tens of milliseconds; "
            f"allow it with 'ulimit -r {priority}' or a line '@realtime - rtprio {priority}' in "
            "/etc/security/limits.conf"
        )
    return None
