"""One plan at the sizes of the paper's other tasks, on synthetic demonstrations: only their sizes matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform import Demos
from contenders import CONTENDERS, N_OBS_STEPS, Task, check_peer
from report import number, table
from timing import Timed, fewer, summarize

if TYPE_CHECKING:
    from closedform.neural.policy import NeuralPolicy

N_EPISODES, N_STEPS = 200, 150
N_NEIGHBORS, N_ACTION_STEPS = 350, 24  # in the paper's table of hyperparameters, for all but Push-T
N_CALLS = {"kernel": 1000, "1-NN": 1000, "direct JAX": 100, "reference": 20, "neural, 100 DDPM steps": 10}


@dataclass(frozen=True)
class Size:
    """The sizes of an observation and an action, and tau and the bandwidth, from the paper's tables."""

    d_o: int
    d_a: int
    tau: float
    bandwidth: float


SIZES = {
    "Lift, Can, Square": Size(14, 7, 0.05, 0.04),  # tau and bandwidth of Can
    "ToolHang": Size(22, 7, 0.005, 0.025),
    "Transport": Size(36, 14, 0.06, 0.03),
}


def smooth_demos(d_o: int, d_a: int) -> Demos:
    """Episodes that differ in start and speed, like those of one task."""
    rng = np.random.default_rng(0)
    times = np.linspace(0, 1, N_STEPS)[:, None]
    places, rates, mix = rng.normal(size=(3, d_o)), rng.uniform(0.5, 2, size=(3, d_o)), rng.normal(size=(d_o, d_a))
    episodes = []
    for _ in range(N_EPISODES):
        start, speed = rng.normal(scale=0.3, size=(3, d_o)), rng.uniform(0.8, 1.2)
        phases = 2 * np.pi * rates * speed * times[:, None] + start
        observations = (places * np.sin(phases)).sum(1) + rng.normal(scale=0.01, size=(N_STEPS, d_o))
        episodes.append((observations, np.tanh(observations @ mix / np.sqrt(d_o))))
    return Demos(episodes)


def random_network(demos: Demos) -> NeuralPolicy:
    """The paper's network at the size of some demonstrations; its time does not depend on its weights."""
    import torch

    from closedform.neural.config import NeuralConfig
    from closedform.neural.data import training_data
    from closedform.neural.policy import NeuralPolicy, make_network

    config = NeuralConfig(n_obs_steps=N_OBS_STEPS, n_action_steps=N_ACTION_STEPS)
    data = training_data(demos, config)
    network = make_network(config, data.features.shape[1], data.chunks.shape[2])
    return NeuralPolicy.of(config, torch.nn.utils.parameters_to_vector(network.parameters()), data)


def measure(quick: bool) -> dict[str, Any]:
    """Latency of the contenders at each size."""
    facts: dict[str, Any] = {"sizes": {}, "ratios": {}}
    for name, size in SIZES.items():
        demos = smooth_demos(size.d_o, size.d_a)
        task = Task.of(
            demos,
            partial(random_network, demos),
            n_neighbors=N_NEIGHBORS,
            n_action_steps=N_ACTION_STEPS,
            n_execute=N_ACTION_STEPS,
            tau=size.tau,
            bandwidth=size.bandwidth,
        )
        check_peer(task)
        timed = {key: Timed(CONTENDERS[key].make(task), fewer(n_calls, quick)) for key, n_calls in N_CALLS.items()}
        rows = summarize(timed, name)
        for key, row in rows.items():
            row["over_kernel"] = row["p50"] / rows["kernel"]["p50"]
            if key not in ("kernel", "1-NN"):
                facts["ratios"][f"{name}: {key} / kernel"] = row["over_kernel"]
        facts["sizes"][name] = {
            "d_o": size.d_o,
            "d_a": size.d_a,
            "n_action_steps": N_ACTION_STEPS,
            "n_neighbors": N_NEIGHBORS,
            "n_windows": task.paper.n_windows,
            "contenders": rows,
        }
    return facts


def report(facts: dict[str, Any]) -> str:
    """The section of the report."""
    first = next(iter(facts["sizes"].values()))
    names = list(first["contenders"])
    rows = []
    for name, size in facts["sizes"].items():
        latency = size["contenders"]
        rows.append(
            [
                f"{name} ({size['d_o']}, {size['d_a']})",
                f"{size['n_windows']:,}",
                f"{number(latency['kernel']['p50'])} / {number(latency['kernel']['p99'])}",
                *(f"{number(latency[key]['p50'])} ({number(latency[key]['over_kernel'])} x)" for key in names[1:]),
            ]
        )
    calls = ", ".join(f"{name} {row['calls']}" for name, row in first["contenders"].items())
    return "\n".join(
        [
            "## The sizes of the paper's other tasks, one plan",
            "",
            f"p50 in ms (times the kernel's); N_a = {first['n_action_steps']}, k = {first['n_neighbors']}, S = 100, "
            "M = 32. Demonstrations are synthetic and smooth, the network's weights random.",
            "",
            table(["task (D_o, D_a)", "windows", "kernel p50 / p99", *names[1:]], rows),
            "",
            f"- Calls: {calls}.",
        ]
    )
