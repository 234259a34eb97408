"""Push-T: a round agent pushes a T-shaped block onto its outline (Chi et al., Diffusion Policy, 2023)."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.errors import MissingExtraError
from closedform.evaluation.drawing import Drawing, Shape
from closedform.evaluation.environment import StepResult

_APART = np.array([30.0, 30.0, 256.0, 256.0, 0.0])  # nothing touches, so that the solver remembers no contact
THRESHOLD = 0.95  # of the outline, above which it counts as covered
_SIZE = 512  # pixels, and units of positions
PICTURE_SIZE = 96  # pixels of what a policy is shown
_TEE = Shape(polygons=(((-60, 0), (60, 0), (60, 30), (-60, 30)), ((-15, 30), (15, 30), (15, 120), (-15, 120))))


class PushT:
    """gym-pusht with the protocol of Diffusion Policy's evaluation.

    Start states are drawn with `numpy.random.RandomState(seed)`, as in Diffusion Policy. An episode has 300 steps. The
    score is the covered fraction of the outline divided by 0.95, at most 1; success is a fraction above 0.95, which
    ends the episode.
    """

    observation_layout = PUSHT_OBSERVATIONS
    action_layout = PUSHT_ACTIONS
    max_steps = 300
    rate = 10.0
    task = "push the T onto its outline"
    extent = (0.0, float(_SIZE), float(_SIZE), 0.0)
    drawing = Drawing(extent, {"block": _TEE, "agent": Shape(radius=15)}, {"block": (256, 256, np.pi / 4)})

    def __init__(self):
        self._env: Any = _simulator()(
            obs_type="state",
            render_mode="rgb_array",
            visualization_width=_SIZE,
            visualization_height=_SIZE,
            observation_width=PICTURE_SIZE,
            observation_height=PICTURE_SIZE,
        )

    @classmethod
    def check_installed(cls) -> None:
        """Raises `MissingExtraError` without gym-pusht."""
        _simulator()

    def reset(self, seed: int) -> np.ndarray:
        """Starts from Diffusion Policy's start state for a seed; evaluations use seeds from 100000."""
        return self.start(start_state(seed))

    def start(self, state: np.ndarray) -> np.ndarray:
        """Starts from a state (5,), set as in Diffusion Policy, where setting the angle moves the block a little."""
        observation, _ = self._env.reset(options={"reset_to_state": np.asarray(state, np.float64)})
        return observation

    def restore(self, state: np.ndarray) -> np.ndarray:
        """Starts from a recorded state (5,), exactly."""
        env, state = self._env, np.asarray(state, np.float64)
        env.reset(options={"reset_to_state": _APART})
        env.agent.position = tuple(state[:2])
        env.block.angle = float(state[4])  # before the position: turning a body moves its origin
        env.block.position = tuple(state[2:4])
        for body in (env.agent, env.block):
            env.space.reindex_shapes_for_body(body)
        return env.get_obs()

    def coverage(self, state: np.ndarray) -> float:
        """The fraction of the outline that the block covers at a recorded state (5,); starts from that state."""
        self.restore(state)
        return float(self._env._get_coverage())

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the agent's target to a position (2,) for a tenth of a second."""
        observation, score, success, _, _ = self._env.step(np.asarray(action, np.float64))
        return StepResult(observation, float(score), bool(success), bool(success))

    def render(self) -> np.ndarray:
        """An image of the scene with the outline and, as a cross, the agent's target."""
        return self._env.render()

    def camera_picture(self) -> np.ndarray:
        """The scene in 96x96 pixels, as gym-pusht shows it to policies."""
        return self._env._render()

    def picture(self, observation: np.ndarray) -> np.ndarray:
        """An image of the scene at an observation; the current episode is not affected."""
        other = PushT()
        other.restore(observation)
        return other.render()


@cache
def _simulator() -> Any:
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        from gym_pusht.envs.pusht import PushTEnv, pymunk_to_shapely
    except ImportError as error:
        raise MissingExtraError(error.name or "gym_pusht", "pusht", "the environment 'pusht'") from error

    class Ordered(PushTEnv):
        """gym-pusht, except that a body's shapes have an order.

        It iterates a set of them, whose order follows their addresses: coverage would differ in its last digits between
        processes.
        """

        def _get_coverage(self) -> float:
            goal, block = (
                pymunk_to_shapely(body, self._block_shapes)
                for body in (self.get_goal_pose_body(self.goal_pose), self.block)
            )
            return goal.intersection(block).area / goal.area

    return Ordered


def start_state(seed: int) -> np.ndarray:
    """The start state (5,) for a seed in Diffusion Policy's evaluation: agent x, y, block x, y, angle."""
    rng = np.random.RandomState(seed)
    return np.array(
        [
            rng.randint(50, 450),
            rng.randint(50, 450),
            rng.randint(100, 400),
            rng.randint(100, 400),
            rng.randn() * 2 * np.pi - np.pi,
        ]
    )
