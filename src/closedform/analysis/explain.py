"""Explanations: the demonstrations behind a plan, and how familiar its observation is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.analysis.familiarity import Familiarity
from closedform.diffusion.sampler import SAMPLERS, Step
from closedform.errors import ConfigError
from closedform.evaluation.environment import Environment
from closedform.evaluation.rollout import Rollout
from closedform.policies.agent import Agent
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan
from closedform.store.model import Model
from closedform.transfer.frame import voters
from closedform.weights.state import State

LEVELS = (1.0, 0.4, 0.1, 0.0)  # of noise, at which the sampling is shown


@dataclass(frozen=True)
class Explanation:
    """A plan and the data behind it.

    Attributes:
        step: of the rollout at which the plan was made; 0 for a single observation.
        observation: (D_o,), the latest one.
        plan: the plan.
        n_execute: how many of its actions are executed.
        transferred: (m, N_a, D_a), the chunks of `plan.episodes`, transferred to the current scene.
        nearest: (episode, step, distance) of the nearest window of each of the nearest episodes.
        nearest_transferred: (len(nearest), N_a, D_a), their chunks, likewise transferred.
        levels: noise levels, from 1 (noise) to 0 (a chunk); empty for policies without diffusion.
        evolution: (levels, n, N_a, D_a), samples at these noise levels.
        familiarity: the distribution of usual distances.
        first: whether the observation is the first one of an episode.
    """

    step: int
    observation: np.ndarray
    plan: Plan
    n_execute: int
    transferred: np.ndarray
    nearest: list[tuple[int, int, float]]
    nearest_transferred: np.ndarray
    levels: tuple[float, ...]
    evolution: np.ndarray
    familiarity: Familiarity
    first: bool = False

    @property
    def usual(self) -> Familiarity:
        """The distances that its own is compared with."""
        return self.familiarity.at(first=self.first)

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain lists and dictionaries."""
        plan, familiarity = self.plan, self.usual
        return {
            "step": self.step,
            "observation": self.observation.tolist(),
            "frame": plan.frame,
            "held": plan.held,
            "shrinkage": plan.shrinkage,
            "distance": plan.distance,
            "share_of_demonstrations_nearer": familiarity.share_nearer(plan.distance),
            "alarm": familiarity.alarm(plan),
            "false_alarm_rate": familiarity.false_alarm_rate,
            "n_effective": plan.n_effective,
            "demonstrations": [
                {"episode": int(episode), "step": int(step), "weight": float(weight)}
                for episode, step, weight in zip(plan.episodes, plan.steps, plan.weights, strict=True)
            ],
            "nearest": [{"episode": e, "step": s, "distance": d} for e, s, d in self.nearest],
            "actions": plan.actions.tolist(),
        }


def explain(
    policy: DemonstrationPolicy[Any], observation: Any, familiarity: Familiarity, *, seed: int = 0, n_samples: int = 16
) -> Explanation:
    """Explains the plan for one observation (D_o,).

    Args:
        policy: any policy made of demonstrations.
        observation: the observation to plan for.
        familiarity: of the policy (`measure_familiarity`).
        seed: of the plan and the samples.
        n_samples: the number of samples that illustrate the diffusion.
    """
    return _explain(policy, policy.agent(seed=seed), observation, familiarity, seed, n_samples, 0)


def explain_rollout(
    environment: Environment,
    policy: DemonstrationPolicy[Any],
    familiarity: Familiarity,
    *,
    seed: int,
    step: int = 0,
    n_samples: int = 16,
) -> Explanation:
    """Runs an episode and explains the first plan at or after a step, with the agent's memory at that step.

    Args:
        environment: where the episode runs.
        policy: what is explained.
        familiarity: of the same policy, from `measure_familiarity`.
        seed: of the episode and the agent.
        step: from which on a plan is explained.
        n_samples: chunks that are drawn at the same observation.
    """
    agent, observation = policy.agent(seed=seed), environment.reset(seed)
    for t in range(environment.max_steps):
        if t >= step and agent.plans_next:
            told = _explain(policy, agent, observation, familiarity, seed, n_samples, t)
            return replace(told, first=t == 0)
        observation, _, _, done = environment.step(agent.act(observation))
        if done:
            raise ConfigError(
                f"the episode of seed {seed} ended after {t + 1} steps: expected a step before that, found {step}"
            )
    raise ConfigError(f"an episode has {environment.max_steps} steps: expected a step before that, found {step}")


