"""Five columns of the paper's benchmark: robomimic's tasks, from scripted and from ten human demonstrations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import LoadError
from closedform.evaluation.comparison import compare
from closedform.evaluation.environment import make_environment
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.robomimic import Robomimic
from closedform.evaluation.study import Study, demos_for
from closedform.experts.generation import generate
from closedform.figures import pyplot
from closedform.files import write_file
from closedform.geometry.layout import Entry, Layout
from closedform.policies.choice import make_policy
from closedform.policies.policy import Policy
from studies.runner import Runner, figures_of, interval, markdown_table

N_EPISODES = 150  # as in the paper
N_PUSHT = 500
N_NEURAL = {"lift": 150, "can": 25, "square": 25, "transport": 25, "tool_hang": 25}  # a plan takes seconds on a CPU
MS = ("plan_p50_ms", "plan_p99_ms")
TRAINING_STEPS = {"lift": 100_000, "can": 100_000, "square": 50_000, "transport": 50_000, "tool_hang": 50_000}
N_DEMOS = 200
N_ABLATION, ABLATION_SEED, N_ABLATION_DEMOS = 25, 20_000, 10
HUMAN = "robomimic-lift-10"
TITLES = {"lift": "Lift", "can": "Can", "square": "Square", "transport": "Transport", "tool_hang": "ToolHang"}
PAPER_SETTINGS = {  # the paper's table of hyperparameters; k_nn, N_a and N_o are the same for all
    task: (f"tau={tau}", f"bandwidth={bandwidth}", "n_neighbors=350", "n_action_steps=24", "n_execute=24")
    for task, tau, bandwidth in (
        ("lift", 0.02, 0.02),
        ("can", 0.05, 0.04),
        ("square", 0.05, 0.03),
        ("transport", 0.06, 0.03),
        ("tool_hang", 0.005, 0.025),
    )
}
POLICIES = {
    "default": "closed form, default",
    "paper": "closed form, the paper's parameters",
    "1nn": "1-NN",
    "regression": "kernel regression",
    "neural": "neural diffusion policy",
}
REPORTED = {  # by the paper, from 200 human demonstrations
    "the paper: closed form, 200 human demonstrations": ("0.98", "0.29", "0.80", "0.59", "0.20"),
    "the paper: 1-NN, likewise": ("0.00", "0.02", "0.14", "0.01", "0.07"),
    "best trained, as the paper cites it": ("1.00", "1.00", "0.93", "0.84", "0.87"),
}
CURVES, SIZES = ("can", "square"), (10, 25, 50, 100, 200)
ABLATED = ("can", "square", "tool_hang")
ABLATIONS = {
    "default": ("the default", lambda frames: ()),
    "hand": ("the hand is transferred, not its grasped object", lambda frames: (f"frames={frames}",)),
    "world": ("no frames: chunks stay where they were recorded", lambda frames: ("frames=world",)),
    "mahalanobis": ("the local covariance without shrinkage", lambda frames: ("shrinkage=0",)),
}
DISTRACTED, N_DISTRACTIONS, N_DISTRACTED_DEMOS = ("can", "square"), 10, 25


class Distracted(Robomimic):
    """A task whose observations also contain uninformative numbers, each an independent random process."""

    def __init__(self, task: str):
        super().__init__(task)
        nothing = (Entry("other", 1),) * N_DISTRACTIONS
        self.observation_layout = Layout((*self.task.observation_layout.entries, *nothing))
        self._wandering = iter(np.empty((0, N_DISTRACTIONS)))

    def read(self, source: str) -> Demos:
        """Reads demonstrations and adds such numbers to them."""
        demos = super().read(source)
        episodes = [
            Episode(np.hstack([e.observations, wandering(seed, len(e))]), e.actions) for seed, e in enumerate(demos)
        ]
        return Demos(episodes, self.observation_layout, demos.action_layout, demos.rate)

    def reset(self, seed: int) -> np.ndarray:
        """Starts from the start state for a seed."""
        self._wandering = iter(wandering(seed, self.max_steps + 1))
        return super().reset(seed)

    def _observe(self) -> np.ndarray:
        return np.append(super()._observe(), next(self._wandering))


def wandering(seed: int, n: int) -> np.ndarray:
    """Uninformative numbers (n, N_DISTRACTIONS), with variance one and a correlation time of about twenty steps."""
    rng, memory = np.random.default_rng(seed), 0.95
    rows = [rng.standard_normal(N_DISTRACTIONS)]
    while len(rows) < n:
        rows.append(memory * rows[-1] + np.sqrt(1 - memory**2) * rng.standard_normal(N_DISTRACTIONS))
    return np.array(rows)


distracted_can, distracted_square = (partial(Distracted, task) for task in DISTRACTED)


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/robomimic."""
    results = runner.run_all(studies(runner))
    if not results:
        return
    rows = {key: {"key": key, **figures_of(found)} for key, found in results.items()}
    development = ("ablation_", "distracted_")
    runner.write_csv("benchmark", [row for key, row in rows.items() if not key.startswith(development)])
    runner.write_csv("ablation", [row for key, row in rows.items() if key.startswith(development)])
    _draw_curves(runner, rows)
    _write_page(runner, results, rows)
    runner.write_origin(
        demonstrations={task: results[f"{task}_default"].subject.demos for task in TASKS},
        seeds=f"100000 to {100000 + N_EPISODES - 1}; ablation {ABLATION_SEED} to {ABLATION_SEED + N_ABLATION - 1}",
    )


