"""generation: a file of scripted demonstrations in robomimic's HDF5 format."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice
from pathlib import Path

from closedform.demos.formats.common import require
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ConfigError, DataError, LoadError
from closedform.evaluation.environment import N_SEEDS, check_seed
from closedform.evaluation.pool import EvaluationError
from closedform.evaluation.robomimic import Robomimic, environment_arguments
from closedform.evaluation.workers import check_workers, make_pool, one_thread_each
from closedform.experts.partial import Partial
from closedform.experts.record import Recorded, record
from closedform.files import check_writable

_HOPELESS = 50  # consecutive failures after which an expert counts as broken

_task: list[str] = []  # of a worker process
_scene: list[Robomimic] = []


def generate(
    task: str,
    n_episodes: int,
    path: Path,
    *,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Runs the expert of a task from the start states of seed, seed + 1, ... until enough episodes have succeeded.

    Finished episodes are kept in the folder `PATH.partial`, from which an interrupted call resumes. The content of the
    file does not depend on the number of processes.

    Args:
        task: one of `TASKS`.
        n_episodes: the number of successful episodes to write.
        path: the HDF5 file, which must not exist yet.
        seed: of the first start state.
        workers: the number of processes.
        progress: called with the successes and the attempts so far.

    Returns:
        How many seeds were tried.
    """
    if task not in TASKS:
        raise ConfigError(f"unknown task {task!r}: expected one of {', '.join(TASKS)}")
    check_seed(seed, n_episodes)
    check_workers(workers)
    check_writable(path)
    if path.exists():
        raise LoadError(f"{path}: expected a path that does not exist yet; choose another name or remove what is there")
    h5py = require("h5py", "writing a robomimic file")
    environment_arguments(task)  # reports missing packages now
    partial = Partial(h5py, path.with_name(path.name + ".partial"), task, seed)
    successes, in_a_row = sum(partial.tried.values()), 0
    with closing(_recordings(task, iter(range(seed + len(partial.tried), N_SEEDS)), workers)) as recordings:
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


def _recordings(task: str, seeds: Iterator[int], workers: int) -> Generator[tuple[int, Recorded | None], None, None]:
    """Yields the episodes of seeds, in order."""
    if workers == 1:
        environment = Robomimic(task)
        for seed in seeds:
            yield seed, record(environment, seed)
        return
    with one_thread_each():
        pool = make_pool(workers, _start, (task,))
        waiting = deque((seed, pool.submit(_record, seed)) for seed in islice(seeds, 2 * workers))
    of = None
    try:
        for seed in seeds:
            of, future = waiting.popleft()
            yield of, future.result()
            waiting.append((seed, pool.submit(_record, seed)))
    except BrokenProcessPool as error:
        raise EvaluationError(
            f"a worker process died around seed {of}, out of memory or in a crash; try fewer workers"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(task: str) -> None:
    _task.append(task)


def _record(seed: int) -> Recorded | None:
    if not _scene:  # here and not in `_start`, so that errors reach the parent
        _scene.append(Robomimic(_task[0]))
    return record(_scene[0], seed)
