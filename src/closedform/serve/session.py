"""Session: one robot that a policy is served to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.policies.agent import Agent
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed
from closedform.weights.state import State
from closedform.weights.terms.action_prefix import ActionPrefix

PATIENCE = 1.0  # seconds to wait for a request of the same session, such as that of a connection that was lost


class Session:
    """An agent, and the actions of its plans that the robot says it has executed.

    Args:
        policy: what plans; it has warmed up.
        name: for messages.
    """

    def __init__(self, policy: Policy[Any], name: str = ""):
        self.agent = Agent(policy, warm_up=False)
        self._name = name
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Begins a request, if no other one of this session is under way."""
        return self._lock.acquire(blocking=False)

    def release(self) -> None:
        """Ends a request."""
        self._lock.release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """A request; waits a moment if another one is under way, and then refuses."""
        if not self._lock.acquire(timeout=PATIENCE):
            raise DataError(
                f"session {self._name!r}: expected one request at a time, found another one under way; "
                "give each robot a session_id of its own"
            )
        try:
            yield
        finally:
            self._lock.release()

    def reset(self, seed: Seed = None) -> None:
        """Begins a new episode; the same seed gives the same plans. Within a request."""
        self.agent.reset(seed)

    def observe(self, window: np.ndarray, executed: int | None) -> None:
        """Tells the agent the newest observations and what was executed. Within a request.

        Args:
            window: (N_o, D_o), or (D_o,): one observation is then repeated, unless it is one step after the last.
            executed: how many actions of the last plan the robot has executed; by default `n_execute`.
        """
        agent, policy = self.agent, self.agent.policy
        executed, most = policy.config.n_execute if executed is None else executed, policy.config.n_action_steps
        if executed > most:
            raise DataError(f"executed: expected at most the {most} actions of a chunk, found {executed}")
        rows = window if window.ndim == 2 else window[None]
        if window.ndim == 1 and executed != 1:
            rows = np.repeat(rows, policy.config.n_obs_steps, axis=0)
        policy.check_observations(rows)  # before any of them is remembered
        if agent.last_plan is not None:
            for action in agent.last_plan.actions[:executed]:
                agent.state = policy.acted(agent.state, action)
        for row in rows:
            agent.observe(row)


@dataclass(frozen=True)
class Asked:
    """A request for a plan.

    Attributes:
        session: of the robot.
        window, executed: as for `Session.observe`.
        prefix: actions that the plan has to continue.
    """

    session: Session
    window: np.ndarray
    executed: int | None = None
    prefix: ActionPrefix | None = None


def plan_together(requests: Sequence[Asked]) -> list[Plan | Exception]:
    """Plans for several sessions of one policy, each within a request: a plan, or why there is none, for each."""
    made: dict[int, Plan | Exception] = {}
    states: dict[int, State] = {}
    for index, asked in enumerate(requests):
        agent = asked.session.agent
        try:
            asked.session.observe(asked.window, asked.executed)
            state = agent.state
            if asked.prefix is not None:
                state = agent.policy.conditioned(state, agent.window, asked.prefix)
            states[index] = state
        except Exception as error:
            made[index] = error
    _plan(requests, states, made)
    return [made[index] for index in range(len(requests))]


def _plan(requests: Sequence[Asked], states: dict[int, State], made: dict[int, Plan | Exception]) -> None:
    """Plans for those that have a state; if that fails, one by one, so that the others get their plans."""
    agents = {index: requests[index].session.agent for index in states}
    if not agents:
        return
    policy = next(iter(agents.values())).policy
    drawn = {index: agent.rng.bit_generator.state for index, agent in agents.items()}
    try:
        plans = policy.step_together(
            [agent.window for agent in agents.values()],
            [states[index] for index in agents],
            [agent.rng for agent in agents.values()],
        )
        for index, (plan, state) in zip(agents, plans, strict=True):
            prefix = requests[index].prefix
            plan = plan if prefix is None else prefix.join(plan, policy.action_layout)
            agents[index].follow(plan, state)
            made[index] = plan
    except Exception as error:
        if len(agents) == 1:
            made.update(dict.fromkeys(agents, error))
            return
        for index, agent in agents.items():
            agent.rng.bit_generator.state = drawn[index]
            _plan(requests, {index: states[index]}, made)
