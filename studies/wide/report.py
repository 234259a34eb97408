"""The report of the wide benchmark: tables, intervals, paired differences and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import Interval
from closedform.figures import COLORS, QUIET, pyplot
from studies.runner import Runner, figures_of, markdown_table
from studies.wide.benchmarks import BENCHMARKS, POLICIES
from studies.wide.cells import Cell

N_RESAMPLES = 4000
MARGIN = 0.05  # by which no other policy may be better than the default in a task

Results = Mapping[Cell, EvaluationResult]


def stratified_mean(groups: Sequence[np.ndarray]) -> Interval:
    """The mean of groups' means with its 95% interval: episodes are resampled, tasks are fixed.

    Args:
        groups: the values of each task's episodes.
    """
    rng = np.random.default_rng(0)
    resampled = np.zeros(N_RESAMPLES)
    for values in groups:
        values = np.asarray(values, np.float64)
        resampled += values[rng.integers(len(values), size=(N_RESAMPLES, len(values)))].mean(1) / len(groups)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return Interval(float(np.mean([np.mean(values) for values in groups])), float(low), float(high))


def summarize(results: Results) -> list[dict[str, Any]]:
    """A row for each benchmark, number of demonstrations and policy, with the paired difference to the default."""
    rows = []
    groups: dict[tuple[str, int, str], dict[str, EvaluationResult]] = {}
    for cell, found in results.items():
        groups.setdefault((cell.benchmark, cell.n_demos, cell.policy), {})[cell.task] = found
    for (benchmark, n_demos, policy), by_task in groups.items():
        base = groups.get((benchmark, n_demos, "default"), {})
        score = stratified_mean([_values(found, "score") for found in by_task.values()])
        success = stratified_mean([_values(found, "success") for found in by_task.values()])
        row = {
            **{"benchmark": benchmark, "demonstrations": n_demos, "policy": policy, "tasks": len(by_task)},
            "episodes": sum(len(found.episodes) for found in by_task.values()),
            **_interval("success", success),
            **_interval("score", score),
        }
        paired = [_differences(base[task], found) for task, found in by_task.items() if task in base]
        row |= _interval("difference", stratified_mean(paired)) if len(paired) == len(by_task) else _NO_DIFFERENCE
        row["steps"] = round(float(np.mean([found.mean_steps for found in by_task.values()])), 1)
        row["plan_p50_ms"] = round(float(np.median([found.latency_p50_ms for found in by_task.values()])), 3)
        row |= _paths(by_task)
        rows.append(row)
    return rows


_NO_DIFFERENCE = {"difference": "", "difference_low": "", "difference_high": ""}


def _values(found: EvaluationResult, what: str) -> np.ndarray:
    return np.array([float(getattr(episode, what)) for episode in found.episodes])


def _differences(base: EvaluationResult, found: EvaluationResult) -> np.ndarray:
    before = {episode.seed: episode.success for episode in base.episodes}
    return np.array(
        [float(one.success) - float(before[one.seed]) for one in found.episodes if one.seed in before], np.float64
    )


def _interval(name: str, interval: Interval) -> dict[str, float]:
    values = (interval.mean, interval.low, interval.high)
    return {key: round(value, 4) for key, value in zip((name, f"{name}_low", f"{name}_high"), values, strict=True)}


def _paths(by_task: Mapping[str, EvaluationResult]) -> dict[str, Any]:
    """Path error in mm and arrival, if episodes record them."""
    extras = [episode.extra for found in by_task.values() for episode in found.episodes]
    errors = [extra["path_error"] for extra in extras if "path_error" in extra]
    arrivals = [extra["arrival"] for extra in extras if extra.get("arrival") is not None]
    return {
        "path_error_mm": round(float(np.mean(errors)), 3) if errors else "",
        "arrival": round(float(np.median(arrivals)), 3) if arrivals else "",
    }


def worse_tasks(results: Results, n_demos: int, benchmark: str = "metaworld") -> list[dict[str, Any]]:
    """The tasks in which another policy is better than the default by more than the margin, with paired intervals."""
    rows = []
    for cell, found in results.items():
        if cell.benchmark != benchmark or cell.n_demos != n_demos or cell.policy == "default":
            continue
        base = next((r for c, r in results.items() if c.key == cell.key.removesuffix(cell.policy) + "default"), None)
        difference = None if base is None else compare(base, found)
        if difference is not None and difference.success > MARGIN + 1e-9:
            low, high = difference.success_ci95
            better = {"better_by": round(difference.success, 4), "low": round(low, 4), "high": round(high, 4)}
            rows.append({"task": cell.task, "policy": cell.policy, **better})
    return rows


def write_tables(runner: Runner, results: Results, experts: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Writes summary.csv, tasks.csv and worse.csv, and returns the summary."""
    rows = summarize(results)
    runner.write_csv("summary", rows)
    tasks = [
        {
            **{"benchmark": cell.benchmark, "task": cell.task, "demonstrations": cell.n_demos, "policy": cell.policy},
            **figures_of(found),
            "steps": round(found.mean_steps, 1),
            "noisy_expert": "" if (rate := experts.get(cell.task)) is None else round(rate, 3),
        }
        for cell, found in results.items()
    ]
    runner.write_csv("tasks", tasks)
    worse = [row for size in BENCHMARKS["metaworld"].sizes for row in worse_tasks(results, size)]
    empty = {name: "" for name in ("task", "policy", "better_by", "low", "high")}
    runner.write_csv("worse", worse or [empty])
    return rows


