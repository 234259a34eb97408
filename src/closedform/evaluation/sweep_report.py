"""The table and the figure of a sweep."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from textwrap import wrap
from typing import Any

from closedform import provenance
from closedform.evaluation.space import describe
from closedform.evaluation.sweep import SweepResult
from closedform.figures import ACCENT, COLORS, INK, QUIET, literal, png, pyplot
from closedform.files import write_file


def sweep_rows(sweep: SweepResult) -> list[dict[str, Any]]:
    """The rows of the table, the best configuration first."""
    stopped, rows = {one.index: one for one in sweep.eliminated}, []
    for rank, i in enumerate(sweep.order, 1):
        result, one = sweep.results[i], stopped.get(i)
        paired = sweep.against_best(i)
        difference, (low, high) = getattr(paired, sweep.by), getattr(paired, f"{sweep.by}_ci95")
        rows.append(
            {
                "rank": rank,
                "file": f"{i:03d}.json",
                **sweep.configurations[i],
                "episodes": len(result.episodes),
                **{f"score{suffix}": value for suffix, value in _interval(result.score)},
                **{f"success{suffix}": value for suffix, value in _interval(result.success)},
                "difference": round(difference, 4),
                "difference_low": round(low, 4),
                "difference_high": round(high, 4),
                "plan_p50_ms": round(result.latency_p50_ms, 3),
                "eliminated_after": one.n_episodes if one else None,
                "eliminated_by": f"{one.by:03d}.json" if one else None,
            }
        )
    return rows


def _interval(interval: Any) -> list[tuple[str, float]]:
    values = (interval.mean, interval.low, interval.high)
    return [(suffix, round(value, 4)) for suffix, value in zip(("", "_low", "_high"), values, strict=True)]


def method_of(sweep: SweepResult) -> str:
    """How configurations were compared and eliminated, in a sentence or two."""
    said = (
        f"Differences are in {sweep.by}, from the best configuration, paired by seed, with 95% bootstrap intervals; "
        "the best one was chosen by these very episodes, so report it on others."
    )
    if sweep.alpha:
        said += (
            f" The probability that any configuration was eliminated by one that is not better is at most "
            f"{sweep.alpha:g} (paired bets, Bonferroni over all ordered pairs, valid at any number of looks)."
        )
    return said


def write_sweep(sweep: SweepResult, folder: Path) -> None:
    """Writes sweep.csv, sweep.md, sweep.json and sweep.png."""
    rows = sweep_rows(sweep)
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = io.StringIO()
    writer = csv.DictWriter(table, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_file(folder / "sweep.csv", table.getvalue())
    content = {
        "command": provenance.command(),
        "commit": provenance.commit(),
        "env": sweep.results[0].subject.env,
        "by": sweep.by,
        "alpha": sweep.alpha,
        "best": rows[0]["file"],
        "configurations": rows,
    }
    write_file(folder / "sweep.json", json.dumps(content, indent=2) + "\n")
    write_file(folder / "sweep.md", markdown(sweep))
    write_file(folder / "sweep.png", _figure(sweep))


def markdown(sweep: SweepResult) -> str:
    """The table for human readers."""
    lines = ["| | configuration | score | success | from the best | episodes |", "|---|---|---|---|---|---|"]
    for row, i in zip(sweep_rows(sweep), sweep.order, strict=True):
        stopped = "" if row["eliminated_by"] is None else f", eliminated by {row['eliminated_by']}"
        difference = f"{row['difference']:+.3f} [{row['difference_low']:+.3f}, {row['difference_high']:+.3f}]"
        lines.append(
            f"| {row['rank']} | {describe(sweep.configurations[i])} ({row['file']}) | {sweep.results[i].score} | "
            f"{sweep.results[i].success} | {difference if i != sweep.best else 'best'} | {row['episodes']}{stopped} |"
        )
    return "\n".join([*lines, "", method_of(sweep), ""])


def _figure(sweep: SweepResult) -> bytes:
    plt = pyplot()
    order = sweep.order[::-1]
    stopped = {one.index for one in sweep.eliminated}
    labels = ["\n".join(wrap(describe(sweep.configurations[i]), 42)) for i in order]
    height = 1.6 + sum(0.15 + 0.17 * (1 + label.count("\n")) for label in labels)
    figure, axes = plt.subplots(figsize=(9, height), layout="constrained")
    for y, i in enumerate(order):
        value = getattr(sweep.results[i], sweep.by)
        color = QUIET if i in stopped else ACCENT if i == sweep.best else COLORS[0]
        axes.plot([value.low, value.high], [y, y], color=color, linewidth=1.5)
        axes.plot([value.mean], [y], "o", color=color, markersize=6, markerfacecolor="white" if i in stopped else color)
        n = len(sweep.results[i].episodes)
        axes.annotate(f"{n}", (1.01, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=INK)
    axes.annotate("episodes", (1.01, len(order) - 0.4), xycoords=("axes fraction", "data"), fontsize=8.5, color=QUIET)
    axes.set_yticks(range(len(order)), [literal(label) for label in labels], fontsize=8.5)
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set_xlabel(f"{sweep.by}, mean and 95% interval")
    axes.grid(axis="x", color="#e5e9f0")
    axes.set_axisbelow(True)
    title = f"{sweep.results[0].subject.env}: {len(order)} configurations"
    title += f"; hollow: eliminated, error rate at most {sweep.alpha:g}" if stopped else ""
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=10.5)
    return png(figure)
