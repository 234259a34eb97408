"""Sweep: many configurations on the same episodes, of which those that are clearly worse are stopped early."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from closedform.errors import ConfigError
from closedform.evaluation.comparison import Comparison, compare
from closedform.evaluation.elimination import Eliminated, Elimination
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.episodes_job import EpisodesJob
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pool import Pool, Task, Workers
from closedform.evaluation.processes import as_workers
from closedform.evaluation.study import Study
from closedform.files import check_writable
from closedform.progress import progress_bar

SAVE_EVERY = 10.0  # seconds between saves of partial results
By = Literal["score", "success"]


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep.

    Attributes:
        configurations: the parameters of each.
        results: of each; incomplete for those that were eliminated.
        eliminated: those that were clearly worse than another, in order.
        best: the index of the best of those that are left.
        by: what was compared.
        alpha: the probability, at most, that any configuration was eliminated by one that is not better; 0 if none
            could be.
    """

    configurations: Sequence[dict[str, Any]]
    results: Sequence[EvaluationResult]
    eliminated: Sequence[Eliminated]
    best: int
    by: By
    alpha: float

    @property
    def order(self) -> list[int]:
        """The configurations, the best first and those that were eliminated last, the earliest at the end."""
        stopped = {one.index: one.n_episodes for one in self.eliminated}
        means = [getattr(result, self.by).mean for result in self.results]
        last = max(len(result.episodes) for result in self.results) + 1
        return sorted(range(len(means)), key=lambda i: (-stopped.get(i, last), -means[i], i))

    def against_best(self, index: int) -> Comparison:
        """A configuration minus the best one, paired over the episodes that both ran."""
        return compare(self.results[self.best], self.results[index])


def sweep(
    studies: Sequence[Study],
    configurations: Sequence[dict[str, Any]],
    folder: Path | None = None,
    *,
    by: By = "score",
    alpha: float = 0.05,
    look: int = 10,
    workers: int | Workers | None = None,
) -> SweepResult:
    """Runs the studies of several configurations on the same seeds as one job.

    After every `look` episodes of each, those that are clearly worse than another are eliminated (see `Elimination`).
    The result does not depend on the workers. With a folder, a sweep that was interrupted is resumed.

    Args:
        studies: of each configuration, with the same environment and seeds; see `Study.make_each`.
        configurations: what to call each in the results.
        folder: for the results files, one for each configuration; None to write none.
        by: what to compare, the score or success.
        alpha: the probability, at most, that any elimination is wrong; 0 to eliminate none.
        look: episodes between decisions.
        workers: the number of processes, one per core by default; or `Ray(...)`.
    """
    if look < 1:
        raise ConfigError(f"look: expected at least 1 episode between decisions, found {look}")
    elimination = Elimination(len(studies), alpha) if alpha else None
    running = _Running(studies, folder)
    seeds = studies[0].subject.seeds
    jobs = [EpisodesJob(study.policy, study.environments) for study in studies]
    left = list(range(len(studies)))
    try:
        with (
            as_workers(workers).pool(jobs) as pool,
            progress_bar(total=len(studies) * len(seeds), leave=False) as bar,
        ):
            for start in range(0, len(seeds), look):
                block = seeds[start : start + look]
                bar.set_postfix_str(f"{len(left)} of {len(studies)} configurations left")
                running.run(pool, jobs, left, block, bar)
                if elimination is None:
                    continue
                for one in elimination.add(np.array([running.values(i, block, by) for i in left])):
                    bar.total -= len(seeds) - one.n_episodes
                    left.remove(one.index)
    finally:
        running.save()
    results = [running.result(i) for i in range(len(studies))]
    best = max(left, key=lambda i: getattr(results[i], by).mean)
    return SweepResult(configurations, results, elimination.eliminated if elimination else [], best, by, alpha)


class _Running:
    """The episodes of all configurations so far, and their files."""

    def __init__(self, studies: Sequence[Study], folder: Path | None):
        self._studies = studies
        self._paths = [folder / f"{i:03d}.json" if folder else None for i in range(len(studies))]
        self._rows: list[dict[int, EpisodeResult]] = []
        for study, path in zip(studies, self._paths, strict=True):
            if path:
                check_writable(path)
            before = study.before(path)
            self._rows.append({row.seed: row for row in before.episodes} if before else {})
        self._changed: set[int] = set()
        self._saved = time.monotonic()

    def run(self, pool: Pool, jobs: Sequence[EpisodesJob], left: Sequence[int], seeds: range, bar: Any) -> None:
        """Runs the missing episodes of some configurations."""
        bar.update(sum(seed in self._rows[i] for i in left for seed in seeds))
        for task, rows in pool.results(self._missing(jobs, left, seeds)):
            self._rows[task.job].update((row.seed, row) for row in rows)
            self._changed.add(task.job)
            bar.update(len(rows))
            if time.monotonic() - self._saved > SAVE_EVERY:
                self.save()

    def _missing(self, jobs: Sequence[EpisodesJob], left: Sequence[int], seeds: range) -> Iterator[Task]:
        for i in left:
            for block in jobs[i].blocks([seed for seed in seeds if seed not in self._rows[i]]):
                yield Task(i, block)

    def values(self, i: int, seeds: range, by: By) -> list[float]:
        """The scores, or successes, of a configuration."""
        return [float(getattr(self._rows[i][seed], by)) for seed in seeds]

    def result(self, i: int) -> EvaluationResult:
        """The results of a configuration, as in its file."""
        path = self._paths[i]
        return EvaluationResult.load(path) if path else self._studies[i].result(list(self._rows[i].values()))

    def save(self) -> None:
        """Writes what has changed."""
        for i in sorted(self._changed):
            path = self._paths[i]
            if path:
                self._studies[i].result(list(self._rows[i].values())).save(path)
        self._changed.clear()
        self._saved = time.monotonic()
