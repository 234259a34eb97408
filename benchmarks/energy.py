"""Energy: what the processor's own counters (RAPL) say, where the machine lets them be read."""

from __future__ import annotations

from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
NOT_TOLD = "not told by this machine"

Counters = dict[str, tuple[int, int]]


def read_counters(folder: Path = POWERCAP) -> Counters:
    """Microjoules that each processor package has used, and where its counter wraps; empty where none can be read."""
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
    """Joules of all packages, idle cores included; None where none can be read."""
    if not before or before.keys() != after.keys():
        return None
    return sum((after[name][0] - used) % wraps for name, (used, wraps) in before.items()) / 1e6
