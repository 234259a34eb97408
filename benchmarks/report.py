"""The report of a run: one Markdown file, made from the JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Section(Protocol):
    """A module that measures something; `make bench-check` compares the `ratios` among its facts."""

    def measure(self, quick: bool) -> dict[str, Any]:
        """Measures, with small counts if quick."""
        ...

    def report(self, facts: dict[str, Any]) -> str:
        """The measurements as Markdown."""
        ...


def heading(title: str, results: dict[str, Any], machine: str) -> list[str]:
    """The heading: where the results come from."""
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    seconds = results["seconds"]
    took = sum(seconds.values()) if isinstance(seconds, dict) else seconds
    commit = results["commit"] or "unknown"
    return [
        f"# {title}",
        "",
        f"Made by `{results['command']}` at commit {commit} on {results['date']}, in {took:.0f} s.",
        f"Machine: {machine}, {results['machine']['system']}.",
        f"Versions: {packages}.",
    ]


def markdown(results: dict[str, Any], sections: Mapping[str, Section]) -> str:
    """The whole report of the benchmark on one core."""
    machine = results["machine"]
    cores = f"{machine['processor']}, {machine['cores_used']} of {machine['cores']} cores"
    lines = [
        *heading("Benchmark on one core", results, cores),
        "",
        "Contenders take turns, so that noise on the machine affects all alike: trust ratios more than times.",
        "All numbers are in [cpu.json](cpu.json).",
    ]
    if results["quick"]:
        lines += ["", "**A quick run with few calls of each: a smoke test, not a result.**"]
    for name, facts in results["sections"].items():
        lines += ["", sections[name].report(facts).strip()]
    return "\n".join(lines) + "\n"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def number(value: float | None) -> str:
    """A number with three significant digits, or a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")
