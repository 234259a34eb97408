"""Push-T from pictures without bodies: encoders, readouts and projections, each in its own evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np
from tqdm import tqdm

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.load import load_demos
from closedform.evaluation.environment import StepResult
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pool import Task
from closedform.evaluation.pusht import PushT
from closedform.evaluation.study import Study
from closedform.evaluation.subject import Subject
from closedform.geometry.layout import Entry, Layout
from closedform.policies.choice import make_policy
from closedform.vision.encoder import Encoder
from closedform.vision.encoders import make_encoder
from closedform.vision.features import features_layout, horizon_of
from closedform.vision.projection import Projection
from closedform.vision.readout import Readout
from closedform.vision.torch_encoder import Lite0
from studies.pixels.bodies import DEMOS
from studies.runner import Runner

AGENT = Layout.parse("agent position 2")
N_LEARNED = 150  # pictures that tell what is usual
BLOCK = 16  # pictures read at once


@dataclass(frozen=True)
class Candidate:
    """One way to turn pictures into numbers.

    Attributes:
        encoder: its name; `lite0-5` has five blocks.
        order: of the moments; 0 for averages on a grid.
        grid: cells of that grid along each side.
        projection: `pca`, or what reduced-rank regression predicts: `actions`, `features` or `both`.
        rank: how many numbers.
        layout: `one unit` for all features, or `each scaled` by itself.
        settings: of the default policy, that are not as by default.
    """

    encoder: str
    order: int = 3
    grid: int = 6
    projection: str = "both"
    rank: int = 12
    layout: str = "one unit"
    settings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its name among the evaluations."""
        read = f"moments{self.order}" if self.order else f"grid{self.grid}"
        scaled = "" if self.layout == "one unit" else "_scaled"
        changed = "".join(f"_{one.replace('=', '-')}" for one in self.settings)
        return f"{self.encoder}_{read}_{self.projection}{self.rank}{scaled}{changed}"


BEST = Candidate("colors")
CANDIDATES = (
    BEST,
    Candidate("colors", projection="pca"),
    Candidate("colors", projection="actions"),
    Candidate("colors", rank=6),
    Candidate("colors", rank=24),
    Candidate("colors", settings=("metric=euclidean",)),
    Candidate("colors", order=1),
    Candidate("pixels", order=0, grid=16, projection="pca", layout="each scaled"),
    Candidate("lite0-3", order=0, projection="pca", layout="each scaled"),
)


def evaluate_candidate(runner: Runner, one: Candidate, seed: int, n_episodes: int, key: str) -> EvaluationResult:
    """The results of the default policy on these features."""
    return runner.run(key, study_of(runner, one, seed, n_episodes))


def study_of(runner: Runner, one: Candidate, seed: int, n_episodes: int) -> Study:
    """The evaluation of a candidate; features of the demonstrations are read first, unless the work folder has them."""
    readout, projection = fitted(runner, one)
    demos = load_demos(DEMOS)
    rows = projection(np.concatenate(features_of(runner, one)), demos.all_observations()[:, :2])
    layout, start, episodes = layout_of(one), 0, []
    for episode in demos:
        seen = np.c_[episode.observations[:, :2], rows[start : start + len(episode)]]
        episodes.append(Episode(seen, episode.actions))
        start += len(episode)
    policy = make_policy("default", Demos(episodes, layout, demos.action_layout, demos.rate), one.settings)
    environments = EnvironmentPool(_Make(readout, projection, layout))
    subject = Subject(
        env=f"pusht, seen by {one.key}",
        demos={"name": DEMOS, **policy.fingerprint()},
        policy={"name": "default", "class": type(policy).__name__},
        parameters=asdict(policy.config),
        seed=seed,
        n_episodes=n_episodes,
    )
    return Study(environments, policy, subject)


def fitted(runner: Runner, one: Candidate) -> tuple[Readout, Projection]:
    """What a candidate learned from the demonstrations."""
    demos, features = load_demos(DEMOS), features_of(runner, one)
    states = [episode.observations[:, :2] for episode in demos]
    if one.projection == "pca":
        projection = _pca(features, one.rank)
    else:
        on = ("actions", "features") if one.projection == "both" else (one.projection,)
        actions = [episode.actions for episode in demos]
        projection = Projection.fit(features, states, actions, one.rank, horizon_of(demos.rate), on)
    return readout_of(one.encoder, one.order, one.grid), projection


