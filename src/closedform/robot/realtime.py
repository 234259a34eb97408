"""Real time: the scheduling that a control loop asks the system for."""

from __future__ import annotations

import gc
import os

PRIORITY = 80


def become_realtime(priority: int = PRIORITY) -> str | None:
    """Runs this thread before all ordinary ones where allowed; otherwise says why not, in one line.

    Collection of garbage is switched off as well, since it takes milliseconds whenever it pleases.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    problem = run_first(priority)
    if problem is None:
        return None
    return (
        f"no real-time scheduling ({problem}): expect control ticks that are late by tens of milliseconds; allow it "
        f"with 'ulimit -r {priority}' or a line '@realtime - rtprio {priority}' in /etc/security/limits.conf"
    )


def run_first(priority: int) -> str | None:
    """Schedules this thread before all ordinary ones (SCHED_FIFO); says why it cannot, or None."""
    if not hasattr(os, "sched_setscheduler"):
        return "this system has none"
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
    except OSError as error:
        return error.strerror or str(error)
    return None
