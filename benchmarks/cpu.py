"""The benchmark on one core, everything in one run: `make bench`.

Each section is a module that measures something and reports it; its measurements are under its name in cpu.json.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import argparse
import json
import time
from pathlib import Path
from typing import Any

import costs
import large
import push_t
import realtime
import sizes
from closedform import kernels, provenance
from report import Section, markdown

SECTIONS: dict[str, Section] = {
    "push_t": push_t,
    "sizes": sizes,
    "costs": costs,
    "large": large,
    "realtime": realtime,
}
KERNELS = Path(kernels.__file__).parent
RESULTS, TRIALS = Path("docs/results/bench"), Path("outputs/bench")


def main() -> None:
    """Measures, and writes cpu.json, cpu.md and the figures of the sections."""
    parser = argparse.ArgumentParser(description="Runs all benchmarks on one core.")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="the sections to run, separated by commas")
    parser.add_argument("--quick", action="store_true", help="small counts: a smoke test")
    parser.add_argument("--output", type=Path, help=f"folder; {RESULTS} for a full run of all sections, else {TRIALS}")
    arguments = parser.parse_args()
    names = arguments.sections.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {unknown[0]!r}: expected some of {', '.join(SECTIONS)}")
    full = not arguments.quick and set(names) == set(SECTIONS)
    output = arguments.output or (RESULTS if full else TRIALS)

    results: dict[str, Any] = {
        "command": "make bench" if full else provenance.command(),
        "commit": provenance.commit(),
        "date": provenance.now(),
        "quick": arguments.quick,
        "machine": {**provenance.machine(), "cores_used": 1},
        "versions": provenance.versions(),
        "seconds": {},
        "sections": {},
    }
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    drop_outdated_code()
    for name in names:
        start = time.perf_counter()
        results["sections"][name] = SECTIONS[name].measure(arguments.quick)
        results["seconds"][name] = time.perf_counter() - start
    output.mkdir(parents=True, exist_ok=True)
    if "costs" in names:
        costs.draw(results, output / "costs.png")
    text = markdown(results, SECTIONS)
    (output / "cpu.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (output / "cpu.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {output}")


def drop_outdated_code() -> None:
    """Drops compiled kernels older than any kernel's source; numba checks only the file of the function itself."""
    newest = max(path.stat().st_mtime for path in KERNELS.glob("*.py"))
    for path in KERNELS.glob("__pycache__/*.nb[ic]"):
        if path.stat().st_mtime < newest:
            path.unlink()


if __name__ == "__main__":
    main()
