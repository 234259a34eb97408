"""Rollout: one episode of a policy in an environment."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.evaluation.environment import Environment
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.results_check import LARGEST
from closedform.policies.agent import Agent, act_together
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy

_LOOP = 4  # plans dominated by the same segment of a demonstration that count as a loop


@dataclass(frozen=True)
class Rollout:
    """The recording of one episode.

    Attributes:
        seed: of the start state and of the policy's randomness.
        observations: (T + 1, D_o), including the one before the first action.
        actions: (T, D_a)
        scores: (T,), of the state after each action.
        success: whether the task was accomplished.
        plans: the plans, each with the step at which it was made.
        latencies: (plans,), seconds that each plan took, including all plans made in the same batch.
        n_execute: the number of actions executed from each plan.
    """

    seed: int
    observations: np.ndarray
    actions: np.ndarray
    scores: np.ndarray
    success: bool
    plans: list[tuple[int, Plan]]
    latencies: np.ndarray
    n_execute: int

    @property
    def score(self) -> float:
        """The maximum score over the episode."""
        return float(self.scores.max(initial=0.0))

    @property
    def most_repeated(self) -> int:
        """The largest number of plans dominated by the same segment of a demonstration."""
        plans = (plan for _, plan in self.plans if len(plan.episodes))
        led = Counter((int(p.episodes[0]), int(p.steps[0]) // self.n_execute) for p in plans)
        return max(led.values(), default=0)

    def demonstrations(self, n: int = 3) -> list[tuple[int, float]]:
        """The most used demonstrations, each with its fraction of all plans."""
        used: dict[int, float] = defaultdict(float)
        for _, plan in self.plans:
            for episode, weight in zip(plan.episodes, plan.weights, strict=True):
                used[int(episode)] += float(weight) / len(self.plans)
        return sorted(used.items(), key=lambda item: -item[1])[:n]

    def result(
        self, extra: Mapping[str, Any] | None = None, outside: tuple[float, str | None] | None = None
    ) -> EpisodeResult:
        """The rounded summary for a results file, with additional fields; `outside` is that of `DataRange`."""
        plans = [plan for _, plan in self.plans]
        shares = [plan.neural_share for plan in plans]
        by_data = all(plan.weights.any() for plan in plans)
        shrinkages = [plan.shrinkage for plan in plans if plan.shrinkage is not None]
        mixed = not set(shares) <= {0.0, 1.0}  # entirely a network or entirely demonstrations need not be recorded
        return EpisodeResult(
            seed=self.seed,
            score=self.score,
            success=self.success,
            steps=len(self.actions),
            most_repeated=self.most_repeated,
            loop=self.most_repeated >= _LOOP,
            demonstrations=tuple((episode, round(share, 4)) for episode, share in self.demonstrations()),
            distances=tuple(float(round(plan.distance, 4)) for _, plan in self.plans),
            latency_ms=tuple(float(round(1e3 * seconds, 4)) for seconds in self.latencies),
            neural_shares=tuple(float(round(share, 4)) for share in shares) if mixed else None,
            frames=_runs(plan.frame for plan in plans) if by_data else None,
            held=_runs(plan.held for plan in plans) if by_data else None,
            n_effective=tuple(round(plan.n_effective, 3) for plan in plans) if by_data else None,
            shrinkage=round(float(np.mean(shrinkages)), 4) if shrinkages else None,
            outside=None if outside is None else (round(outside[0], 4), outside[1]),
            extra=extra or {},
        )


def _runs(names: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Names in order, each with its number of consecutive repetitions."""
    return tuple((name, len(list(run))) for name, run in groupby(names))


def roll_out(
    environment: Environment, policy: Policy[Any], seed: int, watch: Callable[[], None] | None = None
) -> Rollout:
    """Runs one episode.

    Args:
        environment: the environment.
        policy: the policy; its agent uses the same seed.
        seed: of the episode.
        watch: called before the first action and after every action, to inspect the environment.
    """
    return roll_out_together([environment], policy, [seed], watch)[0]


def roll_out_together(
    environments: Sequence[Environment],
    policy: Policy[Any],
    seeds: Sequence[int],
    watch: Callable[[], None] | None = None,
) -> list[Rollout]:
    """Runs several episodes in lockstep, each in its own environment; plans that are due are made in one batch.

    Args:
        environments: one for each episode.
        policy: what acts in all of them.
        seeds: of the episodes, and of the agents' random numbers.
        watch: called without arguments before the first step and after each one.
    """
    everything = [
        _Episode(place, policy.agent(seed=seed), seed) for place, seed in zip(environments, seeds, strict=True)
    ]
    running = everything
    if watch:
        watch()
    while running:
        start = time.perf_counter()
        actions = act_together([one.agent for one in running], [one.observations[-1] for one in running])
        taken = time.perf_counter() - start
        for one, action in zip(running, actions, strict=True):
            one.step(action, taken)
        if watch:
            watch()
        running = [one for one in running if not one.done]
    return [one.rollout(policy.config.n_execute) for one in everything]


class _Episode:
    """A running episode."""

    def __init__(self, environment: Environment, agent: Agent, seed: int):
        self.environment, self.agent, self.seed = environment, agent, seed
        self.observations = [environment.reset(seed)]
        self.actions: list[np.ndarray] = []
        self.scores: list[float] = []
        self.plans: list[tuple[int, Plan]] = []
        self.latencies: list[float] = []
        self.success = self.done = False

    def step(self, action: np.ndarray, taken: float) -> None:
        """Executes an action; `taken` is the time in seconds that computing it took."""
        plan = self.agent.last_plan
        if plan is not None and not (self.plans and self.plans[-1][1] is plan):
            self.plans.append((len(self.actions), plan))
            self.latencies.append(taken)
        observation, score, success, done = self.environment.step(action)
        score = float(success) if score is None else score
        if not abs(score) <= LARGEST:  # also if it is NaN
            raise DataError(
                f"expected the environment to return a score from 0 to 1, found {score} at step {len(self.actions)} "
                f"of seed {self.seed}"
            )
        self.observations.append(observation)
        self.actions.append(action)
        self.scores.append(float(score))
        self.success = self.success or bool(success)
        self.done = bool(done) or len(self.actions) == self.environment.max_steps

    def rollout(self, n_execute: int) -> Rollout:
        """The recording so far."""
        return Rollout(
            seed=self.seed,
            observations=np.array(self.observations),
            actions=np.array(self.actions),
            scores=np.array(self.scores),
            success=self.success,
            plans=self.plans,
            latencies=np.array(self.latencies),
            n_execute=n_execute,
        )