def summary_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The summary as a table."""
    with_paths = any(row["path_error_mm"] != "" for row in rows)
    head = ["policy", "demonstrations", "success [95%]", "minus the default, paired"]
    head += ["path error, mm", "arrival"] if with_paths else ["score"]
    lines = []
    for row in rows:
        line = [POLICIES[row["policy"]], str(row["demonstrations"]), _shown(row, "success", "")]
        line.append("" if row["policy"] == "default" or row["difference"] == "" else _shown(row, "difference", "+"))
        line += [str(row["path_error_mm"]), str(row["arrival"])] if with_paths else [f"{row['score']:.3f}"]
        lines.append(line)
    return markdown_table(head, lines)


def _shown(row: Mapping[str, Any], name: str, sign: str) -> str:
    mean, low, high = (f"{row[key]:{sign}.3f}" for key in (name, f"{name}_low", f"{name}_high"))
    return f"{mean} [{low}, {high}]"


def task_table(results: Results, n_demos: int, experts: Mapping[str, float | None]) -> str:
    """Success of each Meta-World task and policy."""
    by_key = {(cell.task, cell.policy): found for cell, found in results.items() if _is(cell, n_demos)}
    policies = [policy for policy in POLICIES if any(policy == other for _, other in by_key)]
    lines = []
    for task in dict.fromkeys(task for task, _ in by_key):
        found = [by_key.get((task, policy)) for policy in policies]
        rate = experts.get(task)
        shown = ["" if one is None else f"{one.success.mean:.2f}" for one in found]
        lines.append([task, *shown, "" if rate is None else f"{rate:.2f}"])
    return markdown_table(["task", *(POLICIES[policy] for policy in policies), "noisy expert"], lines)


def _is(cell: Cell, n_demos: int, benchmark: str = "metaworld") -> bool:
    return cell.benchmark == benchmark and cell.n_demos == n_demos


def draw_tasks(runner: Runner, results: Results, n_demos: int) -> None:
    """Success of each Meta-World task, ordered by that of the default."""
    found = {(cell.task, cell.policy): one.success for cell, one in results.items() if _is(cell, n_demos)}
    tasks = [task for task, policy in found if policy == "default"]
    if not tasks:
        return
    tasks.sort(key=lambda task: (found[task, "default"].mean, task))
    figure, axis = pyplot().subplots(figsize=(8.4, 1.6 + 0.22 * len(tasks)), layout="constrained")
    heights = range(len(tasks))
    for policy, color in zip(POLICIES, COLORS, strict=False):
        own = [(found[task, policy].mean, y) for y, task in enumerate(tasks) if (task, policy) in found]
        if own and policy != "default":
            axis.plot(*zip(*own, strict=True), "o", color=color, markersize=4, alpha=0.6, label=POLICIES[policy])
    means = [found[task, "default"].mean for task in tasks]
    spread = [
        [mean - found[task, "default"].low for task, mean in zip(tasks, means, strict=True)],
        [found[task, "default"].high - mean for task, mean in zip(tasks, means, strict=True)],
    ]
    axis.errorbar(means, heights, xerr=spread, fmt="D", color=COLORS[0], markersize=6, label=POLICIES["default"])
    axis.axvline(float(np.mean(means)), color=QUIET, linewidth=1, linestyle=":")
    axis.set(yticks=list(heights), xlim=(-0.03, 1.03), ylim=(-0.7, len(tasks) - 0.3), xlabel="success")
    axis.set_yticklabels(tasks, fontsize=8)
    axis.set_title(f"Meta-World from {n_demos} demonstrations; dotted: the default's mean; bars: 95%")
    axis.legend(loc="upper left", fontsize=8)
    name = f"metaworld_{n_demos}"
    runner.write_csv(
        name,
        [{"task": task, "policy": policy, **_interval("success", one)} for (task, policy), one in found.items()],
    )
    runner.write_figure(name, figure)


def draw_sizes(runner: Runner, rows: Sequence[dict[str, Any]]) -> None:
    """Score on Push-T against the number of demonstrations."""
    own = [row for row in rows if row["benchmark"] == "pusht"]
    if not own:
        return
    figure, axis = pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    for policy, color in zip(POLICIES, COLORS, strict=False):
        line = sorted((row["demonstrations"], row["score"]) for row in own if row["policy"] == policy)
        if line:
            axis.plot(*zip(*line, strict=True), "o-", color=color, label=POLICIES[policy])
    sizes = sorted({row["demonstrations"] for row in own})
    axis.set(xscale="log", xticks=sizes, ylim=(0, 1.03), xlabel="demonstrations", ylabel="score")
    axis.set_xticklabels([str(size) for size in sizes])
    axis.minorticks_off()
    axis.legend(loc="lower right", fontsize=8)
    runner.write_csv("pusht", own)
    runner.write_figure("pusht", figure)


def experts_of(folder: Path, tasks: Sequence[str]) -> dict[str, float | None]:
    """How often the noisy expert of each task succeeded."""
    from studies.wide.record import expert_success

    return {task: expert_success(task, folder / "metaworld") for task in tasks}
