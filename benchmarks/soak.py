"""Memory growth over a million plans of one agent: `make soak`, which takes about eight minutes."""

from __future__ import annotations

import argparse
import gc
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from closedform import ClosedFormPolicy, load_demos, provenance
from contenders import N_HELD_OUT
from fresh import resident_mb
from report import heading, number

N_PLANS = 1_000_000
PARAMETERS = {"loop_memory": 1.0, "n_diffusion_steps": 10, "n_neighbors": 200}  # the same code, faster


def main() -> None:
    """Plans, and writes soak.json and soak.md."""
    parser = argparse.ArgumentParser(description="A million plans of one agent.")
    parser.add_argument("--plans", type=int, default=N_PLANS, help="how many")
    parser.add_argument("--output", type=Path, default=Path("docs/results/bench"), help="folder")
    arguments = parser.parse_args()
    start = time.perf_counter()
    results: dict[str, Any] = {
        "command": "make soak" if arguments.plans == N_PLANS else provenance.command(),
        "commit": provenance.commit(),
        "date": provenance.now(),
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        **measure(arguments.plans),
    }
    results["seconds"] = time.perf_counter() - start
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = report(results)
    (arguments.output / "soak.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (arguments.output / "soak.md").write_text(text, encoding="utf-8")
    print(text)


def measure(n_plans: int) -> dict[str, Any]:
    """Resident memory and Python objects after a hundredth of the plans and after all of them."""
    demos = load_demos("pusht")
    observations = np.concatenate([episode.observations for episode in demos[-N_HELD_OUT:]])
    agent = ClosedFormPolicy(demos[:-N_HELD_OUT], "paper", **PARAMETERS).agent(seed=0)
    facts: dict[str, Any] = {"plans": n_plans, "parameters": PARAMETERS}
    for i in tqdm(range(n_plans), desc="plans", leave=False):
        agent.plan(observations[i % len(observations)])
        if i + 1 in (n_plans // 100, n_plans):
            gc.collect()
            when = "early" if i + 1 < n_plans else "late"
            facts |= {f"{when}_mb": resident_mb("VmRSS"), f"{when}_objects": len(gc.get_objects())}
    return facts


def report(results: dict[str, Any]) -> str:
    """The report."""
    chosen = ", ".join(f"{name} = {value}" for name, value in results["parameters"].items())
    grown = (results["late_mb"] or 0.0) - (results["early_mb"] or 0.0)
    lines = [
        *heading("A million plans", results, results["machine"]["processor"]),
        "",
        f"{results['plans']:,} plans of one agent on Push-T ({chosen}), without a new episode.",
        "",
        f"- Resident memory: {number(results['early_mb'])} MB after the first hundredth, "
        f"{number(results['late_mb'])} MB after the last ({grown:+.2f} MB).",
        f"- Python objects: {results['early_objects']:,} and {results['late_objects']:,}.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
