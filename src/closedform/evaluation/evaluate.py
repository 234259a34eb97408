"""evaluate: many episodes of a policy, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from closedform.evaluation.environment import Environment
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.episodes_job import Describe, EpisodesJob
from closedform.evaluation.pool import Task, Workers
from closedform.evaluation.processes import Processes, as_workers
from closedform.policies.policy import Policy


def evaluate(
    policy: Policy[Any],
    environment: str | Callable[[], Environment] | EnvironmentPool,
    seeds: Sequence[int],
    *,
    workers: int | Workers = 1,
    describe: Describe | None = None,
) -> Iterator[EpisodeResult]:
    """Runs an episode per seed and yields each result as soon as it is complete, in any order.

    The results do not depend on the workers. Policies that are faster in batches (`Policy.n_together`) run several
    episodes in lockstep; rounding, and so the course of an episode, can then depend on the batch.

    Args:
        policy: the policy to evaluate.
        environment: a name (see `make_environment`), a function that makes an environment, or a pool of them.
        seeds: one per episode, for its start state and the policy's random numbers.
        workers: the number of processes, where 1 runs the episodes in this process; or `Ray(...)`.
        describe: returns the `extra` fields of an episode's result; must be picklable.
    """
    environments = environment if isinstance(environment, EnvironmentPool) else EnvironmentPool(environment)
    workers = as_workers(workers)
    if isinstance(workers, Processes) and workers.n != 1 and seeds:
        policy.warm_up()  # compiles here, once, what each process would compile
    return _evaluate(EpisodesJob(policy, environments, describe), seeds, workers)


def _evaluate(job: EpisodesJob, seeds: Sequence[int], workers: Workers) -> Iterator[EpisodeResult]:
    blocks = job.blocks(seeds)
    with workers.pool([job], len(blocks)) as pool:
        for _, rows in pool.results(Task(0, block) for block in blocks):
            yield from rows
