"""A small environment for tests, made from outside of the package."""

import os
import time
from pathlib import Path

import numpy as np

from closedform import Demos, Layout
from closedform.errors import MissingExtraError
from closedform.evaluation.environment import StepResult


class Reach:
    """A hand is to reach a target; a step moves it by at most 0.2 toward what is commanded."""

    observation_layout = Layout.of(("hand", "position", 2), ("target", "position", 2))
    action_layout = Layout.of(("hand", "position", 2))
    max_steps = 30
    rate = 10.0

    def reset(self, seed):
        self.hand, self.target = np.random.default_rng(seed).uniform(-1, 1, (2, 2))
        return np.concatenate([self.hand, self.target])

    def step(self, action):
        way = action - self.hand
        self.hand = self.hand + way * min(1.0, 0.2 / max(float(np.linalg.norm(way)), 1e-9))
        left = float(np.linalg.norm(self.target - self.hand))
        return StepResult(np.concatenate([self.hand, self.target]), max(0.0, 1 - left), left < 0.05, left < 0.05)

    def render(self):
        picture = np.full((64, 64, 3), 255, np.uint8)
        for point, color in ((self.target, (0, 160, 0)), (self.hand, (0, 0, 200))):
            x, y = np.clip((point + 1.5) / 3 * 63, 2, 61).astype(int)
            picture[y - 2 : y + 3, x - 2 : x + 3] = color
        return picture


class Displaced(Reach):
    """The same with displacements as actions: they add up to a target, which the hand follows late."""

    observation_layout = Layout.plain(4)
    action_layout = Layout.plain(2)
    max_steps = 120
    gain, lag = 0.05, 3.0

    def reset(self, seed):
        observation = super().reset(seed)
        self.commanded = self.hand.copy()
        return observation

    def step(self, action):
        self.commanded = self.commanded + self.gain * np.clip(action, -1, 1)
        self.hand = self.hand + (self.commanded - self.hand) / (1 + self.lag)
        left = float(np.linalg.norm(self.target - self.hand))
        return StepResult(np.concatenate([self.hand, self.target]), max(0.0, 1 - left), left < 0.02, left < 0.02)


class CrashesAtSeed7(Reach):
    """Kills its process at seed 7, unless a file says that it was mended."""

    def reset(self, seed):
        if seed == 7 and not os.environ.get("TOY_MENDED"):
            os._exit(1)
        return super().reset(seed)


class Slow(Reach):
    """Takes its time."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


class Held(Slow):
    """Does not go beyond the first few episodes until a file says so."""

    def reset(self, seed):
        while seed >= 100_004 and not Path(os.environ["TOY_RELEASE"]).exists():
            time.sleep(0.02)
        return super().reset(seed)


class Broken(Reach):
    """Cannot be made."""

    def __init__(self):
        raise RuntimeError("no simulator")


class WithoutLayout(Reach):
    """Says how wide actions are instead of what they are."""

    action_layout = 2


class Endless(Reach):
    """Has no steps."""

    max_steps = 0


class StopsAtSeed3(Reach):
    """Raises an error of its own."""

    def reset(self, seed):
        if seed == 3:
            raise ValueError("no more")
        return super().reset(seed)


class Counted(Reach):
    """Leaves a file for each one that is built, named after its process."""

    def __init__(self):
        folder = Path(os.environ["TOY_BUILT"])
        (folder / f"{os.getpid()}-{len(list(folder.iterdir()))}").touch()


def counted():
    """Makes one without saying what it is like."""
    return Counted()


class Contradicting(Reach):
    """Is not what its class says."""

    def __init__(self):
        self.observation_layout = Layout.plain(4)


class Uninstalled(Counted):
    """Lacks a simulator."""

    @classmethod
    def check_installed(cls):
        raise MissingExtraError("simulator", "toys", "the environment 'toy'")


class NotAnEnvironment:
    """Has nothing that an environment has."""


def reach_demos(n_episodes: int = 20, seed: int = 0) -> Demos:
    """A hand that goes straight to its target."""
    environment, episodes = Reach(), []
    for episode in range(n_episodes):
        observation = environment.reset(1000 * seed + episode)
        observations, actions = [], []
        for _ in range(15):
            observations.append(observation)
            actions.append(observation[2:] + 0.0)
            observation = environment.step(actions[-1]).observation
        episodes.append((np.array(observations), np.array(actions)))
    return Demos(episodes, Reach.observation_layout, Reach.action_layout, rate=10.0)


def displaced_demos(n_episodes: int = 20, seed: int = 0) -> Demos:
    """A hand that goes to its target by noisy displacements, and waits there; nothing is declared."""
    environment, episodes = Displaced(), []
    for episode in range(n_episodes):
        observation = environment.reset(1000 * seed + episode)
        rng = np.random.default_rng(episode)
        observations, actions = [], []
        for _ in range(70):
            observations.append(observation)
            wanted = (observation[2:] - environment.commanded) / environment.gain
            wanted = np.clip(wanted, -0.8, 0.8) + rng.normal(0, 0.3, 2)
            actions.append(np.clip(wanted, -1, 1))
            observation = environment.step(actions[-1]).observation
        episodes.append((np.array(observations), np.array(actions)))
    return Demos(episodes, rate=10.0)


class LoadedOnce:
    """A job that leaves a file for each process that loads it; a second time in the same process it fails."""

    def __init__(self, folder):
        self.folder = folder

    def __setstate__(self, state):
        self.__dict__.update(state)
        (self.folder / f"loaded-{os.getpid()}").touch(exist_ok=False)

    def run(self, task):
        return task * task

    def label(self, task):
        return f"number {task}"


class Wide:
    """A job of many numbers, whose tasks wait until so many processes have one, and say where they ran."""

    def __init__(self, folder, n_processes):
        self.folder, self.n_processes = folder, n_processes
        self.numbers = np.zeros(500_000)

    def run(self, task):
        import ray

        (self.folder / f"runs-{os.getpid()}").touch()
        while len(list(self.folder.glob("runs-*"))) < self.n_processes:
            time.sleep(0.02)
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def label(self, task):
        return f"number {task}"
