"""Shared by all studies: cached evaluations, CSV tables, and figures with their provenance."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from closedform import provenance
from closedform.errors import ConfigError
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pool import Workers
from closedform.evaluation.processes import Processes
from closedform.evaluation.ray_pool import Ray
from closedform.evaluation.study import Study
from closedform.figures import QUIET, png
from closedform.files import write_file

FIGURES = ("score", "score_low", "score_high", "success", "success_low", "success_high", "plan_p50_ms", "plan_p99_ms")


@dataclass(frozen=True)
class Runner:
    """Runs evaluations, each only once, and writes tables and figures.

    Attributes:
        name: of the study, as in `python -m studies NAME`.
        output: folder for tables and figures.
        work: folder for results files; existing ones are not run again.
        workers: the number of processes; one per core by default.
        device: the device that networks run on.
        only: keys of the evaluations to run, without writing the study; empty for all.
        demos: folder of recorded demonstrations, for studies that record some; by default in the work folder.
        development: whether to run only the development tasks, without writing the study.
        partial: whether to write the study with the episodes that there are, and to run none.
        ray: the cluster that episodes and trials run on; None for processes of this machine.
        commit: of the code, before anything is written.
        commits: of the code that produced the results used.
        machines: that produced them.
    """

    name: str
    output: Path
    work: Path
    workers: int | None = None
    device: str = "auto"
    only: tuple[str, ...] = ()
    demos: Path | None = None
    development: bool = False
    partial: bool = False
    ray: Ray | None = None
    commit: str | None = field(default_factory=provenance.commit)
    commits: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)

    @property
    def command(self) -> str:
        """The command that reproduces the study."""
        return f"python -m studies {self.name}{' --partial' if self.partial else ''}"

    def evaluate(self, key: str, *arguments: Any, **options: Any) -> EvaluationResult:
        """The results of `Study.make(*arguments, **options)`, from the work folder if they exist."""
        return self.run(key, Study.make(*arguments, **options))

    def run(self, key: str, study: Study) -> EvaluationResult:
        """The results of a study, from the work folder if they exist."""
        results = study.run(self.work / f"{key}.json", self.where, name=key)
        self.note_origin(results)
        return results

    def found(self, key: str, least: int) -> EvaluationResult | None:
        """The results in the work folder, also of a part of a study; None if they have fewer episodes than `least`."""
        path = self.work / f"{key}.json"
        results = EvaluationResult.load(path) if path.exists() else None
        if results is None or len(results.episodes) < least:
            return None
        self.note_origin(results)
        return results

    def note_origin(self, results: EvaluationResult) -> None:
        """Records the origin of results that are used."""
        self.commits.add(str(results.origin.commit))
        self.machines.add(", ".join(str(value) for value in results.origin.machine.values()))

    def run_all(self, studies: dict[str, Study]) -> dict[str, EvaluationResult]:
        """The results of all studies by key; empty if only some were requested."""
        self.check_only(studies)
        results = {key: self.run(key, study) for key, study in studies.items() if not self.only or key in self.only}
        return {} if self.only else results

    def check_only(self, keys: Iterable[str]) -> None:
        """Refuses unknown keys in `only`."""
        unknown = set(self.only) - set(keys)
        if unknown:
            raise ConfigError(f"unknown evaluation {min(unknown)!r}: expected some of {', '.join(keys)}")

    @property
    def where(self) -> Workers:
        """Where episodes and trials run."""
        return self.ray or Processes(self.workers)

    @property
    def n_workers(self) -> int:
        """The number of processes; one per core by default."""
        return self.workers or provenance.n_cores()

    def write_csv(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        """Writes a table."""
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_file(self.output / f"{name}.csv", table.getvalue())

    def write_figure(self, name: str, figure: Any) -> None:
        """Writes a figure with the command that made it underneath."""
        note = f"{self.command} · data: {name}.csv · commit {', '.join(sorted(self.commits)) or 'unknown'}"
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=QUIET)
        write_file(self.output / f"{name}.png", png(figure))

    def write_origin(self, **facts: Any) -> None:
        """Writes the provenance of the study."""
        here = ", ".join(str(value) for value in provenance.machine().values())
        origin = {
            "command": self.command,
            "commits": sorted(self.commits or {str(self.commit)}),  # of studies that run episodes themselves
            "evaluated_on": sorted(self.machines or {here}),
            "date": provenance.now(),
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            **facts,
        }
        write_file(self.output / "origin.json", json.dumps(origin, indent=2) + "\n")


def figures_of(results: EvaluationResult) -> dict[str, Any]:
    """The numbers of a table row."""
    means = [value for of in (results.score, results.success) for value in (of.mean, of.low, of.high)]
    values = (*means, results.latency_p50_ms, results.latency_p99_ms)
    rounded = {name: round(value, 4) for name, value in zip(FIGURES, values, strict=True)}
    return {**rounded, "episodes": len(results.episodes), "seed": results.subject.seed}


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a README."""
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def interval(row: dict[str, Any], what: str) -> str:
    """A number of a table row with its 95% interval."""
    return f"{row[what]:.3f} [{row[f'{what}_low']:.3f}, {row[f'{what}_high']:.3f}]"
