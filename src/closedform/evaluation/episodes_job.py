"""EpisodesJob: episodes of a policy, as workers run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from closedform.errors import ClosedFormError
from closedform.evaluation.data_range import DataRange
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.pool import EvaluationError
from closedform.evaluation.rollout import Rollout, roll_out_together
from closedform.policies.policy import Policy

Describe = Callable[[Rollout], Mapping[str, Any]]


class EpisodesJob:
    """Runs blocks of episodes; environments are built for the first, so that errors reach the parent process."""

    def __init__(self, policy: Policy[Any], environments: EnvironmentPool, describe: Describe | None = None):
        self._policy, self._environments, self._describe = policy, environments, describe
        self._range = DataRange.of(policy)

    def blocks(self, seeds: Sequence[int]) -> list[Sequence[int]]:
        """Seeds in tasks for `run`."""
        size = self._policy.n_together
        return [seeds[start : start + size] for start in range(0, len(seeds), size)]

    def label(self, seeds: Sequence[int]) -> str:
        """What to call a task in a message."""
        return f"seed {seeds[0]}" + (f" to {seeds[-1]}" if len(seeds) > 1 else "")

    def run(self, seeds: Sequence[int]) -> list[EpisodeResult]:
        """The results of episodes run in lockstep."""
        try:
            with self._environments.borrow(len(seeds)) as places:
                rollouts = roll_out_together(places, self._policy, seeds)
        except ClosedFormError:
            raise
        except (Exception, SystemExit) as error:  # environments can raise anything
            failed = f"the episode of {self.label(seeds)} failed"
            raise EvaluationError(f"{failed}: {type(error).__name__}: {error}") from error
        return [
            rollout.result(
                self._describe(rollout) if self._describe else None,
                self._range.outside(rollout.observations[:-1]) if self._range else None,
            )
            for rollout in rollouts
        ]
