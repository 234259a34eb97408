"""Demonstrations with images of the L and the disc: the disc is the hand, in units of a tenth of a pixel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.images import Images
from closedform.geometry.layout import Layout
from tests.vision.scenes import HEIGHT, WIDTH, draw

UNIT = 0.1
HAND = Layout.parse("hand position 2")


@dataclass(frozen=True)
class Drawn:
    """Images that are drawn when they are read."""

    poses: tuple[tuple[np.ndarray, np.ndarray], ...]

    def __str__(self) -> str:
        return "drawn"

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        return (draw(*self.poses[number]) for number in numbers)


def motions(n_episodes: int, n_steps: int, seed: int) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """Block and disc, each on a straight line of its own in every episode."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n_episodes):
        places = rng.uniform((16, 16), (WIDTH - 16, HEIGHT - 16), (4, 2))
        angle, turn = rng.uniform(-np.pi, np.pi), rng.uniform(-1, 1)
        found.append(
            [
                (
                    np.array([*((1 - s) * places[0] + s * places[1]), angle + s * turn]),
                    (1 - s) * places[2] + s * places[3],
                )
                for s in np.linspace(0, 1, n_steps)
            ]
        )
    return found


def image_demos(n_episodes: int = 12, n_steps: int = 12, seed: int = 0, camera: str = "image") -> Demos:
    """Demonstrations that observe the disc and command its next position."""
    episodes = []
    for poses in motions(n_episodes, n_steps, seed):
        hand = UNIT * np.array([disc for _, disc in poses])
        images = {camera: Images(Drawn(tuple(poses)), 0, len(poses))}
        episodes.append(Episode(hand, np.append(hand[1:], hand[-1:], axis=0), images=images))
    return Demos(episodes, HAND, HAND, rate=10.0)
