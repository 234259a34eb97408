"""Images of recorded Push-T episodes, rendered from their states when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.images import Images
from closedform.errors import ConfigError, DataError
from closedform.evaluation.pusht import PushT
from closedform.evaluation.pusht_camera import CameraSettings
from closedform.geometry.layout import Layout

ENVIRONMENT = "pusht_pixels"
CAMERA = "image"
AGENT = Layout.parse("agent position 2")


@dataclass(frozen=True)
class PushTImages:
    """The images of an episode.

    Attributes:
        states: (T, 5)
        settings: of the camera.
        seed: of its noise, which is the same whenever an image is read.
    """

    states: np.ndarray
    settings: CameraSettings
    seed: int

    def __str__(self) -> str:
        return f"Push-T, episode {self.seed}"

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers."""
        simulator = PushT()
        for number in numbers:
            simulator.restore(self.states[number])
            rng = np.random.default_rng([0xCA3, self.seed, number])
            yield self.settings.take(simulator.camera_picture(), rng)


def rendered(demos: Demos, environment: str = ENVIRONMENT) -> Demos:
    """Demonstrations of Push-T that observe where the agent is, and images of 96x96 pixels.

    Args:
        demos: with the states of `PushT`.
        environment: `pusht_pixels`, or with settings as in `pusht_pixels:noise=8`; see `CameraSettings`.
    """
    name, _, settings = environment.partition(":")
    if name != ENVIRONMENT:
        raise ConfigError(f"render: expected {ENVIRONMENT} or {ENVIRONMENT}:SETTINGS, found {environment!r:.60}")
    if demos.observation_layout.width != PUSHT_OBSERVATIONS.width or demos.action_layout.width != PUSHT_ACTIONS.width:
        raise DataError(
            f"render: expected states of Push-T, {PUSHT_OBSERVATIONS.width} numbers, found observations of "
            f"{demos.observation_layout.width}"
        )
    camera = CameraSettings.parse(settings)
    episodes = [
        Episode(
            episode.observations[:, :2],
            episode.actions,
            images={CAMERA: Images(PushTImages(episode.observations, camera, number), 0, len(episode))},
        )
        for number, episode in enumerate(demos)
    ]
    return demos.with_episodes(episodes, AGENT)
