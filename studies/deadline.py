"""The cost of a deadline: scores on Push-T when diffusion stops early, and how often plans are late."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from closedform.demos.load import load_demos
from closedform.figures import COLORS, pyplot
from closedform.files import write_file
from closedform.policies.choice import make_policy
from studies.runner import Runner, figures_of, markdown_table

ENV, DEMOS = "pusht", "pusht"
DEADLINES_MS: tuple[float | None, ...] = (0.1, 0.3, 0.5, 0.7, 1.0, 1.5, None)
PRESETS = {"paper": COLORS[0], "default": COLORS[1]}
N_EPISODES, N_PLANS = 100, 2000


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/deadline."""
    rows = []
    for preset in PRESETS:
        for deadline in DEADLINES_MS:
            settings = [] if deadline is None else [f"deadline={deadline / 1e3}"]
            name = f"{preset}_{'none' if deadline is None else deadline}"
            found = runner.evaluate(name, ENV, DEMOS, preset, settings, n_episodes=N_EPISODES)
            rows.append({"preset": preset, "deadline_ms": deadline, **figures_of(found), **_timing(preset, settings)})
    runner.write_csv("deadline", rows)
    _draw(runner, rows)
    _write(runner, rows)
    runner.write_origin(seeds=f"100000 to {100000 + N_EPISODES - 1}")


def _timing(preset: str, settings: list[str]) -> dict[str, Any]:
    """Diffusion steps, time and lateness of an agent's plans for observations of the demonstrations."""
    demos = load_demos(DEMOS)
    policy = make_policy(preset, demos, settings)
    agent = policy.agent(seed=0)
    observations = demos.all_observations()
    took, steps = [], []
    for index in np.random.default_rng(0).integers(len(observations), size=N_PLANS):
        start = time.perf_counter()
        plan = agent.plan(observations[index])
        took.append(time.perf_counter() - start)
        steps.append(plan.n_steps)
    deadline = getattr(policy.config, "deadline", None)
    late = np.mean(np.array(took) > deadline) if deadline else 0.0
    return {
        "steps": float(np.median(steps)),
        "p50_ms": 1e3 * float(np.median(took)),
        "p99_ms": 1e3 * float(np.quantile(took, 0.99)),
        "late": float(late),
    }


def _label(deadline: float | None) -> str:
    return "none" if deadline is None else f"{deadline:g} ms"


def _draw(runner: Runner, rows: list[dict[str, Any]]) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for preset, color in PRESETS.items():
        own = [row for row in rows if row["preset"] == preset]
        at = range(len(own))
        reach = [[row["score"] - row["score_low"] for row in own], [row["score_high"] - row["score"] for row in own]]
        axes[0].errorbar(at, [row["score"] for row in own], yerr=reach, fmt="o-", color=color, label=preset, capsize=3)
        axes[1].plot(at, [row["steps"] for row in own], "o-", color=color, label=preset)
    for axis, label in zip(axes, ("score", "diffusion steps taken, of 100"), strict=True):
        axis.set_xticks(range(len(DEADLINES_MS)), [_label(deadline) for deadline in DEADLINES_MS])
        axis.set(xlabel="deadline of a plan", ylabel=label)
    axes[1].legend()
    runner.write_figure("deadline", figure)


def _write(runner: Runner, rows: list[dict[str, Any]]) -> None:
    cells = [
        [
            row["preset"],
            _label(row["deadline_ms"]),
            f"{row['score']:.3f} [{row['score_low']:.3f}, {row['score_high']:.3f}]",
            f"{row['success']:.2f}",
            f"{row['steps']:.0f}",
            f"{row['p50_ms']:.2f} / {row['p99_ms']:.2f}",
            "" if row["deadline_ms"] is None else f"{row['late']:.1%}",
        ]
        for row in rows
    ]
    head = ["preset", "deadline", "score", "success", "steps", "plan, ms: p50 / p99", "late"]
    text = f"""# Deadlines

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. `deadline` is the time that a plan
may take. Search and metric always run in full; diffusion then stops at a step boundary with the denoised chunk, the
best estimate so far, and `Plan.complete` is false. {N_EPISODES} episodes of Push-T per row; steps, times and lateness
are those of an agent's plans for {N_PLANS} observations of the demonstrations, on a machine with other load.

{markdown_table(head, cells)}

![Score and steps against the deadline](deadline.png)

With bandwidths this narrow, one or a few demonstrations have all the weight from the first step on, so that the first
estimate is nearly the final one; diffusion pays off where demonstrations disagree.

A deadline shorter than search and metric is missed by the difference; the plan then takes a single diffusion step. A
plan is also late if the operating system preempts the process after the last step.
"""
    write_file(runner.output / "README.md", text)
