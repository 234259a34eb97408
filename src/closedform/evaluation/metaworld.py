"""Meta-World: fifty tabletop tasks of one arm (Yu et al., 2019), version 3, with the goal in the observation."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.errors import ConfigError, MissingExtraError
from closedform.evaluation.environment import StepResult
from closedform.geometry.layout import Layout


class MetaWorld:
    """A task of Meta-World as it is: observations of 39 numbers, actions of 4, and no layouts.

    The observation holds hand position, gripper opening and up to two objects (position and quaternion each, zeros if
    there is none), the same for the previous step, and the goal's position. An action is a displacement of the hand's
    target, 1 cm for 1, and the gripper's effort, all within [-1, 1].

    The seed determines where objects and goal are. Success ends the episode, which has at most 500 steps; the score is
    1 with success and 0 without.

    Args:
        task: its name, as in `reach-v3`.
    """

    observation_layout = Layout.plain(39)
    action_layout = Layout.plain(4)
    commands = "displacements"
    max_steps = 500
    rate = 80.0

    def __init__(self, task: str):
        self.task = task
        self._env = _tasks(task)(seed=0, render_mode="rgb_array")
        self._env._freeze_rand_vec = False  # objects and goal are drawn again at every reset,
        self._env.seeded_rand_vec = True  # from the generator that `seed` makes

    def reset(self, seed: int) -> np.ndarray:
        """Starts the episode of a seed; published evaluations use seeds from 100000."""
        self._env.seed(seed)
        observation, _ = self._env.reset()
        return observation

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the hand's target and the gripper for an eightieth of a second."""
        observation, _, _, _, info = self._env.step(np.clip(np.asarray(action, np.float64), -1, 1))
        success = bool(info["success"])
        return StepResult(observation, float(success), success, success)

    def render(self) -> np.ndarray:
        """An image of the scene; without a display this needs MUJOCO_GL=egl or osmesa."""
        return np.asarray(self._env.render())


def make(task: str) -> MetaWorld:
    """The environment `metaworld:TASK`."""
    return MetaWorld(task)


def task_names() -> tuple[str, ...]:
    """All tasks."""
    return tuple(sorted(_classes()))


def _classes() -> dict[str, Any]:
    try:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE as classes
    except ImportError as error:
        raise MissingExtraError(error.name or "metaworld", "metaworld", "an environment of Meta-World") from error
    return {name.removesuffix("-goal-observable"): found for name, found in classes.items()}


def _tasks(task: str) -> Any:
    classes = _classes()
    if task not in classes:
        raise ConfigError(f"no task {task!r} in Meta-World: expected one of {', '.join(sorted(classes))}")
    return classes[task]
