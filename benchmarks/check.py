"""Compares what does not depend on the machine of a quick run with the committed one: `make bench-check`.

That is what a plan takes: exponentials, and bytes that are read. Ratios of times do depend on the machine: with the
same code, two of the same name differed by a factor of two. They fail only where they are worse than on every machine
so far, by more than a tolerance; all of them are in docs/results/bench/runs.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASELINE = Path("docs/results/bench/cpu.json")
RUNS = Path("docs/results/bench/runs.json")
TOLERANCE = 1.5
COUNTS = ("search_bytes", "exponentials_computed", "exponentials_needed")  # of a plan, in the section of costs


@dataclass(frozen=True)
class Comparison:
    """A ratio before and now; None if it was not measured."""

    name: str
    before: float | None
    now: float | None

    @property
    def worse(self) -> float | None:
        """How many times worse it is now."""
        return self.before / self.now if self.before and self.now else None

    @property
    def regressed(self) -> bool:
        """Whether that exceeds the tolerance."""
        return self.worse is not None and self.worse > TOLERANCE

    def __str__(self) -> str:
        before, now, worse = (
            "not measured" if value is None else f"{value:.3g}" for value in (self.before, self.now, self.worse)
        )
        return f"{self.name:62}{before:>14}{now:>14}{worse if self.worse else '':>14}"


def compare(baseline: dict[str, Any], fresh: dict[str, Any], runs: Sequence[dict[str, Any]] = ()) -> list[Comparison]:
    """All that two runs have of plans per count and of ratios; of ratios before, the worst on any machine."""
    before, now = ratios_of(baseline), ratios_of(fresh)
    for run in runs:
        for name in before.keys() & run["ratios"].keys():
            before[name] = min(before[name], run["ratios"][name])
    before, now = counts_of(baseline) | before, counts_of(fresh) | now
    return [Comparison(name, before.get(name), now.get(name)) for name in dict.fromkeys([*before, *now])]


def ratios_of(results: dict[str, Any]) -> dict[str, float]:
    """The ratios of all sections of a run."""
    sections = results.get("sections", {"gpu": results})
    return {
        f"{section}: {name}": ratio
        for section, facts in sections.items()
        for name, ratio in facts.get("ratios", {}).items()
    }


def counts_of(results: dict[str, Any]) -> dict[str, float]:
    """How many plans there are for one of each count: more is better, as for ratios."""
    plan = results.get("sections", {}).get("costs", {}).get("plan", {})
    return {f"costs: plans per {name}": 1 / plan[name] for name in COUNTS if plan.get(name)}


def quick_run() -> dict[str, Any]:
    """The results of a quick run of all sections."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(__file__).with_name("cpu.py")
        subprocess.run([sys.executable, script, "--quick", "--output", folder], check=True, stdout=subprocess.DEVNULL)
        return json.loads((Path(folder) / "cpu.json").read_text(encoding="utf-8"))


def main() -> None:
    """Prints all ratios, and fails with a line for each that is worse by more than the tolerance."""
    parser = argparse.ArgumentParser(description="Compares a quick run with what is committed.")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="cpu.json or gpu.json to compare with")
    parser.add_argument("--fresh", type=Path, help="the same file of an existing run, instead of a new run")
    arguments = parser.parse_args()
    baseline = json.loads(arguments.baseline.read_text(encoding="utf-8"))
    fresh = json.loads(arguments.fresh.read_text(encoding="utf-8")) if arguments.fresh else quick_run()
    runs = json.loads(RUNS.read_text(encoding="utf-8")) if arguments.baseline == BASELINE else []
    comparisons = compare(baseline, fresh, runs)
    print(f"{'more is better':62}{'before':>14}{'now':>14}{'times worse':>14}")
    print("\n".join(map(str, comparisons)))
    if not any(comparison.worse for comparison in comparisons):
        sys.exit("nothing is in both runs: nothing was checked")
    regressed = [comparison for comparison in comparisons if comparison.regressed]
    for comparison in regressed:
        print(
            f"REGRESSION {comparison.name}: {comparison.before:.3g} before, {comparison.now:.3g} now, "
            f"{comparison.worse:.2f} times worse; allowed is {TOLERANCE}",
            file=sys.stderr,
        )
    if regressed:
        sys.exit(1)
    print(f"nothing is more than {TOLERANCE} times worse")


if __name__ == "__main__":
    main()
