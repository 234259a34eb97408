"""The paper's table of computational performance on Push-T, extended: one plan of each contender on one core.

The policies hold all but ten of the demonstrations and plan for windows of those ten.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from closedform import ClosedFormPolicy, Demos, load_demos, load_policy
from contenders import CONTENDERS, CannotRunError, Task, check_peer
from energy import NOT_TOLD
from fresh import in_fresh_process
from report import number, table
from timing import Timed, fewer, median_seconds, summarize

PAPER = {  # table "computational_results": an RTX 3070 and a mobile Intel Ultra 5 135U
    "closed form": {"cpu_ms": 83.0, "gpu_ms": 34.0, "pre_inference_s": 0.501},
    "neural, 100 DDPM steps": {"cpu_ms": 637.0, "gpu_ms": 78.0, "pre_inference_s": 15_600.0},
}
TRAINING = {
    "n_steps": 100_000,
    "seconds": 162.0,
    "machine": "NVIDIA H200",
    "source": "100,000 steps took 2.7 minutes on an NVIDIA H200 (docs/models.md, not measured in this run)",
}
TARGETS = {"neural, 100 DDPM steps": 500.0, "direct JAX": 25.0}  # times slower than the kernel, at least
SAME_PROCESS = {  # contenders that differ only in the sampler take the same memory
    "neural, 10 DDIM steps": "neural, 100 DDPM steps",
    "neural, 10 DDIM steps, compiled": "neural, 100 DDPM steps, compiled",
}
FIRST_PLAN = """
import sys
import closedform
policy = closedform.load_policy(sys.argv[1])
print(policy.plan([222.0, 97.0, 222.0, 381.0, 3.0], seed=0).actions[0], flush=True)
"""


def make_task() -> Task:
    """Push-T with the paper's parameters: S = 100, k = 2000."""
    return Task.of(load_demos("pusht"), partial(load_policy, "pusht-dit"))  # pyright: ignore[reportArgumentType]


def measure(quick: bool) -> dict[str, Any]:
    """Latency, memory and energy of each contender, and the costs before the first plan."""
    task = make_task()
    check_peer(task)
    timed, missing = {}, {}
    for name, contender in CONTENDERS.items():
        try:
            timed[name] = Timed(contender.make(task), fewer(contender.n_calls, quick))
        except CannotRunError as error:
            missing[name] = str(error)
    rows = summarize(timed, "Push-T")
    before = measure_before(task, quick)
    fresh = {name: in_fresh_process(name) for name in rows if name not in SAME_PROCESS}
    for name, row in rows.items():
        row["over_kernel"] = row["p50"] / rows["kernel"]["p50"]
        row.update(fresh[SAME_PROCESS.get(name, name)])
    return {
        "contenders": rows,
        "missing": missing,
        "before_the_first_plan": before,
        "paper": PAPER,
        "targets": {
            name: {"over_kernel": rows[name]["over_kernel"], "at_least": least} for name, least in TARGETS.items()
        },
        "notes": {
            "memory_mb": "peak resident memory minus that after imports, in a new process: load, build, 20 plans",
            "ready_s": "from the end of the imports to the first plan, in the same process, with compiled code cached",
            "joules": "of all processor packages, for one call" if rows["kernel"]["joules"] is not None else NOT_TOLD,
        },
        "ratios": ratios(rows, before),
        "n_windows": task.paper.n_windows,
        "parameters": asdict(task.paper.config),
    }


def ratios(rows: dict[str, Any], before: dict[str, Any]) -> dict[str, float]:
    """The ratios that `make bench-check` compares: something else over something of ours, so that more is better."""
    jax = rows["direct JAX"]["p50"]
    others = [name for name in rows if name.startswith(("neural", "direct", "reference"))]
    return {
        **{f"{name} / kernel": rows[name]["over_kernel"] for name in others},
        "direct JAX / kernel, default preset": jax / rows["kernel, default preset"]["p50"],
        "direct JAX / 1-NN": jax / rows["1-NN"]["p50"],
        "direct JAX / building, preset paper": jax / before["build_ms"],
        "direct JAX / building, default": jax / before["build_default_ms"],
        "direct JAX / adding an episode": jax / before["add_episode_ms"],
    }


def measure_before(task: Task, quick: bool) -> dict[str, Any]:
    """The costs before the first plan: measured for the closed form, as recorded for the neural policy."""
    n_calls = 3 if quick else 9
    demos = load_demos("pusht")
    policy = ClosedFormPolicy(demos)
    episode = next(e for e in demos if len(e) >= 120)
    return {
        "load_ms": 1e3 * median_seconds(n_calls, lambda: load_demos("pusht")),
        "build_ms": 1e3 * median_seconds(n_calls, lambda: ClosedFormPolicy(demos, "paper")),
        "build_default_ms": 1e3 * median_seconds(n_calls, lambda: ClosedFormPolicy(demos)),
        "add_episode_ms": 1e3
        * median_seconds(9, lambda: policy.add((episode.observations[:120], episode.actions[:120]))),
        "first_plan_of_a_process_s": first_plan_s(task.paper, n_calls),
        "neural_training": {**TRAINING, "step_on_this_core_s": training_step_s(demos)},
    }


