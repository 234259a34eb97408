"""Real-time behavior: plans under load, with a deadline, and while episodes are added; memory growth.

`make soak` checks memory for longer.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from typing import Any

import numpy as np

import soak
from closedform import ClosedFormPolicy, Demos, load_demos
from contenders import N_HELD_OUT
from report import number, table
from timing import fewer, quantiles

N_PLANS, N_SOAKED = 10_000, 100_000
DEADLINE_MS = 2.0


def measure(quick: bool) -> dict[str, Any]:
    """Everything on Push-T."""
    demos = load_demos("pusht")
    observations = np.concatenate([episode.observations for episode in demos[-N_HELD_OUT:]])
    np.random.default_rng(0).shuffle(observations)
    presets: dict[str, dict[str, Any]] = {
        "paper": {},
        "default": {},
        "default, deadline of 2 ms": {"deadline": DEADLINE_MS / 1e3},
    }
    policies = {
        name: ClosedFormPolicy(demos[:-N_HELD_OUT], name.split(",")[0], **parameters)
        for name, parameters in presets.items()
    }
    agents = {name: policy.agent(seed=0) for name, policy in policies.items()}
    n_plans = fewer(N_PLANS, quick)
    idle = {name: _latencies(agent, observations, n_plans) for name, agent in agents.items()}
    adding = {}
    for name, agent in agents.items():
        with Adding(policies[name], demos[-N_HELD_OUT:]) as added:
            adding[name] = _latencies(agent, observations, n_plans)
        adding[name]["changes"] = added.n_changes
    with Load() as load:
        loaded = {name: _latencies(agent, observations, n_plans) for name, agent in agents.items()}
    return {
        "load": f"{load.n_processes} other processes, one busy on each core",
        "idle": idle,
        "adding": adding,
        "loaded": loaded,
        "growth": soak.measure(fewer(N_SOAKED, quick)),
        "ratios": {},
    }


class Adding:
    """Adds and removes episodes of a policy in a thread while the context is active."""

    def __init__(self, policy: ClosedFormPolicy, episodes: Demos):
        self._policy, self._episodes = policy, episodes
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run)
        self.n_changes = 0

    def __enter__(self) -> Adding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            episode_id = self._policy.add(self._episodes[self.n_changes % len(self._episodes)])
            self._policy.remove(episode_id)
            self.n_changes += 1


class Load:
    """Keeps every core busy with another process while the context is active."""

    def __enter__(self) -> Load:
        self.n_processes = os.cpu_count() or 1
        context = multiprocessing.get_context("spawn")
        self._processes = [context.Process(target=_burn, args=(core,), daemon=True) for core in range(self.n_processes)]
        for process in self._processes:
            process.start()
        time.sleep(1.0)  # until all are running
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _burn(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    value = 0
    while True:
        value += 1


def _latencies(agent: Any, observations: np.ndarray, n_plans: int) -> dict[str, Any]:
    """The latencies of an agent's consecutive plans, with a new episode now and then."""
    times, incomplete = [], 0
    deadline = agent.policy.config.deadline
    for i in range(n_plans):
        if i % 75 == 0:
            agent.reset()
        start = time.perf_counter()
        plan = agent.plan(observations[i % len(observations)])
        times.append(time.perf_counter() - start)
        incomplete += not plan.complete
    late = None if deadline is None else float(np.mean(np.array(times) > deadline))
    return {**quantiles(times), "p99.9": 1e3 * float(np.quantile(times, 0.999)), "incomplete": incomplete, "late": late}


def report(facts: dict[str, Any]) -> str:
    """The section of the report."""
    rows = []
    for name in facts["idle"]:
        for what in ("idle", "adding", "loaded"):
            row = facts[what][name]
            cells = [number(row[key]) for key in ("p50", "p99", "p99.9", "worst")]
            late = "" if row["late"] is None else f"{row['late']:.2%}"
            rows.append([f"{name}, {what}", *cells, f"{row['calls']:,}", str(row["incomplete"]), late])
    growth = facts["growth"]
    grown = (growth["late_mb"] or 0.0) - (growth["early_mb"] or 0.0)
    return "\n".join(
        [
            "## Real-time behavior",
            "",
            "An agent's plans on Push-T: alone, while another thread adds and removes episodes without a pause, and",
            f"under load ({facts['load']}).",
            "",
            table(["", "p50 ms", "p99 ms", "p99.9 ms", "worst ms", "plans", "stopped early", "late"], rows),
            "",
            "Under load the system gives the core to the other process for milliseconds at a time, which no program",
            "can prevent itself: the p50 is the plan, the worst is the system's time slice. A control loop that must",
            "never be late needs a core of its own, or a real-time priority.",
            "",
            f"- {growth['plans']:,} plans of one agent: {number(growth['early_mb'])} MB after the first hundredth, "
            f"{number(growth['late_mb'])} MB after the last ({grown:+.2f} MB), {growth['early_objects']:,} and "
            f"{growth['late_objects']:,} Python objects. [A million](soak.md) of them: `make soak`.",
        ]
    )
