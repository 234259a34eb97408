"""Push-T from pictures of 96x96 pixels: where the agent is, is known, and where the T is, is seen."""

from __future__ import annotations

from functools import cache

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.load import load_demos
from closedform.evaluation.environment import StepResult
from closedform.evaluation.pusht import PushT
from closedform.evaluation.pusht_camera import CameraSettings
from closedform.geometry.layout import Layout
from closedform.progress import progress_bar
from closedform.vision import Body, PlaneView, SeenPose

_RECORDING = "pusht-embedded"  # its pictures are what the view is learned from
_N_PICTURES = 300
_STATES = (PUSHT_OBSERVATIONS, Layout.plain(PUSHT_OBSERVATIONS.width))


class PushTPixels:
    """Push-T through a camera: observations are the agent's position and the pose of the T found in a picture.

    What the T looks like is learned, without training, from pictures of recorded episodes. Demonstrations of states are
    rendered and perceived in the same way, so that a policy knows the T only as it is seen.

    Attributes:
        view: finds the T.
        picture: the last picture.
        seen: the pose of the T in it.
        state: the simulator's state (5,) at that time.
    """

    observation_layout = Layout.parse("agent position 2, seen position 2, seen angle 1")
    action_layout = PUSHT_ACTIONS
    max_steps = PushT.max_steps
    rate = PushT.rate

    def __init__(self, settings: CameraSettings | None = None):
        self.settings = settings or CameraSettings()
        self.view = learn_view(self.settings)
        self._simulator = PushT()
        self._tracker = self.view.tracker()
        self._rng = np.random.default_rng(0)
        self.picture: np.ndarray = np.empty((0, 0, 3), np.uint8)
        self.seen: SeenPose | None = None
        self.state = np.empty(0)

    def reset(self, seed: int) -> np.ndarray:
        """Starts from Diffusion Policy's start state for a seed."""
        self._rng = np.random.default_rng([0xCA3, seed])
        self._tracker.reset()
        return self._look(self._simulator.reset(seed))

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the agent's target to a position (2,) for a tenth of a second."""
        result = self._simulator.step(action)
        return result._replace(observation=self._look(result.observation))

    def render(self) -> np.ndarray:
        """An image of the scene, as of `PushT`."""
        return self._simulator.render()

    def read(self, source: str) -> Demos:
        """Reads demonstrations; those of states are rendered, and perceived as the policy will perceive the scene."""
        demos = load_demos(source)
        if demos.observation_layout not in _STATES:
            return demos
        episodes = []
        with progress_bar(total=demos.n_steps, desc="perceiving", leave=False) as bar:
            for number, episode in enumerate(demos.episodes):
                episodes.append(self.perceived(episode, number))
                bar.update(len(episode))
        return Demos(episodes, self.observation_layout, self.action_layout, self.rate)

    def perceived(self, episode: Episode, seed: int = 0) -> Episode:
        """An episode of states (T, 5), rendered and perceived; the seed is of the camera's noise."""
        tracker, rng = self.view.tracker(), np.random.default_rng([0xCA3, seed])
        lit, seen = CameraSettings(self.settings.noise, self.settings.shadow, self.settings.pattern), []
        for state in episode.observations:
            self._simulator.restore(state)
            poses = tracker.follow(lit.take(self._simulator.camera_picture(), rng))
            seen.append(self._observation(state, self._block(poses)))
        return Episode(np.array(seen), episode.actions)

    @property
    def found(self) -> list[tuple[Body, SeenPose]]:
        """All bodies in the last picture, with their poses."""
        return list(zip(self.view.bodies.bodies, self._tracker.poses, strict=True))

    def _look(self, state: np.ndarray) -> np.ndarray:
        self.state, self.picture = state, self.settings.take(self._simulator.camera_picture(), self._rng)
        self.seen = self._block(self._tracker.follow(self.picture))
        return self._observation(state, self.seen)

    def _block(self, poses: list[SeenPose]) -> SeenPose:
        return poses[self.view.others[0]]

    def _observation(self, state: np.ndarray, seen: SeenPose) -> np.ndarray:
        return np.concatenate([state[:2], self.view.pose(seen)])


def make(settings: str) -> PushTPixels:
    """The environment `pusht_pixels:SETTINGS`; see `CameraSettings.parse`."""
    return PushTPixels(CameraSettings.parse(settings))


@cache
def learn_view(settings: CameraSettings) -> PlaneView:
    """What the scene looks like in the light in which it was demonstrated, learned from pictures of a recording."""
    lit = CameraSettings(settings.noise, settings.shadow, settings.pattern)
    recorded = np.concatenate([episode.observations for episode in load_demos(_RECORDING).episodes])
    states = recorded[np.linspace(0, len(recorded) - 1, _N_PICTURES).round().astype(int)]
    simulator, rng = PushT(), np.random.default_rng(0xCA3)
    pictures = []
    for state in states:
        simulator.restore(state)
        pictures.append(lit.take(simulator.camera_picture(), rng))
    return PlaneView.learn(pictures, states[:, :2])
