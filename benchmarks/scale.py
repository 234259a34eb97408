"""The arithmetic of docs/scale.md, from what was measured: `python benchmarks/scale.py` writes its tables.

Constants come from docs/results/bench/cpu.json and docs/results/fleet/fleet.json, at the largest size that each has.
Prices are assumptions, which the document names.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from report import number, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- tables: python benchmarks/scale.py -->", "<!-- end of tables -->"
SIZES = (10**5, 10**6, 10**7, 10**8, 10**9, 10**10)
ROBOTS, HERTZ = 1000, 10
STEPS, EPISODES_PER_HOUR = 250, 6  # of an episode, and that each robot adds
DOLLARS_PER_GB_MONTH, DOLLARS_PER_CORE_MONTH = 0.023, 25.0  # assumed: object storage, and a rented core
GIGABIT = 125e6  # bytes a second


def main() -> None:
    """Writes the tables into the document."""
    cpu = _largest(json.loads((ROOT / "docs/results/bench/cpu.json").read_text())["sections"]["large"]["sizes"])
    fleet = _largest(json.loads((ROOT / "docs/results/fleet/fleet.json").read_text())["sizes"])
    text = "\n\n".join(["", constants(cpu, fleet), orders(cpu, fleet), robots(cpu, fleet), ""])
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")


def _largest(sizes: dict[str, Any]) -> dict[str, Any]:
    n = max(map(int, sizes))
    return {"n": n, **sizes[str(n)]}


def constants(cpu: dict[str, Any], fleet: dict[str, Any]) -> str:
    """What was measured."""
    rows = [
        ["a window as recorded, bytes", number(1e6 * cpu["raw_mb"] / cpu["n"])],
        ["the same in a replica with its index, bytes", number(1e6 * sum(cpu["files_mb"].values()) / cpu["n"])],
        [f"a plan from {cpu['n']:,} windows on one core, ms", number(cpu["faiss"]["p50_ms"])],
        ["resident memory of that process, MB", number(cpu["faiss"]["memory_mb"])],
        ["memory-mapped files that it has touched after a plan, MB", number(cpu["faiss"]["mapped_mb"])],
        [f"indexing {cpu['n']:,} windows, s", number(cpu["build_s"])],
    ]
    engine = fleet["engine"]
    rows += [
        ["a window in the fleet's table, bytes", number(1e6 * fleet["table_mb"] / fleet["n"])],
        ["the same for search in the store, bytes more", number(1e6 * engine["windows_mb"] / fleet["n"])],
        ["a push of one episode until it is acknowledged, ms", number(fleet["acknowledged"]["p50_ms"])],
        ["a push of one episode until it counts in plans, ms", number(fleet["visible"]["p50_ms"])],
        [f"opening a replica of {fleet['n']:,} windows, s", number(fleet["open_s"])],
        [f"a plan by search in the store, {fleet['n']:,} windows on the same disk, ms", number(engine["p50_ms"])],
        ["what the store sends for such a plan, kB", number(_sent(cpu, engine) / 1e3)],
    ]
    return table(["measured", "value"], rows)


def _sent(cpu: dict[str, Any], engine: dict[str, Any]) -> float:
    """Bytes that the store sends for a plan: the features of the neighbors, and the episodes that are not in memory."""
    return engine["neighbors"] * engine["row_bytes"] + engine["fetched"] * STEPS * 1e6 * cpu["raw_mb"] / cpu["n"]


def orders(cpu: dict[str, Any], fleet: dict[str, Any]) -> str:
    """Memory, disk, network and time for each order of magnitude; beyond what was measured, extrapolated."""
    recall, rows = cpu["recall"], []
    for n in SIZES:
        replica = 1e6 * sum(cpu["files_mb"].values()) * n / cpu["n"]
        stored = 1e6 * fleet["table_mb"] * n / fleet["n"]
        lists = 4 * math.sqrt(n)
        scanned = recall["n_probes"] * n / lists
        build = cpu["build_s"] * (n / cpu["n"]) ** 1.5 if n > cpu["n"] else cpu["build_s"] * n / cpu["n"]
        transfer = replica / cpu["memory_ratio"] / GIGABIT
        dollars = stored / 1e9 * DOLLARS_PER_GB_MONTH
        values = (stored / 1e9, dollars, replica / 1e9, transfer / 60, lists, scanned, build / 3600)
        rows.append([f"10^{round(math.log10(n))}", *map(number, values)])
    head = ["windows", "table GB", "table $ a month", "replica GB", "first copy min at 1 Gbit/s", "lists"]
    return table([*head, "rows compared in a plan", "indexing h, one machine"], rows)


def robots(cpu: dict[str, Any], fleet: dict[str, Any]) -> str:
    """A fleet of many robots."""
    plans, plan = ROBOTS * HERTZ, cpu["faiss"]["p50_ms"] / 1e3
    commits = ROBOTS * EPISODES_PER_HOUR / 3600
    size = STEPS * 1e6 * cpu["raw_mb"] / cpu["n"]
    windows_per_day = commits * STEPS * 86400
    rows = [
        ["plans a second", number(plans)],
        ["share of one core of each robot, plans from its replica", f"{HERTZ * plan:.1%}"],
        ["cores, if a server plans for all", number(plans * plan)],
        ["the same, $ a month", number(plans * plan * DOLLARS_PER_CORE_MONTH)],
        ["episodes pushed a second", number(commits)],
        ["new windows a day, millions", number(windows_per_day / 1e6)],
        ["days until 10^9 windows", number(1e9 / windows_per_day)],
        ["days until 10^10 windows", number(1e10 / windows_per_day)],
        ["what each robot receives, kB/s", number(commits * size / 1e3)],
        ["what the store sends to all, MB/s", number(ROBOTS * commits * size / 1e6)],
        ["looks at the table's version a second", number(ROBOTS / 0.25)],
    ]
    engine = fleet["engine"]
    rows += [
        ["pushes a second that one table acknowledges", number(1e3 / fleet["acknowledged"]["p50_ms"])],
        ["what the store sends if all search in it, MB/s", number(plans * _sent(cpu, engine) / 1e6)],
        ["cores of the store for that", number(plans * engine["search"]["p50_ms"] / 1e3)],
    ]
    what = f"{ROBOTS:,} robots at {HERTZ} Hz, each adding {EPISODES_PER_HOUR} episodes of {STEPS} steps an hour"
    return table([what, "value"], rows)


if __name__ == "__main__":
    main()