def studies(runner: Runner) -> dict[str, Study]:
    """All evaluations by key; only the requested ones are prepared."""
    makers: dict[str, Callable[[], Study]] = {}
    source = cache(lambda task: str(_generated(runner, task)))
    read = cache(lambda env, task: demos_for(make_environment(env), source(task)))

    def of(env: str, policy: Policy[Any], name: str, demos: str, **size: Any) -> Study:
        return Study.of_policy(env, policy, name, demos, n_episodes=size.pop("n_episodes", N_EPISODES), **size)

    for task in TASKS:
        poses = f"{task}_poses"
        makers[f"{task}_default"] = lambda t=task: of(t, make_policy("default", read(t, t)), "default", source(t))
        for name in ("paper", "1nn", "regression"):
            makers[f"{task}_{name}"] = lambda t=task, e=poses, n=name: of(
                e, make_policy(n, read(e, t), _settings(n, t)), n, source(t)
            )
        makers[f"{task}_neural"] = lambda t=task: of(
            t,
            _network(runner, t, lambda: read(t, t)),
            str(_network_folder(runner, t)),
            source(t),
            n_episodes=N_NEURAL[t],
        )
    for name in ("default", "paper", "1nn", "regression"):
        env = "lift" if name == "default" else "lift_poses"
        makers[f"human_{name}"] = lambda e=env, n=name: Study.make(
            e, HUMAN, n, _settings(n, "lift"), n_episodes=N_EPISODES
        )
    for task in CURVES:
        for size in SIZES[:-1]:
            makers[f"{task}_{size}"] = lambda t=task, n=size: of(
                t, make_policy("default", read(t, t)[:n]), "default", f"{source(t)}, the first {n}"
            )
    makers["pusht_default"] = lambda: Study.make("pusht", "pusht", "default", n_episodes=N_PUSHT)
    small = {"n_episodes": N_ABLATION, "seed": ABLATION_SEED}
    for name, (_, settings) in ABLATIONS.items():
        for task in ABLATED:
            makers[f"ablation_{task}_{name}"] = lambda t=task, s=settings: of(
                t,
                make_policy("default", read(t, t)[:N_ABLATION_DEMOS], s(_frames(t))),
                "default",
                f"{source(t)}, the first {N_ABLATION_DEMOS}",
                **small,
            )
        if name != "hand":  # Push-T has no grasps
            makers[f"ablation_pusht_{name}"] = lambda s=settings: Study.make(
                "pusht", "pusht", "default", s(""), n_episodes=N_ABLATION, seed=ABLATION_SEED
            )
    for task in DISTRACTED:
        env = f"{__name__}:distracted_{task}"
        for name, settings in (("default", ()), ("relevance", ("relevance=false",))):
            makers[f"distracted_{task}_{name}"] = lambda t=task, e=env, s=settings: of(
                e,
                make_policy("default", read(e, t)[:N_DISTRACTED_DEMOS], s),
                "default",
                f"{source(t)}, the first {N_DISTRACTED_DEMOS}",
                **small,
            )
    runner.check_only(makers)
    if not runner.only:
        for task in TASKS:
            if not _can_have_network(runner, task):
                print(f"no network for {task!r} and no GPU to train one on: its row stays empty")
                del makers[f"{task}_neural"]
    return {key: make() for key, make in makers.items() if not runner.only or key in runner.only}


