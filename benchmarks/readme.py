"""The README's speed table, made from docs/results/bench: `python benchmarks/readme.py` writes it."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from report import number, table

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/bench"
BEGIN, END = "<!-- made by benchmarks/readme.py -->\n", "<!-- end -->\n"


def block(cpu: dict[str, Any], gpu: dict[str, Any]) -> str:
    """The part of the README between the two markers."""
    push_t, large = cpu["sections"]["push_t"], cpu["sections"]["large"]
    rows, before = push_t["contenders"], push_t["before_the_first_plan"]
    on_gpu, rate, neural = gpu["milliseconds"], gpu["plans_per_second"], gpu["one_plan_neural_ms"]
    ours, jax = "closedform, preset paper", "direct JAX, vmap and jit"

    def line(title: str, name: str, gpu_ms: float | None, per_second: float | None) -> list[str]:
        row = rows[name]
        times = "1" if name == "kernel" else f"{number(row['over_kernel'])} times slower"
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
        "",
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


def updated(readme: str, cpu: dict[str, Any], gpu: dict[str, Any]) -> str:
    """The README with that part made from the results."""
    before, rest = readme.split(BEGIN)
    return before + BEGIN + block(cpu, gpu) + END + rest.split(END, 1)[1]


def main() -> None:
    """Writes README.md."""
    cpu, gpu = (json.loads((RESULTS / name).read_text(encoding="utf-8")) for name in ("cpu.json", "gpu.json"))
    path = ROOT / "README.md"
    path.write_text(updated(path.read_text(encoding="utf-8"), cpu, gpu), encoding="utf-8")


if __name__ == "__main__":
    main()
