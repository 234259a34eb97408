"""The default measured again: today's code on the start states of the benchmark, beside what the tables report."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.files import write_file
from studies.runner import Runner, figures_of, interval, markdown_table
from studies.wide import report
from studies.wide.benchmarks import BENCHMARKS
from studies.wide.cells import Cell

PEERS = ("paper", "1nn")  # which the default is meant to beat in every task
SENTENCE = "[A later default](default.md) was measured on the same start states."
_PLACE = ("benchmark", "task", "demonstrations")

Row = dict[str, Any]


def write(runner: Runner, results: Mapping[Cell, EvaluationResult]) -> None:
    """Writes default.csv and default.md, next to tasks.csv, which has the default of before and the other policies.

    What default.csv already has of other cells is kept, so that parts can be run in different environments.
    """
    before = {(*_place(row), row["policy"]): float(row["success"]) for row in _read(runner.output / "tasks.csv")}
    rows = {_place(row): row for row in _read(runner.output / "default.csv")}
    rows |= {_place(row): row for row in (_row(cell, found, before) for cell, found in results.items())}
    order = {name: index for index, name in enumerate(BENCHMARKS)}
    chosen = sorted(rows.values(), key=lambda row: (order[row["benchmark"]], -int(row["demonstrations"]), row["task"]))
    runner.write_csv("default", chosen)
    parts: dict[tuple[str, int], list[Row]] = {}
    for row in chosen:
        parts.setdefault((row["benchmark"], int(row["demonstrations"])), []).append(row)
    worse = [
        f"- {row['task']} from {row['demonstrations']}: {float(row['success']):.2f}, {name} {float(row[name]):.2f}"
        for row in chosen
        for name in PEERS
        if row[name] != "" and float(row[name]) > float(row["success"]) + report.MARGIN + 1e-9
    ]
    head = ["benchmark", "demonstrations", "tasks", "success [95%]", "score [95%]", "success before"]
    table = markdown_table(head, [[BENCHMARKS[name].title, str(n), *_line(own)] for (name, n), own in parts.items()])
    text = f"""# The default, measured again

Made by `{runner.command} --only '*_default'` at commit {", ".join(sorted({row["commit"] for row in chosen}))}, on the
demonstrations and start states of [the benchmark](README.md), whose tables have an earlier default.
[default.csv](default.csv) has every task and its commit. 95% intervals over start states; tasks are fixed.

{table}

Tasks in which the preset `paper` or 1-NN was better than this by more than {report.MARGIN}:
{chr(10).join(["", *worse]) if worse else "none."}
"""
    write_file(runner.output / "default.md", text)


def _read(path: Path) -> list[Row]:
    """The rows of a table, if there is one."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _place(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in _PLACE)


def _row(cell: Cell, found: EvaluationResult, before: Mapping[tuple[str, ...], float]) -> Row:
    row: Row = {"benchmark": cell.benchmark, "task": cell.task, "demonstrations": cell.n_demos}
    return {
        **row,
        **figures_of(found),
        "steps": round(found.mean_steps, 1),
        "before": before.get((*_place(row), "default"), ""),
        **{name: before.get((*_place(row), name), "") for name in PEERS},
        "commit": found.origin.commit,
    }


def _line(rows: Sequence[Row]) -> list[str]:
    """Means over tasks, with their intervals."""
    line = [str(len(rows))]
    for name in ("success", "score"):
        if len(rows) == 1:
            line.append(interval({key: float(rows[0][key]) for key in (name, f"{name}_low", f"{name}_high")}, name))
            continue
        rates = [float(row[name]) for row in rows]  # of tasks in which the score is the success
        mean = math.fsum(rates) / len(rates)
        parts = (rate * (1 - rate) / int(row["episodes"]) for rate, row in zip(rates, rows, strict=True))
        half = 1.96 * math.sqrt(math.fsum(parts)) / len(rates)
        line.append(f"{mean:.3f} [{mean - half:.3f}, {mean + half:.3f}]")
    known = [float(row["before"]) for row in rows if row["before"] != ""]
    return [*line, f"{math.fsum(known) / len(known):.3f}" if len(known) == len(rows) else ""]