def _settings(policy: str, task: str) -> tuple[str, ...]:
    """The paper's parameters that a policy has."""
    names = {"paper": ("",), "regression": ("bandwidth", "n_"), "1nn": ("n_",)}.get(policy, ())
    return tuple(setting for setting in PAPER_SETTINGS[task] if setting.startswith(names))


def _frames(task: str) -> str:
    """The default frames as an explicit list, which turns off the transfer of grasped objects."""
    bodies = [entry.body for entry in TASKS[task].objects if entry.kind == "position"]
    return ",".join(["world", *(f"{body},{body}.position" for body in bodies)])


def _generated(runner: Runner, task: str) -> Path:
    """The scripted demonstrations of a task, generated if missing."""
    path = runner.work / "demos" / f"{task}.hdf5"
    if not path.exists():
        print(f"generating {N_DEMOS} demonstrations: {path}")
        generate(task, N_DEMOS, path, workers=runner.where)
    return path


def _network_folder(runner: Runner, task: str) -> Path:
    return runner.work / "networks" / task


def _network(runner: Runner, task: str, demos: Callable[[], Demos]) -> Policy[Any]:
    """The network of a task, trained if missing."""
    from closedform.neural.policy import NeuralPolicy

    folder = _network_folder(runner, task)
    if not _can_have_network(runner, task):
        raise LoadError(f"{folder}: expected the network of {task!r}, found none, and no GPU to train it on")
    if not folder.exists():
        train(runner, task, demos())
    return NeuralPolicy.load(folder).to(runner.device)


def _can_have_network(runner: Runner, task: str) -> bool:
    from closedform.device import choose_device

    return _network_folder(runner, task).exists() or choose_device(runner.device) != "cpu"


def train(runner: Runner, task: str, demos: Demos) -> None:
    """Trains the network of a task on the same demonstrations."""
    from closedform.device import choose_device
    from closedform.neural.config import NeuralConfig, TrainingConfig
    from closedform.neural.data import training_data
    from closedform.neural.policy import NeuralPolicy
    from closedform.neural.training import Trainer

    network, training = NeuralConfig(n_action_steps=16, n_execute=8), TrainingConfig(n_steps=TRAINING_STEPS[task])
    data = training_data(demos, network)
    trainer = Trainer(data, network, training, choose_device(runner.device))
    while trainer.step < training.n_steps:
        trainer.run(10_000)
        print(f"{task}: step {trainer.step}, loss {float(trainer.loss):.4f}")
    NeuralPolicy.of(network, trainer.average, data).save(_network_folder(runner, task), precision="half")


def _draw_curves(runner: Runner, rows: dict[str, dict[str, Any]]) -> None:
    """Success against the number of demonstrations."""
    figure, axis = pyplot().subplots(figsize=(6.4, 4.0), layout="constrained")
    points = []
    for task in CURVES:
        found = [rows[f"{task}_{size}" if size < N_DEMOS else f"{task}_default"] for size in SIZES]
        success = [row["success"] for row in found]
        spread = [
            [row["success"] - row["success_low"] for row in found],
            [row["success_high"] - row["success"] for row in found],
        ]
        axis.errorbar(SIZES, success, yerr=spread, marker="o", capsize=3, label=TITLES[task])
        points += [{"task": task, "demonstrations": size, **row} for size, row in zip(SIZES, found, strict=True)]
    axis.set(xscale="log", xticks=SIZES, ylim=(0, 1.03), xlabel="demonstrations", ylabel="success")
    axis.set_xticklabels([str(size) for size in SIZES])
    axis.minorticks_off()
    axis.legend(loc="lower right")
    runner.write_csv("demonstrations", points)
    runner.write_figure("demonstrations", figure)


