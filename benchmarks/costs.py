"""The cost of a plan as its sizes grow, compared with the limits of this core, and where the rest of the time goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from breakdown import exponentials_needed, measure_parts
from closedform import ClosedFormPolicy, Demos
from closedform.figures import ACCENT, COLORS, INK, QUIET, png, pyplot
from contenders import Task
from push_t import make_task
from report import number, table
from roofline import BEYOND_CACHES, exponential_rate, read_rate
from timing import Timed, fewer, summarize

N_CALLS, N_COUNTED = 300, 3
N_WINDOWS, ROUNDS = 40, 15


@dataclass(frozen=True)
class Sweep:
    """One size that grows while the others stay as on Push-T."""

    label: str
    values: tuple[int, ...]


SWEEPS = {
    "n_diffusion_steps": Sweep("S, diffusion steps", (10, 30, 100, 300, 1000)),
    "n_neighbors": Sweep("k, neighbors", (50, 200, 500, 1000, 2000, 5000, 10_000)),
    "n_perturbations": Sweep("M, perturbations", (1, 4, 16, 32, 64, 128, 256)),
    "chunk_size": Sweep("N_a D_a, numbers in a chunk", (8, 24, 50, 100, 200, 500)),
    "n_episodes": Sweep("chunks", (25, 50, 100, 196, 4 * 196, 16 * 196)),
}


def make_policy(task: Task, name: str, value: int) -> ClosedFormPolicy:
    """The policy of the preset `paper` with one size changed."""
    if name == "n_episodes":
        return ClosedFormPolicy(many(task.demos, value), "paper", index="exact")
    if name == "chunk_size":  # padded, since long chunks would not fit into the episodes
        n_action_steps = value // task.demos.action_layout.width
        return ClosedFormPolicy(task.demos, "paper", n_action_steps=n_action_steps, padding=True)
    changed: dict[str, Any] = {name: value}
    return ClosedFormPolicy(task.demos, "paper", **changed)


def many(demos: Demos, n_episodes: int) -> Demos:
    """The first episodes, or all of them repeatedly, slightly shifted each time."""
    rng = np.random.default_rng(0)
    episodes = []
    for i in range(n_episodes):
        episode, moved = demos[i % len(demos)], rng.normal(size=2) if i >= len(demos) else np.zeros(2)
        shift = np.concatenate([moved, moved, [0.0]])  # of hand and block together, in pixels
        episodes.append((episode.observations + shift, episode.actions + moved))
    return Demos(episodes, demos.observation_layout, demos.action_layout)


def measure(quick: bool) -> dict[str, Any]:
    """Sweeps, the rates of this core, and the parts of a plan."""
    task = make_task()
    rates = {
        "exponentials_per_s": exponential_rate(),
        "read_features_bytes_per_s": read_rate(features_bytes(task.paper)),
        "read_memory_bytes_per_s": read_rate(BEYOND_CACHES),
    }
    sweeps = {name: measure_sweep(task, name, rates, quick) for name in SWEEPS}
    plan = measure_parts(task.paper, task.windows[: fewer(N_WINDOWS, quick)], 5 if quick else ROUNDS)
    parts, inside, n_bytes = plan["parts_us"], plan["diffusion_us"], features_bytes(task.paper)
    search_rate = n_bytes / (1e-6 * parts["search"])
    floors = {
        "search": 1e6 * n_bytes / rates["read_features_bytes_per_s"],
        "exponentials": 1e6 * plan["exponentials_needed"] / rates["exponentials_per_s"],
    }
    reached = {
        "search, of the read rate": floors["search"] / parts["search"],
        "exponentials and averages, of the exponential rate": floors["exponentials"]
        / inside["exponentials and averages"],
        "diffusion, of the exponential rate": floors["exponentials"] / parts["diffusion"],
        "plan, of both": sum(floors.values()) / plan["plan_us"],
    }
    return {
        "rates": rates,
        "plan": {**plan, "search_bytes": n_bytes, "search_bytes_per_s": search_rate, "floors_us": floors},
        "reached": reached,
        "sweeps": sweeps,
        "ratios": {name: reached[name] for name in ("search, of the read rate", "diffusion, of the exponential rate")},
    }


def features_bytes(policy: ClosedFormPolicy) -> int:
    """The bytes that the search reads: all features of all windows."""
    features = policy.model.index.rows()
    return features.size * features.itemsize


def measure_sweep(task: Task, name: str, rates: dict[str, float], quick: bool) -> list[dict[str, float]]:
    """p50 of a plan at each value, and the least time that its exponentials and its search could take."""
    values = SWEEPS[name].values[:: 2 if quick else 1]
    policies = {value: make_policy(task, name, value) for value in values}
    seed = np.random.default_rng(0)
    timed = {
        str(value): Timed(lambda i, p=policy: p.plan(task.window(i), seed=seed), fewer(N_CALLS, quick))
        for value, policy in policies.items()
    }
    rows = summarize(timed, SWEEPS[name].label)
    points = []
    for value, policy in policies.items():
        counts = [exponentials_needed(policy, window) for window in task.windows[: 1 if quick else N_COUNTED]]
        n_bytes = features_bytes(policy)
        points.append(
            {
                "value": policy.n_windows if name == "n_episodes" else value,
                "p50_ms": rows[str(value)]["p50"],
                "p99_ms": rows[str(value)]["p99"],
                "calls": rows[str(value)]["calls"],
                "exponentials_needed": float(np.mean(counts)),
                "exponentials_ms": 1e3 * float(np.mean(counts)) / rates["exponentials_per_s"],
                "search_ms": 1e3 * n_bytes / read_rate(n_bytes),
            }
        )
    return points


def report(facts: dict[str, Any]) -> str:
    """The section of the report."""
    rates, plan, reached = facts["rates"], facts["plan"], facts["reached"]
    total = plan["plan_us"]
    inside = [[f"diffusion: {name}", *share(value, total)] for name, value in plan["diffusion_us"].items()]
    parts = [[name, *share(value, total)] for name, value in plan["parts_us"].items() if name != "diffusion"]
    lines = [
        "## What a plan costs",
        "",
        "![Time of a plan as a function of its sizes, and its parts](costs.png)",
        "",
        f"This core computes {number(rates['exponentials_per_s'] / 1e9)} exponentials per nanosecond (of numbers in "
        f"the L1 cache) and reads {number(rates['read_features_bytes_per_s'] / 1e9)} GB/s from arrays as large as "
        f"Push-T's features, {number(rates['read_memory_bytes_per_s'] / 1e9)} GB/s from memory. "
        f"A Push-T plan takes {number(total)} us on average:",
        "",
        table(["part", "us", "share"], parts + inside),
        "",
        f"- The search reads {plan['search_bytes'] / 1e6:.2f} MB at {number(plan['search_bytes_per_s'] / 1e9)} GB/s: "
        f"{percent(reached['search, of the read rate'])} of this core's read rate.",
        f"- {plan['exponentials_needed']:,.0f} exponentials are needed, {plan['exponentials_computed']:,.0f} computed. "
        f"The function that computes and averages them reaches "
        f"{percent(reached['exponentials and averages, of the exponential rate'])} of the exponential rate, the whole "
        f"diffusion {percent(reached['diffusion, of the exponential rate'])}.",
        f"- Reading once and the exponentials alone would take {number(sum(plan['floors_us'].values()))} us, "
        f"{percent(reached['plan, of both'])} of the plan. The rest is in the table.",
        "",
        "p50 of a plan in ms as one size grows; in parentheses the least time for its exponentials and its search:",
        "",
    ]
    for name, points in facts["sweeps"].items():
        cells = [
            f"{p['value']:,}: {number(p['p50_ms'])} ({number(p['exponentials_ms'] + p['search_ms'])})" for p in points
        ]
        lines.append(f"- {SWEEPS[name].label}: {'; '.join(cells)}")
    return "\n".join(lines)


def share(value: float, total: float) -> list[str]:
    """Microseconds and percent."""
    return [number(value), percent(value / total)]


def percent(value: float) -> str:
    """A fraction as text."""
    return f"{100 * value:.0f}%" if abs(value) >= 0.1 else f"{100 * value:.1f}%"


def draw(results: dict[str, Any], path: Path) -> None:
    """The figure: a panel for each size, and one for the parts of a plan."""
    facts, plt = results["sections"]["costs"], pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.6), layout="constrained")
    for axis, (name, points) in zip(axes.flat, facts["sweeps"].items(), strict=False):
        values = [point["value"] for point in points]
        axis.loglog(values, [p["p50_ms"] for p in points], "o-", color=ACCENT, label="measured, p50")
        axis.loglog(values, [p["search_ms"] for p in points], "--", color=COLORS[0], label="floor: reading features")
        axis.loglog(
            values, [p["exponentials_ms"] for p in points], ":", lw=2, color=COLORS[2], label="floor: exponentials"
        )
        axis.set(xlabel=SWEEPS[name].label.replace("N_a D_a", "$N_a D_a$"), ylabel="ms", ylim=(3e-5, 60))
        axis.grid(color="#eceff4")
    axes.flat[0].legend(loc="upper left", fontsize=9)
    draw_parts(axes.flat[-1], facts["plan"])
    note = f"{results['command']} · data: cpu.json · {results['machine']['processor']}, one core · "
    note += f"commit {results['commit'] or 'unknown'}"
    figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=QUIET)
    path.write_bytes(png(figure, dpi=100))


def draw_parts(axis: Any, plan: dict[str, Any]) -> None:
    """Bars for the parts of a plan, those of the diffusion in another color, with their lower bounds."""
    outside = {name: value for name, value in plan["parts_us"].items() if name not in ("diffusion", "everything else")}
    rows = [(name, value, COLORS[5]) for name, value in outside.items()]
    rows += [(name, value, COLORS[3]) for name, value in plan["diffusion_us"].items()]
    floors = {"search": plan["floors_us"]["search"], "exponentials and averages": plan["floors_us"]["exponentials"]}
    for place, (name, value, color) in enumerate(rows):
        axis.barh(place, value, color=color)
        axis.text(max(value, 0), place, f" {name}, {value:.0f}", va="center", fontsize=9, color=INK)
        if name in floors:
            axis.plot([floors[name]] * 2, [place - 0.4, place + 0.4], color=ACCENT, lw=2)
    axis.invert_yaxis()
    axis.set(
        xlabel=f"µs of a Push-T plan of {plan['plan_us']:.0f}", xlim=(0, 1.35 * max(value for _, value, _ in rows))
    )
    axis.set_title("purple: diffusion; red: floor", fontsize=9)
    axis.set_yticks([])
