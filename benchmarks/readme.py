"""What the README and docs/speed.md say of speed: `python benchmarks/readme.py` writes it from docs/results/bench.

Ratios are ranges over the machines in runs.json, to which a new run of `make bench` is added: a ratio of one machine is
no property of ours.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from report import number, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/bench"
NAMES = ("cpu", "gpu", "runs")
BEGIN, END = "<!-- made by benchmarks/readme.py -->\n", "<!-- end -->\n"


def spread(runs: list[dict[str, Any]], contender: str) -> str:
    """How many times slower than the kernel a contender is, over all machines."""
    found = [run["ratios"].get(f"push_t: {contender} / kernel") for run in runs]
    low, high = (number(end([ratio for ratio in found if ratio is not None])) for end in (min, max))
    return low if low == high else f"{low} to {high}"


def sentence(runs: list[dict[str, Any]]) -> str:
    """What the README says."""
    times = [run["kernel_ms"] for run in runs if "kernel_ms" in run]
    text = (
        f"One plan with the paper's parameters takes {number(min(times))} to {number(max(times))} ms on one core. Over "
        f"the {len(runs)} machines measured, the same in JAX takes {spread(runs, 'direct JAX')} times as long, and "
        f"a neural policy of 100 steps {spread(runs, 'neural, 100 DDPM steps')} times ([speed](docs/speed.md))."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def block(cpu: dict[str, Any], gpu: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """The table of docs/speed.md."""
    push_t, large = cpu["sections"]["push_t"], cpu["sections"]["large"]
    rows, before = push_t["contenders"], push_t["before_the_first_plan"]
    on_gpu, rate, neural = gpu["milliseconds"], gpu["plans_per_second"], gpu["one_plan_neural_ms"]
    ours, jax = "closedform, preset paper", "direct JAX, vmap and jit"

    def line(title: str, name: str, gpu_ms: float | None, per_second: float | None) -> list[str]:
        row = rows[name]
        times = "1" if name == "kernel" else f"{spread(runs, name)} times as long"
        return [
            title,
            f"{number(row['p50'])} ms",
            times,
            *(number(v) + u for v, u in ((gpu_ms, " ms"), (per_second, "")) if v),
        ]

    cells = [
        line("**closedform**, the paper's parameters", "kernel", on_gpu[ours]["1"], rate[ours]["4096"]),
        line("the same in JAX, written directly", "direct JAX", on_gpu[jax]["1"], rate[jax]["4096"]),
        line("neural policy, 10 DDIM steps", "neural, 10 DDIM steps", neural["10 DDIM steps"], None),
        line("neural policy, 100 DDPM steps", "neural, 100 DDPM steps", neural["100 DDPM steps"], None),
    ]
    cells = [[*row, *[""] * (5 - len(row))] for row in cells]
    head = [
        "one plan on Push-T",
        f"one core ({cpu['machine']['processor']})",
        f"over {len(runs)} machines",
        gpu["machine"]["gpu"],
        "plans per second, batches of 4,096",
    ]
    sizes = large["sizes"]
    most = max(map(int, sizes))
    found, training = sizes[str(most)]["faiss"], before["neural_training"]
    summary = (
        f"Building a policy from Push-T takes {number(before['build_ms'])} ms ({number(before['build_default_ms'])} ms "
        f"with the default parameters); the network takes {training['n_steps']:,} training steps of "
        f"{number(1e3 * training['step_on_this_core_s'])} ms each on that core. With {most:,} windows memory-mapped "
        f"from disk, a plan takes {number(found['p50_ms'])} ms, and a new process makes its first plan after "
        f"{number(found['first_plan_s'])} s."
    )
    return "\n".join(
        [
            table(head, cells),
            "",
            textwrap.fill(summary, 120),
            "",
        ]
    )


def updated(page: str, made: str) -> str:
    """A page with the part between the markers replaced."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + made + END + rest.split(END, 1)[1]


def with_run(runs: list[dict[str, Any]], cpu: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs with that of cpu.json, which may be among them."""
    if any(run.get("date") == cpu["date"] for run in runs):
        return runs
    ratios = {
        f"{section}: {name}": round(ratio, 3)
        for section, facts in cpu["sections"].items()
        for name, ratio in facts.get("ratios", {}).items()
    }
    kernel_ms = round(cpu["sections"]["push_t"]["contenders"]["kernel"]["p50"], 3)
    machine = cpu["machine"]["processor"]
    new = {"commit": cpu["commit"], "date": cpu["date"], "processor": machine, "kernel_ms": kernel_ms, "ratios": ratios}
    return [*runs, new]


def pages(cpu: dict[str, Any], gpu: dict[str, Any], runs: list[dict[str, Any]]) -> dict[Path, str]:
    """The pages with what is made from the results."""
    made = {ROOT / "README.md": sentence(runs), ROOT / "docs" / "speed.md": block(cpu, gpu, runs)}
    return {path: updated(path.read_text(encoding="utf-8"), text) for path, text in made.items()}


def main() -> None:
    """Writes runs.json, README.md and docs/speed.md."""
    cpu, gpu, runs = (json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES)
    runs = with_run(runs, cpu)
    (RESULTS / "runs.json").write_text(json.dumps(runs, indent=2) + "\n", encoding="utf-8")
    for path, text in pages(cpu, gpu, runs).items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
