"""Cells: the evaluations of the wide benchmark, one process each; complete ones are not run again."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed, wait
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tqdm import tqdm

from closedform.errors import ClosedFormError, ClosedFormWarning, ConfigError, LoadError
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.study import Study
from closedform.evaluation.workers import make_pool, one_thread_each
from studies.wide.benchmarks import BENCHMARKS, POLICIES, SEED

_FROM_DEMOS = {"n_action_steps", "n_execute"}  # parameters of the default that the demonstrations' rate sets


@dataclass(frozen=True)
class Cell:
    """The evaluation of a policy made from some demonstrations of a task.

    Attributes:
        benchmark: one of `BENCHMARKS`.
        task: one of its tasks.
        n_demos: how many of the first demonstrations to use.
        policy: one of `POLICIES`.
        seed, n_episodes: the seeds are seed, seed + 1, ...
    """

    benchmark: str
    task: str
    n_demos: int
    policy: str
    seed: int
    n_episodes: int

    @property
    def key(self) -> str:
        """The name of its results file."""
        return f"{self.benchmark}_{self.task}_{self.n_demos}_{self.policy}"

    @property
    def env(self) -> str:
        """The name of its environment."""
        return BENCHMARKS[self.benchmark].env.format(task=self.task)

    @property
    def demos(self) -> str:
        """The name of its demonstrations, wherever they are stored."""
        return f"{self.benchmark} {self.task}, the first {self.n_demos}"

    def study(self, folder: Path) -> Study:
        """The evaluation; recordings are read from a folder, and recorded there if missing."""
        benchmark = BENCHMARKS[self.benchmark]
        demos = benchmark.read(self.task, folder)
        if len(demos) < self.n_demos:
            raise LoadError(f"{self.task}: expected at least {self.n_demos} demonstrations, found {len(demos)}")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "n_neighbors is", ClosedFormWarning)  # the paper's value is large
            policy = benchmark.make(self.policy, self.task, demos[: self.n_demos])
        describe = benchmark.describe(self.task) if benchmark.describe else None
        size = {"seed": self.seed, "n_episodes": self.n_episodes}
        return Study.of_policy(self.env, policy, self.policy, self.demos, **size, describe=describe)

    def found(self, work: Path) -> EvaluationResult | None:
        """Its results if they are complete, read without demonstrations or a simulator."""
        path = work / f"{self.key}.json"
        if not path.exists():
            return None
        results = EvaluationResult.load(path)
        subject = results.subject
        there = (subject.env, subject.demos["name"], subject.policy["name"], subject.seed, subject.n_episodes)
        if there != (self.env, self.demos, self.policy, self.seed, self.n_episodes):
            raise LoadError(
                f"{path}: expected results of {self}, found those of {' '.join(map(str, there))}; remove it"
            )
        parameters = BENCHMARKS[self.benchmark].parameters(self.policy, self.task)
        names = (parameters.keys() | subject.parameters.keys()) - (_FROM_DEMOS if self.policy == "default" else set())
        other = sorted(name for name in names if parameters.get(name) != subject.parameters.get(name))
        if other:
            raise LoadError(
                f"{path}: expected results with the current parameters, found other {', '.join(other)}; remove it"
            )
        return results if results.complete else None

    def __str__(self) -> str:
        return f"{self.env} {self.demos} {self.policy} {self.seed} {self.n_episodes}"


def all_cells() -> list[Cell]:
    """All reported cells, ordered by task."""
    return [
        Cell(name, task, n_demos, policy, SEED, benchmark.n_episodes)
        for name, benchmark in BENCHMARKS.items()
        for task in benchmark.tasks
        for n_demos in benchmark.sizes
        for policy in POLICIES
    ]


def choose(cells: Sequence[Cell], patterns: Sequence[str]) -> list[Cell]:
    """The cells whose keys match any of the patterns, such as `metaworld_*_25_default`; all if there are none."""
    for pattern in patterns:
        if not any(fnmatchcase(cell.key, pattern) for cell in cells):
            known = ", ".join(BENCHMARKS)
            raise ConfigError(
                f"no evaluation {pattern!r}: expected BENCHMARK_TASK_DEMONSTRATIONS_POLICY, * for any part; benchmarks "
                f"are {known}, policies {', '.join(POLICIES)}"
            )
    return [cell for cell in cells if not patterns or any(fnmatchcase(cell.key, pattern) for pattern in patterns)]


def run_cells(cells: Iterable[Cell], work: Path, demos: Path, workers: int) -> dict[Cell, EvaluationResult]:
    """The results of cells, each read from its file if complete, otherwise run in its own process.

    A cell that fails does not stop the others; failures are reported at the end.

    Args:
        cells: the cells.
        work: folder of results files.
        demos: folder of recorded demonstrations.
        workers: the number of processes; 1 runs cells in this process.
    """
    cells = list(cells)
    results = {cell: found for cell in cells if (found := cell.found(work)) is not None}
    todo = [cell for cell in cells if cell not in results]
    failed: dict[str, Exception] = {}
    with tqdm(total=len(cells), initial=len(results), desc="evaluations", disable=None) as bar:
        for cell, outcome in _outcomes(todo, work, demos, workers):
            if isinstance(outcome, Exception):
                failed[cell.key] = outcome
            else:
                results[cell] = outcome
            bar.update()
    if failed:
        key, error = next(iter(failed.items()))
        raise ClosedFormError(f"{len(failed)} of {len(cells)} evaluations failed, the first being {key}: {error}")
    _check_same_demonstrations(results)
    return {cell: results[cell] for cell in cells}


def _check_same_demonstrations(results: dict[Cell, EvaluationResult]) -> None:
    """Refuses to compare policies made from different demonstrations, such as recordings of two machines."""
    first: dict[str, tuple[Cell, EvaluationResult]] = {}
    for cell, found in results.items():
        other, before = first.setdefault(cell.demos, (cell, found))
        if found.subject.demos != before.subject.demos:
            crcs = " and ".join(str(one.subject.demos["crc32"]) for one in (found, before))
            raise LoadError(
                f"{cell.key} and {other.key}: expected the same demonstrations, found checksums {crcs}; remove one of "
                "the two results files and run it again"
            )


def _outcomes(
    todo: Sequence[Cell], work: Path, demos: Path, workers: int
) -> Iterator[tuple[Cell, EvaluationResult | Exception]]:
    if workers == 1 or len(todo) < 2:
        for cell in todo:
            yield cell, _attempt(cell, work, demos)
        return
    pool = make_pool(min(workers, len(todo)), _quiet, ())
    try:
        with one_thread_each():  # processes are started on demand
            tasks = dict.fromkeys((cell.benchmark, cell.task) for cell in todo)
            wait([pool.submit(_prepare, *task, demos) for task in tasks])  # records each task only once
            waiting: dict[Future[EvaluationResult | Exception], Cell] = {
                pool.submit(_attempt, cell, work, demos): cell for cell in todo
            }
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _quiet() -> None:
    sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - bars of several processes at once


def _prepare(benchmark: str, task: str, demos: Path) -> None:
    with contextlib.suppress(Exception):  # the task's first cell raises it again
        BENCHMARKS[benchmark].read(task, demos)


def _attempt(cell: Cell, work: Path, demos: Path) -> EvaluationResult | Exception:
    try:
        return cell.study(demos).run(work / f"{cell.key}.json", workers=1, name=cell.key)
    except Exception as error:  # reported when the others are done
        return error if isinstance(error, ClosedFormError) else ClosedFormError(f"{type(error).__name__}: {error}")
