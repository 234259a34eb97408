"""FeaturesPerceiver: numbers from images of scenes in which no bodies can be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import ROTATIONS, Entry, Layout
from closedform.vision.encoder import Encoder
from closedform.vision.encoders import make_encoder
from closedform.vision.perceiver import Perceiver, Progress, check_cameras, naming, perceived_state, sample_images
from closedform.vision.pictures import check_picture
from closedform.vision.projection import Projection
from closedform.vision.readout import Readout
from closedform.vision.usual_scene import UsualScene

RANK = 12  # divisible by 2 and 3: features come in vectors
_N_LEARNED = 150  # images that tell what is usual
_HORIZON = 1.6  # seconds
_N_STEPS = 16  # the horizon of demonstrations without a rate


class FeaturesPerceiver(Perceiver):
    """Moments of maps of images, projected to what tells the next actions; nothing is trained.

        perceiver = FeaturesPerceiver.fit(demos, ["image"])
        perceiver = FeaturesPerceiver.fit(demos, ["image"], encoder="lite0")  # or TorchEncoder(module)

    Attributes:
        readouts: of each camera.
        scenes: of each camera: pictures that are not of it are refused.
        projection: from the numbers of all cameras to those that it returns.
    """

    kind = "features"

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        readouts: Mapping[str, Readout],
        scenes: Mapping[str, UsualScene],
        projection: Projection,
    ):
        self.readouts, self.scenes, self.projection = dict(readouts), dict(scenes), projection
        super().__init__(shapes, state_layout)

    @classmethod
    def fit(
        cls,
        demos: Demos,
        cameras: Sequence[str],
        *,
        progress: Progress | None = None,
        encoder: str | Encoder = "colors",
        order: int = 3,
        rank: int = RANK,
    ) -> Self:
        """Reads every image once, and some of them twice.

        Args:
            demos: demonstrations with images.
            cameras: the names of those to use.
            progress: called with what is being done and the fraction done.
            encoder: the name of one of `ENCODERS`, or an encoder.
            order: of the moments, 1 to 3; 0 for averages on a grid.
            rank: how many numbers to return, a multiple of 6.
        """
        if rank < 1 or rank % 6:
            raise ConfigError(f"rank: expected a multiple of 6, found {rank}")
        check_cameras(demos, cameras)
        state_layout, columns = perceived_state(demos)
        readouts, scenes, shapes = {}, {}, {}
        for camera in cameras:
            pictures = np.stack([image for _, _, image in sample_images(demos, camera, _N_LEARNED)])
            made = make_encoder(encoder, pictures) if isinstance(encoder, str) else encoder
            readouts[camera], shapes[camera] = Readout.learn(made, pictures, order), pictures.shape[1:]
            scenes[camera] = UsualScene.learn(list(pictures))
        features, done = [], 0
        for number, episode in enumerate(demos):
            rows = []
            for step, images in enumerate(zip(*(episode.images[camera] for camera in cameras), strict=True)):
                with naming(number, step):
                    checked = {c: check_picture(one, shapes[c]) for c, one in zip(cameras, images, strict=True)}
                rows.append(_read(readouts, checked))
                done += 1
                if progress is not None:
                    progress("reading images", done / demos.n_steps)
            features.append(np.array(rows))
        if features[0].shape[1] < rank:
            raise DataError(f"expected at least {rank} features of an image, found {features[0].shape[1]}")
        states = [episode.observations[:, columns] for episode in demos]
        actions = [episode.actions for episode in demos]
        projection = Projection.fit(features, states, actions, rank, horizon_of(demos.rate))
        return cls(shapes, state_layout, readouts, scenes, projection)

    @property
    def layout(self) -> Layout:
        """The state, and then the features."""
        return features_layout(self.state_layout, self.projection.matrix.shape[1])

    def see(self, images: Mapping[str, np.ndarray], state: np.ndarray) -> np.ndarray:
        """The state, and then the features; refuses images of another scene."""
        for camera, scene in self.scenes.items():
            scene.check(images[camera])
        return np.concatenate([state, self.projection(_read(self.readouts, images), state)])

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Readouts, scenes and the projection."""
        one = self.projection
        facts: dict[str, Any] = {"ridge": one.ridge, "explained": one.explained, "readouts": {}, "scenes": {}}
        arrays = {"offset": one.offset, "slope": one.slope, "matrix": one.matrix}
        for number, (camera, readout) in enumerate(self.readouts.items()):
            facts["readouts"][camera], own = readout.to_parts()
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
            facts["scenes"][camera], own = self.scenes[camera].to_parts()
            arrays |= {f"scene_{number}.{name}": array for name, array in own.items()}
        return facts, arrays

    @classmethod
    def from_parts(
        cls,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        facts: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> Self:
        """The inverse of `to_parts`."""
        readouts, scenes = {}, {}
        for number, (camera, shape) in enumerate(shapes.items()):
            readouts[camera] = Readout.from_parts(facts["readouts"][camera], _of(arrays, f"{number}."))
            scenes[camera] = UsualScene.from_parts(facts["scenes"][camera], _of(arrays, f"scene_{number}."), shape)
        parts = [np.asarray(arrays[name], float) for name in ("offset", "slope", "matrix")]
        offset, slope, matrix = parts
        if matrix.ndim != 2 or offset.shape != matrix.shape[:1] or slope.shape != (state_layout.width, len(offset)):
            raise ValueError(f"a projection of {offset.shape}, {slope.shape} and {matrix.shape}")
        if not all(np.isfinite(part).all() for part in parts):
            raise ValueError("numbers that are not finite")
        found = cls(
            shapes,
            state_layout,
            readouts,
            scenes,
            Projection(offset, slope, matrix, float(facts["ridge"]), float(facts["explained"])),
        )
        black = {camera: np.zeros(shape, np.uint8) for camera, shape in shapes.items()}
        if _read(readouts, black).shape != offset.shape:
            raise ValueError(f"a projection of {len(offset)} features")
        return found


def features_layout(state: Layout, rank: int) -> Layout:
    """The layout of a state that is followed by features.

    Features have one unit, as vectors do, and their distances count as they are. Where bodies turn, vectors would turn
    with them; there each feature is a number of its own.
    """
    turns = any(entry.kind in ROTATIONS for entry in state.entries)
    size = 3 if state.spatial else 2
    added = [Entry("other", rank)] if turns else [Entry("vector", size)] * (rank // size)
    return Layout((*state.entries, *added))


def horizon_of(rate: float | None) -> int:
    """How many steps of actions features should tell."""
    return _N_STEPS if rate is None else max(2, round(_HORIZON * rate))


def _read(readouts: Mapping[str, Readout], images: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([readout(images[camera][None])[0] for camera, readout in readouts.items()])


def _of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
