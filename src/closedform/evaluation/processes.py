"""Processes: workers that are processes of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing import current_process
from typing import Any

from closedform import provenance
from closedform.evaluation.pool import AHEAD, EvaluationError, Job, Pool, Task, Workers
from closedform.evaluation.workers import check_workers, make_pool, one_thread_each


@dataclass(frozen=True)
class Processes:
    """Runs tasks in processes of this machine.

    Attributes:
        n: the number of processes, one per core by default; with 1, tasks run in this process, as they do in a daemonic
            process, which may start no others.
    """

    n: int | None = None

    def __post_init__(self) -> None:
        check_workers(self.n)

    @contextmanager
    def pool(self, jobs: Sequence[Job], n_tasks: int | None = None) -> Iterator[Pool]:
        """Starts processes, no more than there are tasks; see `Workers`."""
        n = provenance.n_cores() if self.n is None else self.n
        n = n if n_tasks is None else min(n, n_tasks)
        if n <= 1 or current_process().daemon:
            yield _ThisProcess(jobs)
            return
        pool = _ProcessPool(jobs, n)
        try:
            yield pool
        finally:
            pool.stop()


def as_workers(workers: int | Workers | None) -> Workers:
    """The workers that an argument stands for; a number is one of processes, None is one process per core."""
    return Processes(workers) if isinstance(workers, int | None) else workers


class _ThisProcess:
    def __init__(self, jobs: Sequence[Job]):
        self._jobs = jobs

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Runs tasks one after the other."""
        for task in tasks:
            yield task, self._jobs[task.job].run(task.task)


class _ProcessPool:
    def __init__(self, jobs: Sequence[Job], n: int):
        self._jobs, self._n = jobs, n
        with one_thread_each():
            self._executor = make_pool(n, _start, (jobs,))

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Runs tasks, a few more at a time than there are processes."""
        tasks, waiting, label = iter(tasks), dict[Future[Any], Task](), "the first task"
        try:
            while True:
                with one_thread_each():  # a process is started when there is a task for it
                    for task in islice(tasks, AHEAD * self._n - len(waiting)):
                        waiting[self._executor.submit(_run, task)] = task
                if not waiting:
                    return
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    task = waiting.pop(future)
                    label = self._jobs[task.job].label(task.task)
                    yield task, future.result()
        except BrokenProcessPool as error:
            raise EvaluationError(
                f"a worker process died around {label}, out of memory or in a crash; try fewer workers"
            ) from error

    def stop(self) -> None:
        """Ends the processes, also after an interrupt: running tasks finish, the others never start."""
        self._executor.shutdown(wait=True, cancel_futures=True)


_jobs: list[Job] = []  # of a worker process


def _start(jobs: Sequence[Job]) -> None:
    _jobs.extend(jobs)


def _run(task: Task) -> Any:
    return _jobs[task.job].run(task.task)
