"""The fuzzing command: `python -m fuzz --help`, or `make fuzz`."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from tqdm import tqdm

import closedform
from fuzz.harness import Worker
from fuzz.worker import Outcome

ROOT = Path(__file__).parents[1]
WORK = ROOT / "outputs" / "fuzz"
TARGETS = {
    "formats": "fuzz.formats:Formats",
    "policies": "fuzz.policies:Policies",
    "configs": "fuzz.configs:Configs",
    "observations": "fuzz.observations:Observations",
    "command_lines": "fuzz.command_lines:CommandLines",
    "results": "fuzz.results:Results",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzzes for a while and prints failures; the exit status is 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Searches for inputs that break closedform.")
    parser.add_argument("--seconds", type=float, default=60, help="how long, after warming up (60)")
    parser.add_argument("--seed", type=int, help="of the first case of each target; drawn if not given")
    parser.add_argument("--only", default=",".join(TARGETS), help="targets, separated by commas")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--json", type=Path, help="write failures to this file")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "SEED"), help="run one case again and show it")
    options = parser.parse_args(arguments)
    names = [options.replay[0]] if options.replay else options.only.split(",")
    for name in names:
        if name not in TARGETS:
            parser.error(f"expected targets of {', '.join(TARGETS)}, found {name!r}")
    prepare()
    targets, folder = {name: TARGETS[name] for name in names}, WORK / f"run-{os.getpid()}"
    if options.replay:
        return _replay(targets, folder, options.replay[0], int(options.replay[1]))
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}; warming up, which compiles the first time", flush=True)
    workers: list[Worker] = []
    found: dict[tuple[str, ...], list[Outcome]] = {}
    counts = {name: Counter[str]() for name in names}
    try:
        for number in range(options.workers):  # one after the other: the first compiles for all
            workers.append(Worker(targets, folder / str(number)))
        for outcome in fuzz(workers, names, options.seconds, seed):
            counts[outcome.target][outcome.kind] += 1
            if outcome.failed:
                found.setdefault(outcome.cause, []).append(outcome)
                if len(found[outcome.cause]) == 1:
                    tqdm.write(describe(outcome))
    finally:
        for worker in workers:
            worker.close()
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        rows = [{**vars(outcomes[0]), "times": len(outcomes)} for outcomes in found.values()]
        facts = {"seed": seed, "targets": counts, "failures": rows}
        options.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    for name, kinds in counts.items():
        failures = kinds.total() - kinds["ok"] - kinds["refused"]
        causes = sum(cause[0] == name for cause in found)
        print(
            f"{name:14}{kinds.total():6} cases {kinds['ok']:6} ok {kinds['refused']:6} refused {failures:6} failures"
            + (f" of {causes} causes" if causes else "")
        )
    return 1 if found else 0


def prepare() -> None:
    """Makes numba compile kernels with bounds checks, into a separate cache."""
    kernels = Path(closedform.__file__).parent / "kernels"
    sources = zlib.crc32(b"".join(path.read_bytes() for path in sorted(kernels.glob("*.py"))))
    cache = WORK / "numba" / f"{sources:08x}"  # numba does not detect changes in functions that a function calls
    for old in set(cache.parent.glob("*")) - {cache}:
        shutil.rmtree(old)
    os.environ |= {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache), "MPLCONFIGDIR": str(WORK / "matplotlib")}
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning:multiprocessing.resource_tracker"  # of processes that crashed
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


def fuzz(workers: Sequence[Worker], names: Sequence[str], seconds: float, seed: int) -> Iterator[Outcome]:
    """Runs at least one case, and more for some seconds, shared equally by targets; seeds count up from the first."""
    spent, drawn = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    idle, busy, suspects = list(workers), {}, []
    began = time.monotonic()
    with tqdm(total=round(seconds), bar_format="{desc} {bar} {n}/{total} s", leave=False, disable=None) as bar:
        while True:
            elapsed = time.monotonic() - began
            bar.n = min(round(elapsed), bar.total)
            bar.set_description_str(f"{sum(drawn.values())} cases")
            while idle and not suspects and (elapsed < seconds or not any(drawn.values())):
                name = min(names, key=lambda name: spent[name])
                worker = idle.pop()
                worker.begin(name, seed + drawn[name])
                busy[worker.connection] = worker
                drawn[name] += 1
                spent[name] += 0.01  # so that workers do not all choose the same
            if suspects and not busy:  # a slow case may be due to a busy machine: run it again, alone
                slow = suspects.pop()
                yield workers[0].run(slow.target, slow.seed, slow.case)
                continue
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # pyright: ignore[reportArgumentType]
                outcome = worker.result()
                if outcome is None:
                    continue
                del busy[connection]  # pyright: ignore[reportArgumentType]
                idle.append(worker)
                spent[outcome.target] += outcome.seconds
                if outcome.kind == "hang":
                    suspects.append(outcome)
                else:
                    yield outcome


def describe(outcome: Outcome) -> str:
    """A failure as text: what, where, how to replay it, and how to keep it."""
    return (
        f"{outcome.target} {outcome.seed}: {outcome.kind}: {outcome.detail}\n"
        f"  at {outcome.where or 'an unknown location'}\n"
        f"  replay: python -m fuzz --replay {outcome.target} {outcome.seed}\n"
        f"  corpus: {outcome.corpus_line()}"
    )


def _replay(targets: dict[str, str], folder: Path, name: str, seed: int) -> int:
    worker = Worker(targets, folder)
    try:
        outcome = worker.run(name, seed)
    finally:
        worker.close()
    print(describe(outcome) if outcome.failed else f"{name} {seed}: {outcome.kind} {outcome.detail}".rstrip())
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
