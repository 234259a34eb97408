"""Processes: workers that are processes of this machine."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from closedform import provenance
from closedform.evaluation.pool import AHEAD, EvaluationError, Job, Pool, Task, Workers
from closedform.evaluation.workers import check_workers, make_pool, one_thread_each

_RETRIES = 2  # how often processes may die in a row, with no result in between, before a task counts as the cause


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
    """Processes that read the jobs from a private file, named by its path.

    What is sent to a process as it starts has to fit into a pipe: if the process dies before it reads the rest, its
    parent waits forever.
    """

    def __init__(self, jobs: Sequence[Job], n: int):
        self._jobs, self._n = jobs, n
        self._folder = TemporaryDirectory(prefix="closedform-")  # of this user alone
        self._handle = Path(self._folder.name) / "jobs"
        try:
            with self._handle.open("wb") as file:
                pickle.dump(list(jobs), file, pickle.HIGHEST_PROTOCOL)
            self._executor = make_pool(n, _start, (self._handle,))
        except BaseException:
            self._folder.cleanup()
            raise

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Runs tasks, a few more at a time than there are processes; those of a process that dies are run again."""
        tasks, waiting, again = iter(tasks), dict[Future[Any], Task](), list[Task]()
        died = 0
        while True:
            with one_thread_each():  # a process is started when there is a task for it
                for _ in range(AHEAD * self._n - len(waiting)):
                    task = again.pop(0) if again else next(tasks, None)
                    if task is not None:
                        waiting[self._submit(task)] = task
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in [future for future in done if not _is_broken(future)]:
                died = 0
                yield waiting.pop(future), future.result()
            broken = [future for future in waiting if future.done() and _is_broken(future)]
            if broken:
                died += 1
                task = waiting[broken[0]]
                if died > _RETRIES:
                    raise EvaluationError(
                        f"a worker process died around {self._jobs[task.job].label(task.task)}, {died} times in a row, "
                        "out of memory or in a crash; try fewer workers"
                    ) from broken[0].exception()
                self._executor.shutdown(wait=True)  # ends the others, too, so that all futures are done
                again = [waiting.pop(future) for future in list(waiting) if _is_broken(future)] + again
                self._executor = make_pool(self._n, _start, (self._handle,))

    def _submit(self, task: Task) -> Future[Any]:
        try:
            return self._executor.submit(_run, task)
        except BrokenProcessPool as error:  # a process died just now
            broken = Future[Any]()
            broken.set_exception(error)
            return broken

    def stop(self) -> None:
        """Ends the processes, also after an interrupt: running tasks finish, the others never start."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._folder.cleanup()


def _is_broken(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


_handle: list[Path] = []  # of a worker process
_jobs: list[Job] = []


def _start(handle: Path) -> None:
    _handle.append(handle)


def _run(task: Task) -> Any:
    if not _jobs:
        with _handle[0].open("rb") as file:
            _jobs.extend(pickle.load(file))  # which the parent process has just written
    return _jobs[task.job].run(task.task)
