"""Energy from the processor's own counters (RAPL), if they are readable."""

from __future__ import annotations

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
NOT_TOLD = "not available on this machine"

Counters = dict[str, tuple[int, int]]


def read_counters(folder: Path = POWERCAP) -> Counters:
    """Microjoules used by each processor package, and where its counter wraps; empty if none is readable."""
    counters: Counters = {}
    for package in sorted(folder.glob("intel-rapl:*")):  # AMD's too; subdomains have a second colon
        if package.name.count(":") == 1:
            try:
                used, wraps = (int((package / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
            except (OSError, ValueError):
                continue
            counters[package.name] = used, wraps
    return counters


def joules_between(before: Counters, after: Counters) -> float | None:
    """Joules of all packages, including idle cores; None if no counter is readable."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name][0] - used) % wraps for name, (used, wraps) in before.items()) / 1e6
