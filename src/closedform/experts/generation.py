"""generation: a file of scripted demonstrations in robomimic's HDF5 format."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

from closedform.demos.formats.common import require
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ConfigError, DataError, LoadError
from closedform.evaluation.environment import N_SEEDS, check_seed
from closedform.evaluation.pool import Task, Workers
from closedform.evaluation.processes import as_workers
from closedform.evaluation.robomimic import Robomimic, environment_arguments
from closedform.experts.partial import Partial
from closedform.experts.record import RecordedEpisode, record
from closedform.files import check_writable

_HOPELESS = 50  # consecutive failures after which an expert counts as broken


def generate(
    task: str,
    n_episodes: int,
    path: Path,
    *,
    seed: int = 0,
    workers: int | Workers = 1,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Runs the expert of a task from the start states of seed, seed + 1, ... until enough episodes have succeeded.

    Finished episodes are kept in the folder `PATH.partial`, from which an interrupted call resumes. The content of the
    file does not depend on the workers.

    Args:
        task: one of `TASKS`.
        n_episodes: the number of successful episodes to write.
        path: the HDF5 file, which must not exist yet.
        seed: of the first start state.
        workers: the number of processes, where 1 is this one; or `Ray(...)`.
        progress: called with the successes and the attempts so far.

    Returns:
        How many seeds were tried.
    """
    if task not in TASKS:
        raise ConfigError(f"unknown task {task!r}: expected one of {', '.join(TASKS)}")
    check_seed(seed, n_episodes)
    where = as_workers(workers)
    check_writable(path)
    if path.exists():
        raise LoadError(f"{path}: expected a path that does not exist yet; choose another name or remove what is there")
    environment_arguments(task)  # reports missing packages now
    h5py = require("h5py", "writing a robomimic file")
    partial = Partial(h5py, path.with_name(path.name + ".partial"), task, seed)
    successes, in_a_row = sum(partial.tried.values()), 0
    with closing(_recordings(task, iter(range(seed + len(partial.tried), N_SEEDS)), where)) as recordings:
        while successes < n_episodes:
            of, recorded = next(recordings, (N_SEEDS, None))
            check_seed(of)
            partial.add(of, recorded)
            successes += recorded is not None
            in_a_row = 0 if recorded is not None else in_a_row + 1
            if in_a_row == _HOPELESS:
                raise DataError(f"the expert of {task!r} failed {_HOPELESS} times in a row, up to seed {of}")
            if progress:
                progress(successes, len(partial.tried))
    partial.finish(path, n_episodes)
    return len(partial.tried)


def _recordings(
    task: str, seeds: Iterator[int], workers: Workers
) -> Generator[tuple[int, RecordedEpisode | None], None, None]:
    """Yields the episodes of seeds, which count up, in order."""
    early: dict[int, RecordedEpisode | None] = {}
    first = next(seeds)
    with workers.pool([ExpertJob(task)]) as pool:
        for done, recorded in pool.results(Task(0, seed) for seed in chain([first], seeds)):
            early[done.task] = recorded
            while first in early:
                yield first, early.pop(first)
                first += 1


class ExpertJob:
    """Runs the expert of a task; its environment is built for the first episode, so that errors reach the parent."""

    def __init__(self, task: str):
        self._task = task
        self._scene: list[Robomimic] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return ExpertJob, (self._task,)

    def run(self, seed: int) -> RecordedEpisode | None:
        """The episode of a seed; None if the expert failed."""
        if not self._scene:
            self._scene.append(Robomimic(self._task))
        return record(self._scene[0], seed)

    def label(self, seed: int) -> str:
        """What to call a task in a message."""
        return f"seed {seed}"