def _write_page(runner: Runner, results: dict[str, EvaluationResult], rows: dict[str, dict[str, Any]]) -> None:
    benchmark = [[name, *values] for name, values in REPORTED.items()]
    benchmark += [
        [label, *(interval(rows[key], "success") if (key := f"{task}_{policy}") in rows else "" for task in TASKS)]
        for policy, label in POLICIES.items()
    ]
    human = [[POLICIES[name], interval(rows[f"human_{name}"], "success")] for name in list(POLICIES)[:-1]]
    latency = [
        [TITLES[task], *(f"{rows[f'{task}_{policy}'][what]:.2f}" for policy in ("default", "paper") for what in MS)]
        for task in TASKS
    ]
    tasks = [*ABLATED, "pusht"]
    ablation = []
    for name, (label, _) in ABLATIONS.items():
        row = [label]
        for task in tasks:
            key = f"ablation_{task}_{name}"
            row.append(_against(results, rows, key, f"ablation_{task}_default") if key in rows else "")
        ablation.append(row)
    distracted = [
        [label, *(_against(results, rows, f"distracted_{t}_{name}", f"distracted_{t}_default") for t in DISTRACTED)]
        for name, label in (("default", "the default"), ("relevance", "without relevance"))
    ]
    curves = [
        [TITLES[t], *(interval(rows[f"{t}_{n}" if n < N_DEMOS else f"{t}_default"], "success") for n in SIZES)]
        for t in CURVES
    ]
    text = f"""# The robomimic tasks

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. Success over {N_EPISODES}
episodes from seed 100000, with 95% intervals. Rows without "the paper" use {N_DEMOS} demonstrations of a scripted
expert (`closedform generate --task TASK --episodes {N_DEMOS} --seed 0 -o FILE`). They vary in pace, tremor, grasp
points, detours, corrections and pauses as human ones do, but are not human demonstrations, so the two kinds of rows
cannot be compared with each other. The full human datasets can be downloaded (`closedform data get robomimic-can`).

{markdown_table(["success", *TITLES.values()], benchmark)}

The default observes all of Diffusion Policy's keys and has the same parameters for all tasks and for Push-T, where it
scores {interval(rows["pusht_default"], "score")} over {N_PUSHT} episodes from seed 100000, with success
{interval(rows["pusht_default"], "success")}. The rows
with the paper's parameters observe poses and grippers only (`lift_poses` and so on: 16, 16, 16, 45 and 30 numbers; the
paper's 14, 36 and 22 do not decompose into keys) and execute all 24 actions of a chunk, which the paper leaves open.
The network is the paper's transformer, trained on the same demonstrations for 100,000 steps (Lift and Can) or 50,000,
and evaluated on the first 25 of these episodes, except for Lift. At the paper's bandwidths the kernel is so narrow that
one demonstration has all the weight: closed form, kernel regression and 1-NN then behave nearly the same.

## Ten human demonstrations of Lift

10 of the 200 human demonstrations, with actions converted to absolute.

{markdown_table(["10 of 200 demonstrations", "success [95%]"], human)}

## Success against the number of demonstrations

{markdown_table(["success of the default", *(str(size) for size in SIZES)], curves)}

![Success against the number of demonstrations](demonstrations.png)

## What makes the difference

The default with one change, from the first {N_ABLATION_DEMOS} demonstrations of each task, and on all 206 of
Push-T. {N_ABLATION} episodes from seed {ABLATION_SEED}, which were used for development; in brackets the paired
difference to the default. See [the method](../../method.md) for the terms.

{markdown_table(["success", *(TITLES.get(task, "Push-T") for task in tasks)], ablation)}

With {N_DISTRACTIONS} uninformative numbers added to each observation, and the first {N_DISTRACTED_DEMOS}
demonstrations (without these numbers, all relevance weights of these three tasks are one from ten demonstrations on):

{markdown_table(["success", *(TITLES[task] for task in DISTRACTED)], distracted)}

## Planning time

{markdown_table(["ms", "default, p50", "p99", "paper's, p50", "p99"], latency)}

Measured while episodes ran on all other cores. The data of figures and tables are in the CSV files.
"""
    write_file(runner.output / "README.md", text)


def _against(results: dict[str, EvaluationResult], rows: dict[str, dict[str, Any]], key: str, base: str) -> str:
    """Success with its interval for the default, and with the paired difference for the others."""
    if key == base:
        return interval(rows[key], "success")
    difference = compare(results[base], results[key])
    low, high = difference.success_ci95
    return f"{rows[key]['success']:.2f} ({difference.success:+.2f} [{low:+.2f}, {high:+.2f}])"
