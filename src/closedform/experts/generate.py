"""generate: a file of scripted demonstrations in robomimic's own HDF5 layout."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures.process import BrokenProcessPool
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from closedform import __version__
from closedform.demos.formats.common import require
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ConfigError, DataError, LoadError
from closedform.evaluation.environment import check_seed
from closedform.evaluation.evaluate import EvaluationError
from closedform.evaluation.robomimic import Robomimic, environment_arguments
from closedform.evaluation.workers import check_workers, make_pool, one_thread_each
from closedform.experts.record import Recorded, record
from closedform.files import appearing, check_absent, check_writable

WRITING = "writing"  # the group of an episode that is not yet whole
HOPELESS = 50  # failures in a row after which an expert is taken to be broken

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
    """Lets the expert of a task act from the start states of seed, seed + 1, ... until enough episodes succeeded.

    Episodes are kept as they come in `PATH.partial`, from which an interrupted call goes on. What is in the file does
    not depend on how many processes made it.

    Args:
        task: one of `TASKS`.
        n_episodes: successes to keep.
        path: the HDF5 file; nothing may be there.
        seed: of the first start state.
        workers: how many processes.
        progress: called with the successes and the tries so far.

    Returns:
        How many seeds were tried.
    """
    if task not in TASKS:
        raise ConfigError(f"no task {task!r}: expected one of {', '.join(TASKS)}")
    check_seed(seed, n_episodes)
    check_workers(workers)
    check_writable(path)
    check_absent(path)
    h5py = require("h5py", "writing a robomimic file")
    environment_arguments(task)  # needs all that the task needs
    partial = path.with_name(path.name + ".partial")
    with _opened(h5py, partial) as file:
        tried = _tried(file, partial, task, seed)
        successes, in_a_row = sum(tried.values()), 0
        recordings = _recordings(task, count(seed + len(tried)), workers)
        while successes < n_episodes:
            of, recorded = next(recordings)
            _write(file, of, recorded)
            tried[of] = recorded is not None
            successes += tried[of]
            in_a_row = 0 if tried[of] else in_a_row + 1
            if in_a_row == HOPELESS:
                raise DataError(f"the expert of {task!r} failed {HOPELESS} times in a row, up to seed {of}")
            if progress:
                progress(successes, len(tried))
        recordings.close()
        with appearing(path, folder=False) as target, h5py.File(target, "w") as finished:
            _finish(file["data"], finished.create_group("data"), task, n_episodes)
    partial.unlink()
    return len(tried)


def _opened(h5py: Any, partial: Path) -> Any:
    try:
        return h5py.File(partial, "a")
    except OSError as error:
        found = "something else" if partial.exists() else str(error)
        raise LoadError(
            f"{partial}: expected a generation to go on with, or to be able to begin one, found {found}: remove it or "
            "choose another name"
        ) from error


def _tried(file: Any, partial: Path, task: str, seed: int) -> dict[int, bool]:
    """The seeds of an interrupted call, each with whether it succeeded."""
    found = (file.attrs.get("task", task), int(file.attrs.get("seed", seed)))
    if found != (task, seed):
        raise LoadError(
            f"{partial}: expected a generation of {task!r} from seed {seed} to go on with, found {found[0]!r} from "
            f"seed {found[1]}: remove it to begin anew"
        )
    file.attrs.update(task=task, seed=seed)
    if WRITING in file.require_group("data"):
        del file["data"][WRITING]
    return {int(name[5:]): bool(len(group)) for name, group in file["data"].items()}


def _recordings(task: str, seeds: Iterator[int], workers: int) -> Generator[tuple[int, Recorded | None], None, None]:
    """The episodes of seeds, in order."""
    if workers == 1:
        environment = Robomimic(task)
        for seed in seeds:
            yield seed, record(environment, seed)
        return
    with one_thread_each():
        pool = make_pool(workers, _start, (task,))
        waiting = deque((seed, pool.submit(_record, seed)) for seed in islice(seeds, 2 * workers))
    try:
        for seed in seeds:
            of, future = waiting.popleft()
            try:
                yield of, future.result()
            except BrokenProcessPool as error:
                raise EvaluationError(
                    f"a worker process died, of memory or a crash, around seed {of}; fewer workers may help"
                ) from error
            waiting.append((seed, pool.submit(_record, seed)))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(task: str) -> None:
    _task.append(task)


def _record(seed: int) -> Recorded | None:
    if not _scene:  # here and not in `_start`, so that what is wrong is said to the parent
        _scene.append(Robomimic(_task[0]))
    return record(_scene[0], seed)


def _write(file: Any, seed: int, recorded: Recorded | None) -> None:
    group = file["data"].create_group(WRITING)
    if recorded is not None:
        n = len(recorded.actions)
        group.attrs.update(num_samples=n, model_file=recorded.model, seed=seed)
        arrays = {
            **{f"obs/{key}": values for key, values in recorded.observations.items()},
            "actions": recorded.actions,
            "states": recorded.states,
            "rewards": recorded.successes.astype(np.float64),
            "dones": (np.arange(n) == n - 1).astype(np.int64),
        }
        for name, values in arrays.items():
            group.create_dataset(name, data=values, compression="gzip", shuffle=True)
    file["data"].move(WRITING, f"seed_{seed}")  # whole, or not at all
    file.flush()


def _finish(data: Any, finished: Any, task: str, n_episodes: int) -> None:
    """Numbers the successes in the order of their seeds and says what they are."""
    seeds = sorted(int(name[5:]) for name in data)
    kept = [seed for seed in seeds if len(data[f"seed_{seed}"])][:n_episodes]
    for number, seed in enumerate(kept):
        data.copy(f"seed_{seed}", finished, f"demo_{number}")
    finished.attrs.update(
        total=sum(int(demo.attrs["num_samples"]) for demo in finished.values()),
        env_args=json.dumps(environment_arguments(task)),
        source=f"scripted by closedform {__version__}: no person demonstrated anything",
        tried=seeds.index(kept[-1]) + 1,
    )
