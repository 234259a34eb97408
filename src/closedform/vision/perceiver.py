"""Perceiver: turns images, and what else is observed, into numbers that a policy plans with."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Layout
from closedform.vision.observations import find_image, find_state
from closedform.vision.pictures import check_picture

Progress = Callable[[str, float], None]

PERCEIVERS = {  # by their names in saved files, imported when they are needed
    "bodies": "closedform.vision.bodies_perceiver:BodiesPerceiver",
    "features": "closedform.vision.features:FeaturesPerceiver",
    "markers": "closedform.robot.markers_perceiver:MarkersPerceiver",
}


class Perceiver(ABC):
    """Learned, without training, from demonstrations with images; `kind` is its name in `PERCEIVERS`.

        perceiver = BodiesPerceiver.fit(demos, ["image"])
        numbers = perceiver.perceive({"image": image, "state": state})

    A class implements `fit`, `layout` and `see`, and `to_parts` and `from_parts`, which say what is saved. What `see`
    remembers from one image to the next is set anew by `reset`, and never changed in place.

    Attributes:
        shapes: (H, W, 3) of the images of each camera that it needs, by the names in the demonstrations.
        state_layout: what the numbers are that are observed besides the images.
    """

    kind: ClassVar[str]

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], state_layout: Layout):
        self.shapes, self.state_layout = dict(shapes), state_layout
        self.reset()

    def __repr__(self) -> str:
        cameras = ", ".join(f"{name} of {shape[1]}x{shape[0]}" for name, shape in self.shapes.items())
        return f"{type(self).__name__}({cameras} -> {self.layout.width} numbers)"

    @classmethod
    @abstractmethod
    def fit(cls, demos: Demos, cameras: Sequence[str], *, progress: Progress | None = None) -> Self:
        """Learns what it needs from demonstrations; `sample_images` reads some of their images.

        Args:
            demos: demonstrations with images.
            cameras: the names of those to use.
            progress: called with what is being done and the fraction done.
        """

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """What the numbers are that it returns."""

    @abstractmethod
    def see(self, images: Mapping[str, np.ndarray], state: np.ndarray) -> np.ndarray:
        """The numbers (D_o,) of a checked image of each camera and the state (D_s,) at that time."""

    def reset(self) -> None:  # noqa: B027 - most remember nothing
        """Forgets what it remembers from one image to the next, as before a new episode."""

    @abstractmethod
    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is saved besides `shapes` and `state_layout`: a dictionary for JSON, and arrays."""

    @classmethod
    @abstractmethod
    def from_parts(
        cls,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        facts: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> Self:
        """The inverse of `to_parts`; raises `ValueError`, `TypeError` or `LookupError` if they do not fit."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """The names of the cameras, as in the demonstrations."""
        return tuple(self.shapes)

    def perceive(self, observation: Mapping[str, Any]) -> np.ndarray:
        """The numbers (D_o,) of an observation: a dictionary with an image of each camera, and the state.

        See `closedform.vision.observations` for the names that they may have.
        """
        if not isinstance(observation, Mapping):
            expected = ", ".join([*self.cameras, "state"])
            raise DataError(f"expected an observation with images ({expected}), found {type(observation).__name__}")
        images = {
            name: check_picture(find_image(observation, name, self.cameras), shape)
            for name, shape in self.shapes.items()
        }
        return self.see(images, find_state(observation, self.state_layout, self.cameras))

    def fresh(self) -> Self:
        """One that has learned the same, for another episode at the same time."""
        other = copy(self)
        other.reset()
        return other


def perceiver_class(kind: str) -> type[Perceiver]:
    """The class of a kind."""
    if kind not in PERCEIVERS:
        raise ConfigError(f"expected a perceiver of {', '.join(PERCEIVERS)}, found {kind!r}")
    module, _, name = PERCEIVERS[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def perceived_state(demos: Demos) -> tuple[Layout, list[int]]:
    """The layout of the numbers of demonstrations besides images, without ignored ones, and their columns."""
    layout = demos.observation_layout
    return Layout(tuple(entry for entry in layout.entries if entry.kind != "ignored")), list(layout.used_columns)


def perceive_demos(perceiver: Perceiver, demos: Demos, progress: Progress | None = None) -> Demos:
    """Demonstrations whose observations are what a perceiver makes of their images; each is read once."""
    layout, columns = perceived_state(demos)
    if layout.width != perceiver.state_layout.width:
        raise DataError(
            f"expected {perceiver.state_layout.width} numbers besides the images, found {layout.width} in the "
            "demonstrations"
        )
    check_cameras(demos, perceiver.cameras)
    perceiver, episodes, done = perceiver.fresh(), [], 0
    for number, episode in enumerate(demos):
        perceiver.reset()
        seen = []
        cameras = zip(*(episode.images[name] for name in perceiver.cameras), strict=True)
        for step, images in enumerate(cameras):
            with naming(number, step):
                pictures = {
                    name: check_picture(image, shape)
                    for (name, shape), image in zip(perceiver.shapes.items(), images, strict=True)
                }
                seen.append(perceiver.see(pictures, episode.observations[step, columns]))
            done += 1
            if progress is not None:
                progress(f"perceiving episode {number}", done / demos.n_steps)
        episodes.append(Episode(np.array(seen), episode.actions))
    seen = demos.with_episodes(episodes, perceiver.layout)
    seen.perceiver = perceiver.fresh()
    return seen


def sample_images(demos: Demos, camera: str, count: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """The episode, the step and the image of up to `count` steps, spread evenly over demonstrations."""
    check_cameras(demos, [camera])
    ends = np.cumsum([len(episode) for episode in demos])
    steps = np.unique(np.linspace(0, demos.n_steps - 1, min(count, demos.n_steps)).round().astype(int))
    shape = None
    for number, (episode, end) in enumerate(zip(demos, ends, strict=True)):
        here = steps[(steps < end) & (steps >= end - len(episode))] - (end - len(episode))
        for step, image in zip(here.tolist(), episode.images[camera].at(here.tolist()), strict=True):
            with naming(number, step):
                shape = check_picture(image, shape).shape
            yield number, step, image


@contextmanager
def naming(episode: int, step: int) -> Iterator[None]:
    """Says in errors of which step of which episode the image is."""
    try:
        yield
    except DataError as error:
        raise DataError(f"episode {episode}, step {step}: {error}") from error


def check_cameras(demos: Demos, cameras: Sequence[str]) -> None:
    """Refuses demonstrations without images of these cameras."""
    for camera in cameras:
        if camera not in demos.cameras:
            raise DataError(
                f"expected demonstrations with images of the camera {camera!r}, found "
                f"{', '.join(demos.cameras) or 'none with images'}"
            )
