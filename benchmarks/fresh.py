"""The cost of a contender in its own process, on Push-T: memory, and time from its imports to its first plan."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
N_PLANS = 20


def in_fresh_process(name: str) -> dict[str, float | None]:
    """The costs of a contender: `memory_mb`, `ready_s`."""
    command = [sys.executable, __file__, name]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main(name: str) -> None:
    """Imports, then loads, builds and plans; prints the cost beyond the imports."""
    from contenders import CONTENDERS
    from push_t import make_task

    contender = CONTENDERS[name]
    importlib.import_module(contender.module)
    if RESET.exists():
        RESET.write_text("5")  # resets the peak, which the imports have raised
    imported, start = resident_mb("VmRSS"), time.perf_counter()
    call = contender.make(make_task())
    call(0)
    ready = time.perf_counter() - start
    for i in range(1, min(N_PLANS, contender.n_calls)):
        call(i)
    peak = resident_mb("VmHWM")
    print(json.dumps({"memory_mb": peak - imported if peak and imported else None, "ready_s": ready}))


def resident_mb(name: str) -> float | None:
    """Resident memory of this process as Linux reports it, current (`VmRSS`) or peak (`VmHWM`)."""
    if not STATUS.exists():
        return None
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(sys.argv[1])