def training_step_s(demos: Demos) -> float:
    """One gradient step of the network on this core, in seconds."""
    from closedform.neural.config import NeuralConfig, TrainingConfig
    from closedform.neural.data import training_data
    from closedform.neural.training import Trainer

    trainer = Trainer(training_data(demos, NeuralConfig()), NeuralConfig(), TrainingConfig())
    trainer.run(1)
    return median_seconds(3, lambda: trainer.run(1))


def first_plan_s(policy: ClosedFormPolicy, n_calls: int) -> float:
    """Seconds from starting an interpreter to its first plan, with compiled code cached on disk."""
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy")

        def run() -> None:
            subprocess.run([sys.executable, "-c", FIRST_PLAN, f"{folder}/policy"], check=True, capture_output=True)

        run()
        return median_seconds(n_calls, run)


def report(facts: dict[str, Any]) -> str:
    """The section of the report."""
    before, notes, parameters = facts["before_the_first_plan"], facts["notes"], facts["parameters"]
    training = before["neural_training"]
    training_hours = training["n_steps"] * training["step_on_this_core_s"] / 3600
    lines = [
        "## Push-T, one plan",
        "",
        f"{facts['n_windows']:,} windows, S = {parameters['n_diffusion_steps']}, k = {parameters['n_neighbors']}, "
        f"M = {parameters['n_perturbations']}, N_a = {parameters['n_action_steps']}.",
        "",
        latency_table(facts["contenders"]),
        "",
        *(f"- {name}: could not run. {reason}." for name, reason in facts["missing"].items()),
        *(target_line(name, target) for name, target in facts["targets"].items()),
        f"- Memory: {notes['memory_mb']}.",
        f"- Ready: {notes['ready_s']}.",
        f"- Energy: {notes['joules']}.",
        "",
        "Compared with the paper's table:",
        "",
        paper_table(facts),
        "",
        f"- Closed form: loading {number(before['load_ms'])} ms; cutting, scaling and indexing "
        f"{number(before['build_ms'])} ms (default preset {number(before['build_default_ms'])} ms); adding an episode "
        f"of 120 steps {number(before['add_episode_ms'])} ms; a new process makes its first plan after "
        f"{number(before['first_plan_of_a_process_s'])} s, including imports.",
        f"- Training the network: {training['source']}. A gradient step takes "
        f"{number(training['step_on_this_core_s'])} s on this core, {training['n_steps']:,} of them would take "
        f"{number(training_hours)} hours.",
    ]
    return "\n".join(lines)


def latency_table(rows: dict[str, Any]) -> str:
    """A row for each contender, without columns that this machine cannot measure."""
    more = {"memory_mb": "memory MB", "ready_s": "ready after s", "joules": "energy J"}
    more = {key: title for key, title in more.items() if any(row[key] is not None for row in rows.values())}
    head = ["", "p50 ms", "p99 ms", "worst ms", "calls", "against the kernel", *more.values()]
    cells = [
        [
            name,
            *(number(row[key]) for key in ("p50", "p99", "worst")),
            f"{row['calls']:,}",
            f"{number(row['over_kernel'])} x",
            *(number(row[key]) for key in more),
        ]
        for name, row in rows.items()
    ]
    return table(head, cells)


def target_line(name: str, target: dict[str, float]) -> str:
    """Whether a target was reached."""
    over, least = target["over_kernel"], target["at_least"]
    reached = "reached" if over >= least else "**missed**"
    return f"- {name}: {number(over)} times slower than the kernel; the target is {number(least)}, {reached}."


def paper_table(facts: dict[str, Any]) -> str:
    """The paper's table with two more rows."""
    rows, before, neural = facts["contenders"], facts["before_the_first_plan"], "neural, 100 DDPM steps"
    training = before["neural_training"]
    reported = [
        [f"the paper: {name}", *(number(value) for value in values.values())] for name, values in facts["paper"].items()
    ]
    closed_form_s = (before["load_ms"] + before["build_ms"]) / 1e3
    here = [
        ["here: closed form, kernel", number(rows["kernel"]["p50"]), number(None), number(closed_form_s)],
        [
            f"here: {neural}",
            number(rows[neural]["p50"]),
            number(None),
            f"{number(training['seconds'])} on an {training['machine']}, not in this run",
        ],
    ]
    return table(["", "CPU ms", "GPU ms", "before the first plan, s"], [*reported, *here])
