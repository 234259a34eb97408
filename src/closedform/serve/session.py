"""Session: one robot that a policy is served to."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.policies.agent import Agent
from closedform.policies.left_over import LeftOver
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed

PATIENCE = 1.0  # seconds to wait for a request of the same session, such as that of a connection that was lost


class Session:
    """An agent, and the actions of its plans that the robot says it has executed.

    Args:
        policy: what plans.
        name: for messages.
    """

    def __init__(self, policy: Policy[Any], name: str = ""):
        self._agent = Agent(policy)
        self._name = name
        self._lock = threading.Lock()

    def reset(self, seed: Seed = None) -> None:
        """Begins a new episode; the same seed gives the same plans."""
        with self._alone():
            self._agent.reset(seed)

    def plan(self, window: np.ndarray, executed: int | None = None, left_over: LeftOver | None = None) -> Plan:
        """Plans for the newest observations.

        Args:
            window: (N_o, D_o), or (D_o,): one observation is then repeated, unless it is one step after the last.
            executed: how many actions of the last plan the robot has executed; by default `n_execute`.
            left_over: actions that the plan has to continue.
        """
        with self._alone():
            agent, policy = self._agent, self._agent.policy
            executed, most = policy.config.n_execute if executed is None else executed, policy.config.n_action_steps
            if executed > most:
                raise DataError(f"executed: expected at most the {most} actions of a chunk, found {executed}")
            rows = window if window.ndim == 2 else window[None]
            if window.ndim == 1 and executed != 1:
                rows = np.repeat(rows, policy.config.n_obs_steps, axis=0)
            policy.check_observations(rows)  # before any of them is remembered
            if agent.last_plan is not None:
                for action in agent.last_plan.actions[:executed]:
                    policy.acted(action, agent.memory)
            for row in rows[:-1]:
                agent.observe(row)
            return agent.plan(rows[-1], left_over)

    def _alone(self) -> _Alone:
        return _Alone(self._lock, self._name)


class _Alone:
    """Waits a moment if another request of the session is under way, and then refuses."""

    def __init__(self, lock: threading.Lock, name: str):
        self._lock, self._name = lock, name

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=PATIENCE):
            raise DataError(
                f"session {self._name!r}: expected one request at a time, found another one under way; "
                "give each robot a session_id of its own"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()
