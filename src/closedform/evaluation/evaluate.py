"""evaluate: many episodes of a policy, in parallel processes, with the same result however many there are."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from closedform.errors import ClosedFormError
from closedform.evaluation.environment import Environment, make_environment
from closedform.evaluation.rollout import roll_out
from closedform.policies.policy import Policy

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class EvaluationError(ClosedFormError):
    """Episodes could not be run to their end; those that were are not lost."""


def evaluate(
    policy: Policy[Any], environment: str | Callable[[], Environment], seeds: Sequence[int], *, workers: int = 1
) -> Iterator[dict[str, Any]]:
    """Runs an episode for each seed and yields the row of each as soon as it is done, in any order.

    Args:
        policy: what to evaluate.
        environment: the name of one (see `make_environment`), or a function that makes one.
        seeds: of the episodes; each decides its start state and the policy's random numbers.
        workers: how many processes run episodes; 1 runs them in this one.
    """
    if workers <= 1 or len(seeds) < 2:
        place = _make(environment)
        for seed in seeds:
            yield _row(place, policy, seed)
        return
    with _one_thread_each():
        pool = ProcessPoolExecutor(
            min(workers, len(seeds)), multiprocessing.get_context("spawn"), _start, (policy, environment)
        )
        waiting: dict[Future[dict[str, Any]], int] = {pool.submit(_episode, seed): seed for seed in seeds}
    try:
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                seed = waiting.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool as error:
                    raise EvaluationError(
                        f"a worker process died, of memory or a crash, around seed {seed}; fewer workers may help"
                    ) from error
    finally:  # also after an interruption: episodes under way end, the others never begin
        pool.shutdown(wait=True, cancel_futures=True)


def _make(environment: str | Callable[[], Environment]) -> Environment:
    return make_environment(environment) if isinstance(environment, str) else environment()


class _one_thread_each:
    """Processes that are started inside use one thread each; several would only get in each other's way."""

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in THREAD_LIMITS}
        os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_worker: dict[str, Any] = {}


def _start(policy: Policy[Any], environment: str | Callable[[], Environment]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interruption means
    _worker.update(policy=policy, environment=_make(environment))


def _episode(seed: int) -> dict[str, Any]:
    return _row(_worker["environment"], _worker["policy"], seed)


def _row(environment: Environment, policy: Policy[Any], seed: int) -> dict[str, Any]:
    try:
        return roll_out(environment, policy, seed).to_json()
    except ClosedFormError:
        raise
    except Exception as error:  # an environment is somebody's code
        raise EvaluationError(f"the episode of seed {seed} stopped: {type(error).__name__}: {error}") from error
