"""evaluate: many episodes of a policy, in parallel processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from closedform.errors import ClosedFormError
from closedform.evaluation.data_range import DataRange
from closedform.evaluation.environment import Environment
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.rollout import Rollout, roll_out_together
from closedform.evaluation.workers import check_workers, make_pool, one_thread_each
from closedform.policies.policy import Policy

Describe = Callable[[Rollout], Mapping[str, Any]]


class EvaluationError(ClosedFormError):
    """Some episodes could not be completed; the results of the others are not lost."""


def evaluate(
    policy: Policy[Any],
    environment: str | Callable[[], Environment] | EnvironmentPool,
    seeds: Sequence[int],
    *,
    workers: int = 1,
    describe: Describe | None = None,
) -> Iterator[EpisodeResult]:
    """Runs an episode per seed and yields each result as soon as it is complete, in any order.

    The results do not depend on the number of processes. Policies that are faster in batches (`Policy.n_together`) run
    several episodes in lockstep; rounding, and so the course of an episode, can then depend on the batch.

    Args:
        policy: the policy to evaluate.
        environment: a name (see `make_environment`), a function that makes an environment, or a pool of them.
        seeds: one per episode, for its start state and the policy's random numbers.
        workers: the number of processes; 1 runs the episodes in this process.
        describe: returns the `extra` fields of an episode's result; must be picklable.
    """
    check_workers(workers)
    environments = environment if isinstance(environment, EnvironmentPool) else EnvironmentPool(environment)
    return _evaluate(_Worker(policy, environments, describe), _blocks(seeds, policy.n_together), workers)


def _evaluate(worker: _Worker, blocks: Sequence[Sequence[int]], workers: int) -> Iterator[EpisodeResult]:
    if workers == 1 or len(blocks) < 2:
        for block in blocks:
            yield from worker.run(block)
        return
    seed, waiting = blocks[0][0], dict[Future[list[EpisodeResult]], int]()
    with one_thread_each():
        pool = make_pool(min(workers, len(blocks)), _start, (worker,))
    try:
        with one_thread_each():  # a process is started when there is a block for it
            waiting.update((pool.submit(_run, block), block[0]) for block in blocks)
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                seed = waiting.pop(future)
                yield from future.result()
    except BrokenProcessPool as error:
        raise EvaluationError(
            f"a worker process died around seed {seed}, out of memory or in a crash; try fewer workers"
        ) from error
    finally:  # also after an interrupt: running episodes finish, the others never start
        pool.shutdown(wait=True, cancel_futures=True)


def _blocks(seeds: Sequence[int], size: int) -> list[Sequence[int]]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


_worker: list[_Worker] = []  # of a worker process


def _start(worker: _Worker) -> None:
    _worker.append(worker)


def _run(seeds: Sequence[int]) -> list[EpisodeResult]:
    return _worker[0].run(seeds)


class _Worker:
    """Runs batches of episodes; environments are built for the first, so that errors reach the parent process."""

    def __init__(self, policy: Policy[Any], environments: EnvironmentPool, describe: Describe | None):
        self._policy, self._environments, self._describe = policy, environments, describe
        self._range = DataRange.of(policy)

    def run(self, seeds: Sequence[int]) -> list[EpisodeResult]:
        """The results of episodes run in lockstep."""
        try:
            with self._environments.borrow(len(seeds)) as places:
                rollouts = roll_out_together(places, self._policy, seeds)
        except ClosedFormError:
            raise
        except Exception as error:  # environments can raise anything
            which = f"seed {seeds[0]}" + (f" to {seeds[-1]}" if len(seeds) > 1 else "")
            raise EvaluationError(f"the episode of {which} failed: {type(error).__name__}: {error}") from error
        return [
            rollout.result(
                self._describe(rollout) if self._describe else None,
                self._range.outside(rollout.observations[:-1]) if self._range else None,
            )
            for rollout in rollouts
        ]
