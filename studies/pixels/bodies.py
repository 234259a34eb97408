"""Push-T from pictures: demonstrations perceived by many processes, and how far poses are from the truth."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.load import load_demos, save_demos
from closedform.evaluation.environment import make_environment
from closedform.evaluation.pool import Task
from closedform.evaluation.pusht import PushT
from closedform.evaluation.pusht_pixels import PushTPixels
from closedform.evaluation.rollout import Rollout
from studies.runner import Runner

DEMOS = "pusht"
_N_TIMED = 300  # pictures


def perceived(runner: Runner, env: str) -> Demos:
    """The demonstrations as the camera of an environment sees them, from the work folder if they are there."""
    path = runner.work / f"demos_{env.replace(':', '_').replace('=', '_')}"
    if not path.exists():
        save_demos(_perceive(runner, env), path, "folder")
    return load_demos(str(path))


def _perceive(runner: Runner, env: str) -> Demos:
    demos, job = load_demos(DEMOS), _Perceiving(env)
    found: dict[int, Episode] = {}
    with runner.where.pool([job], len(demos)) as pool, tqdm(total=len(demos), desc=f"perceiving {env}") as bar:
        for task, episode in pool.results(Task(0, (number, one)) for number, one in enumerate(demos)):
            found[task.task[0]] = episode
            bar.update()
    episodes = [found[number] for number in range(len(demos))]
    return Demos(episodes, PushTPixels.observation_layout, demos.action_layout, demos.rate)


class _Perceiving:
    """Perceives episodes; the environment is made in the process that needs it."""

    def __init__(self, env: str):
        self._env = env

    def label(self, task: tuple[int, Episode]) -> str:
        """What to call a task in a message."""
        return f"episode {task[0]}"

    def run(self, task: tuple[int, Episode]) -> Episode:
        """An episode, perceived."""
        environment = make_environment(self._env)  # what it learns is kept
        assert isinstance(environment, PushTPixels)
        return environment.perceived(task[1], task[0])


@dataclass(frozen=True)
class PoseErrors:
    """How far the poses of a rollout are from the truth: `evaluate(describe=...)`.

    The center and the angle 0 of a found body are arbitrary, so they are fitted, on demonstrations.

    Attributes:
        turn: the angle of the found body at the T's angle 0.
        center: (2,), of the found body in the T's frame.
    """

    turn: float
    center: tuple[float, float]

    @classmethod
    def fit(cls, seen: Demos, true: Demos) -> PoseErrors:
        """From perceived demonstrations and their states."""
        found, states = seen.all_observations()[:, 2:], true.all_observations()[:, 2:]
        turn = float(np.angle(np.exp(1j * (found[:, 2] - states[:, 2])).mean()))
        own = [_turned(away, -angle) for away, angle in zip(found[:, :2] - states[:, :2], states[:, 2], strict=True)]
        x, y = np.median(own, axis=0)
        return cls(turn, (float(x), float(y)))

    def of(self, found: np.ndarray, state: np.ndarray) -> tuple[float, float]:
        """The errors of a found pose (3,) at a state (5,): in units of 512 a side, and in degrees."""
        away = found[:2] - state[2:4] - _turned(np.array(self.center), state[4])
        angle = np.angle(np.exp(1j * (found[2] - state[4] - self.turn)))
        return float(np.hypot(*away)), float(np.degrees(np.abs(angle)))

    def __call__(self, rollout: Rollout) -> dict[str, Any]:
        """The errors of all steps; the simulator replays the actions, which gives the same states."""
        simulator = PushT()
        states = [simulator.reset(rollout.seed), *(simulator.step(action).observation for action in rollout.actions)]
        errors = [self.of(row[2:], state) for row, state in zip(rollout.observations, states, strict=True)]
        positions, angles = zip(*errors, strict=True)
        return {"position_errors": np.round(positions, 2).tolist(), "angle_errors": np.round(angles, 2).tolist()}


def _turned(vector: np.ndarray, angle: float) -> np.ndarray:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([cos * vector[0] - sin * vector[1], sin * vector[0] + cos * vector[1]])


def frame_ms(take: Callable[[np.ndarray, np.ndarray], object], episode: Episode) -> dict[str, float]:
    """How long it takes to perceive the pictures of an episode, one after the other, in milliseconds.

    Args:
        take: perceives a picture, given the state (5,) at that time.
        episode: of states.
    """
    simulator, taken = PushT(), []
    for state in episode.observations[:_N_TIMED]:
        simulator.restore(state)
        picture = simulator.camera_picture()
        start = time.perf_counter()
        take(picture, state)
        taken.append(1e3 * (time.perf_counter() - start))
    return {"frame_ms": round(float(np.median(taken)), 2), "frame_ms_p95": round(float(np.quantile(taken, 0.95)), 2)}