def layout_of(one: Candidate) -> Layout:
    """The layout of the agent's position and the features."""
    if one.layout == "one unit":
        return features_layout(AGENT, one.rank)
    return Layout((*AGENT.entries, *[Entry("other", 1)] * one.rank))


@cache
def readout_of(encoder: str, order: int, grid: int) -> Readout:
    """A readout for Push-T."""
    states = load_demos(DEMOS).all_observations()
    pictures = pictures_of(states[np.linspace(0, len(states) - 1, N_LEARNED).round().astype(int)])
    name, _, n_blocks = encoder.partition("-")
    made: Encoder = Lite0(int(n_blocks)) if name == "lite0" else make_encoder(name, pictures)
    return Readout.learn(made, pictures, order, grid)


def pictures_of(states: np.ndarray) -> np.ndarray:
    """(N, 96, 96, 3), what the camera shows at states (N, 5)."""
    simulator, pictures = PushT(), []
    for state in states:
        simulator.restore(state)
        pictures.append(simulator.camera_picture())
    return np.stack(pictures)


def features_of(runner: Runner, one: Candidate) -> list[np.ndarray]:
    """The features (T, F) of each demonstration, before the projection, from the work folder if they are there."""
    demos = load_demos(DEMOS)
    ends = np.cumsum([len(episode) for episode in demos])[:-1]
    path = runner.work / f"features_{one.encoder}_{one.order}_{one.grid}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        job, found = _Reading(one.encoder, one.order, one.grid), {}
        with runner.where.pool([job], len(demos)) as pool, tqdm(total=len(demos), desc=f"reading {path.stem}") as bar:
            for task, rows in pool.results(Task(0, (number, each.observations)) for number, each in enumerate(demos)):
                found[task.task[0]] = rows
                bar.update()
        part = path.with_suffix(".part.npy")
        np.save(part, np.concatenate([found[number] for number in range(len(demos))]).astype(np.float32))
        part.rename(path)
    return np.split(np.load(path), ends)


class _Reading:
    """Reads the features of episodes of states."""

    def __init__(self, *readout: str | int):
        self._readout = readout

    def label(self, task: tuple[int, np.ndarray]) -> str:
        """What to call a task in a message."""
        return f"episode {task[0]}"

    def run(self, task: tuple[int, np.ndarray]) -> np.ndarray:
        """(T, F), of one episode."""
        readout, pictures = readout_of(*self._readout), pictures_of(task[1])  # pyright: ignore[reportArgumentType]
        return np.concatenate([readout(pictures[at : at + BLOCK]) for at in range(0, len(pictures), BLOCK)])


def _pca(features: Sequence[np.ndarray], rank: int) -> Projection:
    """The directions in which scaled features vary most."""
    x = np.concatenate(list(features)).astype(float)
    offset, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 1e-6 * spread.max(), spread, np.inf)
    _, vectors = np.linalg.eigh(((x - offset) / scale).T @ ((x - offset) / scale))
    return Projection(offset, np.zeros((AGENT.width, len(offset))), vectors[:, ::-1][:, :rank] / scale[:, None])


class FeatureScene:
    """Push-T whose observations are the agent's position and the features of a picture."""

    action_layout = PushT.action_layout
    max_steps, rate = PushT.max_steps, PushT.rate

    def __init__(self, readout: Readout, projection: Projection, layout: Layout):
        self.observation_layout = layout
        self._readout, self._projection, self._simulator = readout, projection, PushT()

    def reset(self, seed: int) -> np.ndarray:
        """Starts from Diffusion Policy's start state for a seed."""
        return self._look(self._simulator.reset(seed))

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the agent's target to a position (2,) for a tenth of a second."""
        result = self._simulator.step(action)
        return result._replace(observation=self._look(result.observation))

    def see(self, picture: np.ndarray, state: np.ndarray) -> np.ndarray:
        """The observation of a picture at a state, of which only the agent's position is used."""
        return np.concatenate([state[:2], self._projection(self._readout(picture[None])[0], state[:2])])

    def _look(self, state: np.ndarray) -> np.ndarray:
        return self.see(self._simulator.camera_picture(), state)


@dataclass(frozen=True)
class _Make:
    """Makes a scene, in the process that needs it."""

    readout: Readout
    projection: Projection
    layout: Layout

    def __call__(self) -> FeatureScene:
        return FeatureScene(self.readout, self.projection, self.layout)
