"""BodiesPerceiver: the state, and the poses of bodies found in the images of one camera."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Entry, Layout
from closedform.vision.perceiver import Perceiver, Progress, check_cameras, perceived_state, sample_images
from closedform.vision.pictures import reduced, reduced_size
from closedform.vision.planar_bodies import PlanarBodies
from closedform.vision.plane_view import PlaneView
from closedform.vision.similarity import Similarity
from closedform.vision.template import SeenPose

_MOST, _FEWEST = 300, 60  # images that are learned from
_MEMORY = 1 << 27  # bytes that they may take
_N_EXAMPLES = 8
_SURE = 0.9  # confidence, and visible share, of a hand that must be where it is known to be
_MOVED = 3.0  # pixels that it may be elsewhere
_ABSENT = 0.3  # confidence of a body that is not there


class BodiesPerceiver(Perceiver):
    """Observes the state and, of each other body that moves, its position and angle in the units of the hand.

    The state has to have the position of a hand that is seen in the images; see `PlaneView`. Large images are reduced
    first.

    Attributes:
        view: finds the bodies.
        hand: the columns of the hand's position in the state.
        examples: (n, h, w, 3), some of the images that it was learned from, reduced.
        poses: of all bodies in the last image, in pixels of `reduced` images.
    """

    kind = "bodies"

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        view: PlaneView,
        hand: tuple[int, int],
        examples: np.ndarray,
    ):
        self.view, self.hand, self.examples = view, hand, examples
        self._layout = Layout((*state_layout.entries, *_entries(view, state_layout)))
        super().__init__(shapes, state_layout)

    @classmethod
    def fit(
        cls,
        demos: Demos,
        cameras: Sequence[str],
        *,
        progress: Progress | None = None,
        masks: Mapping[tuple[int, int], np.ndarray] | None = None,
    ) -> Self:
        """Learns background, bodies and units.

        Args:
            demos: demonstrations with images, whose layout has the position of a hand.
            cameras: the name of one.
            progress: called with what is being done and the fraction done.
            masks: (H, W) by episode and step, if another program found the bodies; see `PlanarBodies.learn`.
        """
        if len(cameras) != 1:
            raise ConfigError(f"bodies: expected one camera, found {', '.join(cameras) or 'none'}; choose one")
        state_layout, columns = perceived_state(demos)
        hands = [(part.start, part.start + 1) for entry, part in state_layout.slices() if entry.kind == "position"]
        if not hands:
            raise DataError(
                "bodies: expected the position of a hand in observations, found none; declare it, as in "
                "--observation-layout 'hand position 2'"
            )
        pictures, states, labels, shape = [], [], [], None
        for episode, step, image in _chosen(demos, cameras[0], masks):
            if progress is not None:
                progress("reading images", episode / len(demos))
            shape = image.shape
            pictures.append(reduced(image))
            states.append(demos[episode].observations[step, columns])
            if masks is not None:
                labels.append(reduced(np.asarray(masks[episode, step])))
        if progress is not None:
            progress("finding bodies", 0.9)
        bodies = PlanarBodies.learn(pictures, labels if masks is not None else None)
        positions = np.array(states)
        view, hand = PlaneView.choose(bodies, pictures, {hand: positions[:, list(hand)] for hand in hands})
        assert shape is not None
        shown = np.linspace(0, len(pictures) - 1, min(len(pictures), _N_EXAMPLES)).round().astype(int)
        return cls({cameras[0]: shape}, state_layout, view, hand, np.stack([pictures[i] for i in shown]))

    @property
    def layout(self) -> Layout:
        """The state, and each body's position and, unless it is round, angle."""
        return self._layout

    def reset(self) -> None:
        """Forgets the last poses."""
        self._tracker = self.view.tracker()

    @property
    def poses(self) -> list[SeenPose]:
        """The last poses of all bodies, in pixels."""
        return self._tracker.poses

    def see(self, images: Mapping[str, np.ndarray], state: np.ndarray) -> np.ndarray:
        """The state and the poses in the next image."""
        begins = not self.poses
        poses = self._tracker.follow(reduced(next(iter(images.values()))))
        if begins:
            self._check_present(poses)
        self._check_hand(poses[self.view.known], state[list(self.hand)])
        numbers = [state]
        for number in self.view.others:
            pose = self.view.pose(poses[number])
            numbers.append(pose[:2] if self.view.bodies.bodies[number].template.is_round else pose)
        return np.concatenate(numbers)

    def _check_present(self, poses: Sequence[SeenPose]) -> None:
        """Refuses a first image without one of the bodies; later ones stay where they were while they are hidden."""
        for name, number in zip(self.layout.bodies[len(self.state_layout.bodies) :], self.view.others, strict=True):
            if poses[number].confidence < _ABSENT:
                self.reset()
                raise DataError(
                    f"expected the body {name!r} in the first image of an episode, found it nowhere; is it in sight?"
                )

    def _check_hand(self, seen: SeenPose, known: np.ndarray) -> None:
        """Refuses an image in which the hand is clearly not where it is known to be."""
        if min(seen.confidence, seen.visible) < _SURE:
            return
        away = np.linalg.norm(self.view.similarity.position(np.array(seen[:2])) - known) / self.view.similarity.scale
        if away > _MOVED:
            raise DataError(
                f"expected the hand in the image where the state says, found it {away:.1f} pixels away; has the camera "
                "moved, or is the state of another time?"
            )

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The bodies and the units."""
        numbers, arrays = self.view.bodies.to_parts()
        similarity = self.view.similarity
        arrays |= {"matrix": similarity.matrix, "shift": similarity.shift, "examples": self.examples}
        facts = {**numbers, "known": self.view.known, "error": similarity.error, "hand": list(self.hand)}
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
        bodies = PlanarBodies.from_parts(facts, arrays)
        matrix, shift, known = arrays["matrix"], arrays["shift"], facts["known"]
        hand = tuple(facts["hand"])
        if (
            matrix.shape != (2, 2)
            or shift.shape != (2,)
            or not (np.isfinite(matrix).all() and np.isfinite(shift).all())
        ):
            raise ValueError(f"units of {matrix.shape} and {shift.shape}")
        if type(known) is not int or not 0 <= known < len(bodies.bodies):
            raise ValueError(f"the hand as body {known!r:.20}")
        if len(hand) != 2 or not all(type(i) is int and 0 <= i < state_layout.width for i in hand):
            raise ValueError(f"the hand in columns {hand!r:.40}")
        if len(shapes) != 1 or reduced_size(next(iter(shapes.values()))) != bodies.shape[1::-1]:
            raise ValueError("images of another size than the background")
        examples = arrays["examples"]
        if examples.dtype != np.uint8 or examples.shape[1:] != bodies.shape:
            raise ValueError(f"examples of {examples.shape}")
        view = PlaneView(bodies, known, Similarity(np.array(matrix), np.array(shift), float(facts["error"])))
        return cls(shapes, state_layout, view, (hand[0], hand[1]), examples)


def _chosen(
    demos: Demos, camera: str, masks: Mapping[tuple[int, int], np.ndarray] | None
) -> Iterator[tuple[int, int, np.ndarray]]:
    """The episode, the step and the image of those to learn from."""
    check_cameras(demos, [camera])
    if masks is None:
        first = reduced(demos[0].images[camera][0])
        count = int(np.clip(_MEMORY // (4 * first.size), _FEWEST, _MOST))
        yield from sample_images(demos, camera, count)
        return
    for episode in sorted({number for number, _ in masks}):
        steps = sorted(step for number, step in masks if number == episode)
        if not 0 <= episode < len(demos) or steps[-1] >= len(demos[episode]) or steps[0] < 0:
            raise DataError(f"expected masks of steps of the demonstrations, found episode {episode}, step {steps[-1]}")
        for step, image in zip(steps, demos[episode].images[camera].at(steps), strict=True):
            yield episode, step, image


def _entries(view: PlaneView, state_layout: Layout) -> list[Entry]:
    """The entries of the bodies that are seen, with names that the state does not use."""
    entries, taken = [], set(state_layout.bodies)
    for number in view.others:
        names = ("seen", *(f"seen_{i}" for i in range(2, len(taken) + 3)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        entries.append(Entry("position", 2, name))
        if not view.bodies.bodies[number].template.is_round:
            entries.append(Entry("angle", 1, name))
    return entries
