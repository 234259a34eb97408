"""Agent: one running episode of a policy."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import DataError
from closedform.policies.other_names import AgentNames
from closedform.policies.plan import Plan
from closedform.policies.randomness import Seed, generator
from closedform.weights.state import State

if TYPE_CHECKING:
    from closedform.policies.policy import Policy
    from closedform.weights.terms.action_prefix import ActionPrefix


class Agent(AgentNames):
    """Runs a policy in a control loop: history of observations, receding horizon, loop memory and randomness.

    An agent belongs to one thread; many agents may share a policy.

        agent = policy.agent(seed=0)
        while not done:
            observation = step(agent.act(observation))

    Args:
        policy: what plans.
        seed: an integer or a generator.
        warm_up: whether to plan once now, so that compiled code is loaded before the robot moves.

    Attributes:
        last_plan: the plan whose actions are being executed.
        state: what the policy carries from plan to plan.
        rng: its random numbers.
    """

    def __init__(self, policy: Policy[Any], seed: Seed = None, *, warm_up: bool = True):
        self.policy = policy
        self.rng = generator(seed)
        self._perceiver = None if policy.perceiver is None else policy.perceiver.fresh()
        if warm_up:
            policy.warm_up()
        self.reset()

    def reset(self, seed: Seed = None) -> None:
        """Begins a new episode; without a seed the random generator continues, as in gymnasium."""
        if seed is not None:
            self.rng = generator(seed)
        self._history: deque[np.ndarray] = deque(maxlen=self.policy.config.n_obs_steps)
        self._queue: deque[np.ndarray] = deque()
        if self._perceiver is not None:
            self._perceiver.reset()
        self.state = self.policy.begin()
        self.last_plan: Plan | None = None

    def __repr__(self) -> str:
        state = "before its first step" if self.last_plan is None else f"{len(self._queue)} planned actions left"
        return f"Agent({self.policy!r}, {state})"

    @property
    def plans_next(self) -> bool:
        """Whether the next call of `act` plans."""
        return not self._queue

    @property
    def window(self) -> np.ndarray:
        """(N_o, D_o), the newest observations, as the last plan saw them."""
        return np.stack(self._history)

    def act(self, observation: Any) -> np.ndarray:
        """The action (D_a,) for the newest observation (D_o,); plans when the last chunk was executed.

        An observation may be a dictionary: of numbers by name, as gymnasium's Dict spaces have them, in any order; or
        with images, if the demonstrations were perceived. See `read_named` and `Perceiver.perceive`.
        """
        if self.plans_next:
            self.plan(observation)
        else:
            self.observe(observation)
        return self.next_action()

    def plan(self, observation: Any, prefix: ActionPrefix | None = None) -> Plan:
        """Plans now; the next `n_execute` calls of `act` execute it.

        Args:
            observation: (D_o,), the newest one.
            prefix: actions of the last chunk that the plan has to continue.
        """
        self.observe(observation)
        state = self.state if prefix is None else self.policy.conditioned(self.state, self.window, prefix)
        plan, state = self.policy.step(self.window, state, self.rng)
        self.follow(plan if prefix is None else prefix.join(plan, self.policy.action_layout), state)
        assert self.last_plan is not None
        return self.last_plan

    def follow(self, plan: Plan, state: State) -> None:
        """Executes a plan from its first action on, and takes the state after it."""
        self.state = state
        self._queue = deque(plan.actions[: self.policy.config.n_execute])
        self.last_plan = plan

    def next_action(self) -> np.ndarray:
        """The next action of the plan that is being executed."""
        action = self._queue.popleft().copy()
        self.state = self.policy.acted(self.state, action)
        return action

    def observe(self, observation: Any) -> None:
        """Appends the newest observation (D_o,) to the window."""
        observation = real_array(self.policy.perceived(observation, self._perceiver), "an observation")
        if observation.ndim != 1:
            raise DataError(f"expected one observation, (D_o,), found shape {observation.shape}")
        observation = self.policy.check_observations(observation[None])[0].copy()
        if not self._history:
            self._history.extend([observation] * self.policy.config.n_obs_steps)
        else:
            self._history.append(observation)


def act_together(agents: Sequence[Agent], observations: Sequence[Any]) -> list[np.ndarray]:
    """`act` for several agents of one policy; those that have to plan do so in one batch."""
    for agent, observation in zip(agents, observations, strict=True):
        agent.observe(observation)
    planning = [agent for agent in agents if agent.plans_next]
    if planning:
        made = planning[0].policy.step_together(
            [agent.window for agent in planning],
            [agent.state for agent in planning],
            [agent.rng for agent in planning],
        )
        for agent, (plan, state) in zip(planning, made, strict=True):
            agent.follow(plan, state)
    return [agent.next_action() for agent in agents]
