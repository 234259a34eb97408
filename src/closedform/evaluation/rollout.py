"""Rollout: one episode of a policy in an environment."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.evaluation.environment import Environment
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy

LOOP = 4  # plans led by the same demonstrated stretch that are called a loop


@dataclass(frozen=True)
class Rollout:
    """What happened.

    Attributes:
        seed: of the start state and of the policy's randomness.
        observations: (T + 1, D_o), the first one before any action.
        actions: (T, D_a)
        scores: (T,), of the state after each action.
        success: whether the task was done.
        plans: the plans, each with the step at which it was made.
        latencies: (plans,), seconds that each plan took.
        n_execute: actions executed of each plan.
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
        """The best score that was reached."""
        return float(self.scores.max(initial=0.0))

    @property
    def most_repeated(self) -> int:
        """How many plans were led by the same stretch of a demonstration, for the stretch that led most."""
        plans = (plan for _, plan in self.plans if len(plan.episodes))
        led = Counter((int(p.episodes[0]), int(p.steps[0]) // self.n_execute) for p in plans)
        return max(led.values(), default=0)

    def demonstrations(self, n: int = 3) -> list[tuple[int, float]]:
        """The demonstrations that drove it most, with their share of all plans."""
        used: dict[int, float] = defaultdict(float)
        for _, plan in self.plans:
            for episode, weight in zip(plan.episodes, plan.weights, strict=True):
                used[int(episode)] += float(weight) / len(self.plans)
        return sorted(used.items(), key=lambda item: -item[1])[:n]

    def to_json(self) -> dict[str, Any]:
        """The row of a results file."""
        return {
            "seed": self.seed,
            "score": self.score,
            "success": self.success,
            "steps": len(self.actions),
            "most_repeated": self.most_repeated,
            "loop": self.most_repeated >= LOOP,
            "demonstrations": [[episode, round(share, 4)] for episode, share in self.demonstrations()],
            "distances": [round(plan.distance, 4) for _, plan in self.plans],
            "latency_ms": [round(1e3 * seconds, 4) for seconds in self.latencies],
        }


def roll_out(
    environment: Environment, policy: Policy[Any], seed: int, watch: Callable[[], None] | None = None
) -> Rollout:
    """Runs one episode.

    Args:
        environment: where.
        policy: what acts; its agent draws its random numbers from the same seed.
        seed: of the episode.
        watch: called before the first action and after every one, to look at the environment.
    """
    agent = policy.agent(seed=seed)
    observation = environment.reset(seed)
    observations, actions, scores = [observation], [], []
    plans: list[tuple[int, Plan]] = []
    latencies: list[float] = []
    success = False
    if watch:
        watch()
    for step in range(environment.max_steps):
        before, start = agent.last_plan, time.perf_counter()
        action = agent.act(observation)
        if agent.last_plan is not None and agent.last_plan is not before:
            latencies.append(time.perf_counter() - start)
            plans.append((step, agent.last_plan))
        observation, score, success_now, done = environment.step(action)
        observations.append(observation)
        actions.append(action)
        scores.append(score)
        success = success or success_now
        if watch:
            watch()
        if done:
            break
    return Rollout(
        seed=seed,
        observations=np.array(observations),
        actions=np.array(actions),
        scores=np.array(scores),
        success=success,
        plans=plans,
        latencies=np.array(latencies),
        n_execute=policy.config.n_execute,
    )
