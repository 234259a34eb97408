"""Scripted demonstrations of Meta-World: its own experts, with noise on their actions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.load import load_demos, save_demos
from closedform.errors import ClosedFormError
from closedform.evaluation.metaworld import MetaWorld
from closedform.files import read_json, write_file

NOISE = 0.4  # standard deviation, of actions within [-1, 1]: on the development tasks noisy experts succeed in 0.85
AFTER = 10  # steps recorded from success on, as in the scripted demonstrations of robomimic's tasks
N_DEMOS = 25
MOST_SEEDS = 1000  # tried per task before giving up; all are far below those of the evaluation


def demonstrations(task: str, folder: Path) -> Demos:
    """The demonstrations of a task, recorded if missing."""
    path = folder / task
    if not path.exists():
        record(task, path)
    return load_demos(str(path))


def record(task: str, path: Path, n_demos: int = N_DEMOS, noise: float = NOISE) -> None:
    """Records the successful episodes of a task's noisy expert, with seeds 0, 1, ..., and its success rate.

    The recorded actions are the executed ones, including noise, as they would be for a person.

    Args:
        task: its name.
        path: the folder to write; `TASK.json` beside it records the expert's successes and attempts.
        n_demos: the number of successful episodes.
        noise: standard deviation of the noise on each number of an action, before it is clipped to [-1, 1].
    """
    environment, expert = MetaWorld(task), _expert(task)
    episodes: list[Episode] = []
    attempts = 0
    while len(episodes) < n_demos:
        if attempts == MOST_SEEDS:
            raise ClosedFormError(f"{task}: expected {n_demos} successes of {attempts} attempts, found {len(episodes)}")
        found = _episode(environment, expert, attempts, noise)
        attempts += 1
        if found is not None:
            episodes.append(found)
    demos = Demos(episodes, MetaWorld.observation_layout, MetaWorld.action_layout, MetaWorld.rate)
    facts = {"task": task, "noise": noise, "attempts": attempts, "successes": n_demos, "steps": demos.n_steps}
    write_file(path.with_suffix(".json"), json.dumps(facts) + "\n")
    save_demos(demos, path, "folder")


def expert_success(task: str, folder: Path) -> float | None:
    """The success rate of the noisy expert during recording; None if unknown."""
    path = (folder / task).with_suffix(".json")
    if not path.exists():
        return None
    facts = read_json(path, "facts about a recording")
    return facts["successes"] / facts["attempts"]


def _expert(task: str) -> object:
    from metaworld.policies import ENV_POLICY_MAP

    return ENV_POLICY_MAP[task]()


def _episode(environment: MetaWorld, expert: object, seed: int, noise: float) -> Episode | None:
    """An episode until a few steps after success; None if it fails."""
    rng = np.random.default_rng(seed)
    observation, observations, actions, left = environment.reset(seed), [], [], None
    for _ in range(environment.max_steps):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Constant", UserWarning)  # a warning that its gains are clipped, as we do
            seen = observation.copy()  # some experts write to it
            meant = expert.get_action(seen)  # pyright: ignore[reportAttributeAccessIssue]
        action = np.clip(np.clip(meant, -1, 1) + noise * rng.standard_normal(4), -1, 1)
        observations.append(observation)
        actions.append(action)
        observation, _, success, _ = environment.step(action)
        left = AFTER if left is None and success else left
        if left is not None:
            left -= 1
            if left < 0:
                break
    return None if left is None else Episode(np.array(observations), np.array(actions))