def eventful_step(rollout: Rollout) -> int:
    """The step of the plan that raised the score most, or, if none did, of the one farthest from the demonstrations.

    Plans that reach beyond the end of the episode are left out, unless all of them do: little happens after them.
    """
    n = len(rollout.actions)
    bounds = [*(step for step, _ in rollout.plans), n]
    scores = np.concatenate([[rollout.scores[0]], rollout.scores])
    whole = [i for i, (step, plan) in enumerate(rollout.plans) if step + len(plan.actions) <= n]
    plans = whole or list(range(len(rollout.plans)))
    gains = [scores[bounds[i + 1]] - scores[bounds[i]] for i in plans]
    if max(gains) <= 0:
        gains = [rollout.plans[i][1].distance for i in plans]
    return bounds[plans[int(np.argmax(gains))]]


def _explain(
    policy: DemonstrationPolicy[Any],
    agent: Agent,
    observation: Any,
    familiarity: Familiarity,
    seed: int,
    n_samples: int,
    step: int,
) -> Explanation:
    state = agent.state
    plan = agent.plan(observation)
    model, store, window = policy.model, policy.store, agent.window
    near = model.near(window, policy.n_neighbors(model))
    closest = voters(near.squared_distances, store.row_episodes[near.rows])
    levels: tuple[float, ...] = ()
    evolution = np.empty((0, n_samples, *plan.actions.shape))
    if isinstance(policy, ClosedFormPolicy):
        levels, evolution = _evolve(policy, model, window, plan, state, seed, n_samples)
    return Explanation(
        step=step,
        observation=window[-1],
        plan=plan,
        n_execute=policy.config.n_execute,
        transferred=transferred_chunks(
            model, window, store.rows_at(plan.episodes, plan.steps, 0 if plan.copies is None else plan.copies), plan
        ),
        nearest=[
            (int(store.episode_ids[store.row_episodes[row]]), int(store.row_steps[row]), float(distance))
            for row, distance in zip(near.rows[closest], np.sqrt(near.squared_distances[closest]), strict=True)
        ],
        nearest_transferred=transferred_chunks(model, window, near.rows[closest], plan),
        levels=levels,
        evolution=evolution,
        familiarity=familiarity,
    )


def _evolve(
    policy: ClosedFormPolicy,
    model: Model,
    window: np.ndarray,
    plan: Plan,
    state: State,
    seed: int,
    n_samples: int,
) -> tuple[tuple[float, ...], np.ndarray]:
    """Samples at a few noise levels, in robot units."""
    config, process, sampler = policy.config, policy.config.make_process(), SAMPLERS[policy.config.sampler]
    rng = np.random.default_rng(seed)
    denoiser = policy.denoiser(window, seed=rng, choice=plan.choice, state=state)
    passed: list[tuple[float, np.ndarray]] = []

    def keep(step: Step) -> None:
        passed.append((float(step.time), np.array(step.sample)))

    noise = rng.standard_normal((n_samples, model.transfer.chunk_size))
    final = sampler(denoiser, process, noise, n_steps=config.n_diffusion_steps, rng=rng, callback=keep)
    passed.append((0.0, final))
    start = passed[0][0]
    picked = [int(np.argmin([abs(time / start - level) for time, _ in passed])) for level in LEVELS]
    chosen = np.array([plan.choice])
    encoded = [model.transfer.back(passed[i][1][None], chosen, window[None, -1]) for i in picked]
    chunks = [policy.planner.to_robot(each, window[None])[0] for each in encoded]
    return tuple(passed[i][0] / start for i in picked), np.array(chunks)


def transferred_chunks(model: Model, window: np.ndarray, rows: np.ndarray, plan: Plan) -> np.ndarray:
    """Demonstrated chunks (m, N_a, D_a), each transferred as if it were executed now on its own."""
    assert plan.choice is not None  # a policy of demonstrations made it
    transfer = model.transfer
    poses = np.repeat(transfer.spec.body_poses(window[-1:]), len(rows), axis=0)
    chunks = transfer.chunks(model.store, rows, plan.choice)
    chunks = transfer.encoding.decode(transfer.out_of(chunks, poses, plan.choice))
    return model.spec.rewrites.to_actions(chunks, np.repeat(window[-1:], len(chunks), axis=0))
