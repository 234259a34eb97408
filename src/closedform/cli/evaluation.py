"""Commands that run policies: `eval`, `compare` and `report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from closedform import streams
from closedform.cli.policy import Choosing, EnvName, OptionalEnvName
from closedform.cli.working import Working
from closedform.demos.options import ChoosingLayouts, OptionalDemosName, Output, print_inferred, progress_bar
from closedform.device import limit_threads
from closedform.errors import ConfigError
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Eval(Choosing, ChoosingLayouts, Working):
    """Evaluate a policy in an environment."""

    env: EnvName = "pusht"
    """The environment: pusht, pusht_pixels (from pictures), lift, can, square, transport, tool_hang, one of the last
    five with the suffix _poses (the paper's smaller observations), twin (Push-T with a simulated arm and camera;
    twin_truth without the camera; both, like pusht_pixels, with settings, as in twin:latency=0.1), metaworld:TASK,
    gym:ID of gymnasium (docs/gymnasium.md), one registered by an installed package, or package.module:function."""
    demos: OptionalDemosName = None
    """The demonstrations: a path, or the name of a dataset (`closedform data list`); not needed for a saved policy."""
    episodes: int = 50
    """Number of episodes."""
    seed: int = 100000
    """Seed of the first episode, counted up for the others. Published results use seeds from 100000."""
    json: Annotated[Path | None, arg(metavar="RESULTS")] = None
    """Write all results to this file; an interrupted evaluation resumes from it."""
    overwrite: bool = False
    """Replace the results that the file has, of this evaluation or of another."""
    video: int = 0
    """Number of episodes to make videos of, spread from the worst to the best."""
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    """Device of the policy's network, if it has one: cpu, cuda, or auto (cuda if available)."""

    def run(self) -> None:
        """Evaluates, prints the results and writes the requested files."""
        from closedform.evaluation.environment import can_render
        from closedform.evaluation.study import Study
        from closedform.evaluation.video import film, require_av

        if self.video < 0:
            raise ConfigError(f"video: expected 0 or more, found {self.video}")
        where = self.where
        if self.json:
            check_writable(self.json)
        study = Study.make(
            self.env,
            self.demos,
            self.policy,
            self.settings,
            seed=self.seed,
            n_episodes=self.episodes,
            device=self.device,
            layout=self.layout,
        )
        print_inferred(study.inferred)
        limit_threads(1)
        if self.video:  # fails now rather than after an hour
            require_av()
            with study.environments.borrow() as (environment,):
                shown = can_render(environment, self.env)
                environment.reset(self.seed)
                shown.render()
        results = study.run(self.json, where, overwrite=self.overwrite)
        print_results([results], [self.policy])
        for note in results.notes:
            streams.complain(f"note: {note}")
        if self.json:
            print(f"results: {self.json}")
        if self.video:
            folder = self.json.with_name(f"{self.json.stem}-videos") if self.json else Path("videos")
            for path in film(study, results.episodes, self.video, folder):
                print(f"video: {path}")


@dataclass(frozen=True)
class Compare:
    """Compare evaluations with the first one, paired by episode."""

    results: Positional[Annotated[tuple[Path, ...], arg(metavar="RESULTS")]]
    """Two or more results files written by `eval --json`."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Prints the differences with their intervals, and the episodes that differ most."""
        if len(self.results) < 2:
            raise ConfigError(f"expected two or more results files to compare, found {len(self.results)}")
        all_results = [EvaluationResult.load(path) for path in self.results]
        comparisons = [compare(all_results[0], other) for other in all_results[1:]]
        if self.json:
            rows = [
                {"first": str(self.results[0]), "second": str(path), **asdict(comparison)}
                for path, comparison in zip(self.results[1:], comparisons, strict=True)
            ]
            print(json.dumps(rows, indent=2))
            return
        print_results(all_results, [path.stem for path in self.results])
        for path, c in zip(self.results[1:], comparisons, strict=True):
            print(f"\n{path.stem} against {self.results[0].stem}, {c.n} episodes with the same seeds")
            print(f"  score    {c.score:+.3f}  [{c.score_ci95[0]:+.3f}, {c.score_ci95[1]:+.3f}]")
            print(f"  success  {c.success:+.3f}  [{c.success_ci95[0]:+.3f}, {c.success_ci95[1]:+.3f}]")
            print(f"  better in {c.wins}, equal in {c.ties}, worse in {c.losses}")
            for name, sign in (("gains", 1), ("losses", -1)):
                most = [f"{seed} ({d:+.2f})" for seed, d in c.differences if d * sign >= 0.005][:5]
                if most:
                    print(f"  largest {name} at seeds {', '.join(most)}")


@dataclass(frozen=True)
class Report:
    """Write a page on evaluations: rollouts that move, the demonstrations behind them, results and failures."""

    results: Positional[Annotated[tuple[Path, ...], arg(metavar="RESULTS")]]
    """Results files written by `eval --json`."""
    output: Output = Path("report.html")
    """The HTML file to write."""
    env: OptionalEnvName = None
    """The environment, required if it is package.module:function: code named only by a results file is not run."""

    def run(self) -> None:
        """Writes the page."""
        from closedform.analysis.report import write_report

        if not self.results:
            raise ConfigError("expected one or more results files, found none")
        all_results = {path.stem: EvaluationResult.load(path) for path in self.results}
        if len(all_results) < len(self.results):
            raise ConfigError("expected results files with different names, found the same name twice")
        named = sorted({results.subject.env for results in all_results.values()})
        if self.env is not None and self.env not in named:
            raise ConfigError(
                f"env: expected the environment of a results file, {' or '.join(named)}, found {self.env!r}"
            )
        with progress_bar() as say:
            write_report(all_results, self.output, env=self.env, progress=say)
        print(f"report: {self.output}")


def print_results(all_results: Sequence[EvaluationResult], names: Sequence[str]) -> None:
    """Prints a table of results, one line each."""
    rows = [("", "score", "success", "plan, ms", "episodes")]
    for name, results in zip(names, all_results, strict=True):
        n, together = len(results.episodes), results.origin.n_together  # plans that took this time, all at once
        rows.append(
            (
                name,
                str(results.score),
                str(results.success),
                f"{results.latency_p50_ms:.2f}, p99 {results.latency_p99_ms:.2f}"
                + (f" for {together} at once" if together > 1 else ""),
                str(n) if results.complete else f"{n} of {results.subject.n_episodes}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
