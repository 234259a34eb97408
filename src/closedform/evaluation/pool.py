"""Pool: where the tasks of jobs run, in processes of this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from closedform.errors import ClosedFormError

AHEAD = 4  # tasks per worker that are handed out at once, so that none waits for the next


class EvaluationError(ClosedFormError):
    """Some episodes could not be completed; the results of the others are not lost."""


class Job(Protocol):
    """What is sent to each worker once and then runs any number of tasks there; must be picklable.

    The result of a task must not depend on the tasks that ran before it.
    """

    def run(self, task: Any, /) -> Any:
        """Runs a task."""
        ...

    def label(self, task: Any, /) -> str:
        """What to call a task in a message, such as `seed 7`."""
        ...


class Task(NamedTuple):
    """A task of the job with this index."""

    job: int
    task: Any


class Pool(Protocol):
    """Workers that have the jobs."""

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Any]]:
        """Runs tasks, which are taken as workers become free, and yields their results in any order."""
        ...


class Workers(Protocol):
    """A choice of workers: `Processes` or `Ray`."""

    def pool(self, jobs: Sequence[Job], n_tasks: int | None = None) -> AbstractContextManager[Pool]:
        """Starts a pool.

        Args:
            jobs: the jobs that tasks belong to.
            n_tasks: the number of tasks; None if it is not known.
        """
        ...
