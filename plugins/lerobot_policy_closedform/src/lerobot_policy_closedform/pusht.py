"""LeRobotPushT: Push-T as `lerobot-eval --env.type=pusht` runs it, for `closedform eval --env lerobot_pusht`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.evaluation.environment import StepResult
from lerobot_policy_closedform.observations import pusht_poses


class LeRobotPushT:
    """gym-pusht with its own start states, seen as LeRobot sees it: float32, the block's pose from its keypoints.

    The environment `pusht` starts from Diffusion Policy's states instead, so the same seeds are other episodes there.
    """

    observation_layout = PUSHT_OBSERVATIONS
    action_layout = PUSHT_ACTIONS
    max_steps = 300
    rate = 10.0

    def __init__(self):
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        from gym_pusht.envs.pusht import PushTEnv

        self._env: Any = PushTEnv(obs_type="environment_state_agent_pos", render_mode="rgb_array")

    def reset(self, seed: int) -> np.ndarray:
        """Starts from gym-pusht's start state for a seed."""
        return _seen(self._env.reset(seed=seed)[0])

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the agent's target to a position (2,) for a tenth of a second."""
        observation, score, success, _, _ = self._env.step(np.asarray(action, np.float32))
        return StepResult(_seen(observation), float(score), bool(success), bool(success))

    def render(self) -> np.ndarray:
        """An image of the scene."""
        return self._env.render()


def _seen(observation: dict[str, np.ndarray]) -> np.ndarray:
    numbers = np.concatenate([observation["agent_pos"], observation["environment_state"]])
    return pusht_poses(numbers.astype(np.float32).astype(np.float64))
