"""Symmetry: the other demonstrations that each one stands for, because bodies look the same turned or mirrored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import ConfigError, DataError
from closedform.geometry.body_symmetry import MOST_IMAGES, BodySymmetry
from closedform.geometry.encoding import Encoding, rotations_of
from closedform.geometry.layout import ROTATIONS, Entry, Layout
from closedform.geometry.so3 import nearest_rotation, two_columns
from closedform.rewrites.mirror import Mirror, find_mirror
from closedform.rewrites.rewrite import Rewrite

_ALIKE = 0.3  # by which commanded axes may differ from observed ones and count as the same
_LARGEST = 1e150  # of a number that can be squared


@dataclass(frozen=True)
class Symmetry(Rewrite):
    """Makes the images of a demonstration: what it would have been, had bodies been turned or the scene mirrored.

    A body that looks the same at rotation R and at R g could have been recorded at either, so a demonstration counts
    once for each g. If it also looks the same when mirrored by m, so does the whole scene: with the reflection S that
    maps the place where the body ends to itself,

        positions p -> c + S (p - c),     vectors v -> S v,     rotations R -> S R m,

    the latter being a rotation again. Turns by any angle need no images: `Encoding` has but one pose for all of them.

    Attributes:
        observation_layout, action_layout: of the demonstrations, as they were recorded.
        mirror: where scenes are mirrored; None if they are not.
        centers: the middle of each angle's range, in observations and then actions; images keep to this turn.
    """

    name: ClassVar[str] = "symmetry"

    observation_layout: Layout
    action_layout: Layout
    mirror: Mirror | None
    centers: tuple[float, ...]

    @classmethod
    def find(cls, demos: Demos) -> Symmetry | None:
        """What layouts declare, with the mirror where demonstrations end; None if there is nothing to do."""
        layouts = demos.observation_layout, demos.action_layout
        if not is_declared(*layouts):
            return None
        mirror = find_mirror(demos) if _mirrored(layouts[0]) else None
        arrays = demos.all_observations(), demos.all_actions()
        centers = [
            float((values[:, columns].min() + values[:, columns].max()) / 2) if len(values) else 0.0
            for layout, values in zip(layouts, arrays, strict=True)
            for entry, columns in layout.slices()
            if entry.kind == "angle"
        ]
        found = cls(*layouts, mirror, tuple(centers))
        found.check_hands(demos)
        return found

    def __post_init__(self) -> None:
        _check_layouts(self.observation_layout, self.action_layout)
        if self.n_copies > MOST_IMAGES:
            raise ConfigError(
                f"symmetry: expected at most {MOST_IMAGES} poses in which a demonstration counts, found "
                f"{self.n_copies}; "
                "declare fewer turns"
            )

    @property
    def n_copies(self) -> int:
        """How many images a demonstration has, itself among them."""
        return self.n_turned * (1 if self.mirror is None else 2)

    @property
    def n_turned(self) -> int:
        """How many of them are not mirrored; these come first."""
        return math.prod(len(symmetry.rotations) for symmetry in self._bodies.values())

    @cached_property
    def _bodies(self) -> dict[str, BodySymmetry]:
        """The symmetries of bodies whose rotation is observed."""
        entries = (e for e in self.observation_layout.entries if e.kind in ROTATIONS and e.symmetry is not None)
        return {entry.body: entry.body_symmetry for entry in entries if entry.body is not None}

    @cached_property
    def _turns(self) -> list[dict[str, int]]:
        """Which rotation of its symmetry each body is turned by, in each image that is not mirrored."""
        sizes = [range(len(symmetry.rotations)) for symmetry in self._bodies.values()]
        return [dict(zip(self._bodies, chosen, strict=True)) for chosen in product(*sizes)]

    def episodes(self, episode: Episode) -> list[Episode]:
        """All images of an episode, itself first."""
        return [episode, *(self.image(episode, index) for index in range(1, self.n_copies))]

    def demos(self, demos: Demos) -> Demos:
        """Demonstrations, each followed by its images."""
        images = [image for episode in demos for image in self.episodes(episode)]
        return Demos(images, self.observation_layout, self.action_layout, demos.rate)

    def image(self, episode: Episode, index: int) -> Episode:
        """One image of an episode."""
        n_angles = sum(entry.kind == "angle" for entry in self.observation_layout.entries)
        observations = self._moved(episode.observations, self.observation_layout, index, self.centers[:n_angles])
        actions = self._moved(episode.actions, self.action_layout, index, self.centers[n_angles:])
        return Episode.view(observations, actions)

    def _moved(self, values: np.ndarray, layout: Layout, index: int, centers: Sequence[float]) -> np.ndarray:
        """Observations or actions (T, width) of an image."""
        mirror, turns, angles = self.mirror if index >= self.n_turned else None, self._turns[index % self.n_turned], 0
        moved = np.array(values, np.float64)
        for entry, columns in layout.slices():
            center = 0.0
            if entry.kind == "angle":
                center, angles = centers[angles], angles + 1
            if entry.kind in ROTATIONS:
                if mirror is not None or turns.get(entry.body or "", 0):
                    moved[:, columns] = _turned(
                        entry, moved[:, columns], turns.get(entry.body or "", 0), mirror, center
                    )
            elif mirror is not None and entry.kind in ("position", "vector"):
                n, point = entry.size, np.array(mirror.point[: entry.size])
                origin = point if entry.kind == "position" else np.zeros(n)
                with np.errstate(over="ignore", invalid="ignore"):  # which shows as features that are not finite
                    moved[:, columns] = (moved[:, columns] - origin) @ mirror.matrix[:n, :n] + origin
        moved = moved.astype(values.dtype)
        moved.flags.writeable = False
        return moved

    def check_hands(self, demos: Demos) -> None:
        """Refuses symmetries of a commanded body whose commanded and observed axes do not match."""
        for (entry, seen), (command, given) in _commanded(self.observation_layout, self.action_layout):
            observed = rotations_of(entry, demos.all_observations()[:, seen])
            relative = np.einsum("tji,tjk->ik", observed, rotations_of(command, demos.all_actions()[:, given]))
            relative /= max(demos.n_steps, 1)
            own, commanded = entry.body_symmetry, command.body_symmetry
            both = list(zip(own.rotations, commanded.rotations, strict=True))
            both += [(own.reflections[0], commanded.reflections[0])] if self.mirror is not None else []
            if any(np.abs(a.T @ relative @ b - relative).max() > _ALIKE for a, b in both):
                raise DataError(
                    f"symmetry: the commanded axes of body {entry.body!r} differ from the observed ones, so that "
                    f"{entry.symmetry!r} and {command.symmetry!r} are not the same; declare the axes of each"
                )

    def to_json(self) -> dict[str, Any]:
        """What demonstrations add to the layouts, as plain lists and dictionaries."""
        mirror = None if self.mirror is None else {"point": self.mirror.point, "normal": self.mirror.normal}
        return {"mirror": mirror, "centers": self.centers}

    @classmethod
    def from_json(cls, content: Any, observation_layout: Layout, action_layout: Layout) -> Symmetry | None:
        """The inverse of `to_json`; what does not fit the layouts is refused."""
        if not is_declared(observation_layout, action_layout):
            if content is not None:
                raise ConfigError("symmetry: expected layouts that declare one, found none")
            return None
        layouts = observation_layout, action_layout
        n_angles = sum(entry.kind == "angle" for layout in layouts for entry in layout.entries)
        if not isinstance(content, Mapping) or set(content) != {"mirror", "centers"}:
            raise ConfigError("symmetry: expected mirror and centers, as the layouts declare one, found others")
        mirror = content["mirror"]
        if (mirror is not None) != _mirrored(observation_layout):
            raise ConfigError("symmetry: expected a mirror if the layout declares one, found otherwise")
        if mirror is not None:
            if not isinstance(mirror, Mapping) or set(mirror) != {"point", "normal"}:
                raise ConfigError("symmetry: expected a mirror with point and normal, found another")
            mirror = Mirror(_numbers(mirror["point"], 3), _numbers(mirror["normal"], 3))
            x, y, z = mirror.normal
            if abs(math.hypot(x, y) - 1) > 1e-6 or z != 0:
                raise ConfigError("symmetry: expected a mirror with a level unit normal, found another")
        return cls(*layouts, mirror, _numbers(content["centers"], n_angles))


def is_declared(observation_layout: Layout, action_layout: Layout) -> bool:
    """Whether layouts declare a symmetry that gives demonstrations images."""
    entries = (*observation_layout.entries, *action_layout.entries)
    found = [entry.body_symmetry for entry in entries]
    return any(len(symmetry.rotations) > 1 or len(symmetry.reflections) for symmetry in found)


def _mirrored(layout: Layout) -> bool:
    return any(len(entry.body_symmetry.reflections) for entry in layout.entries)


def _commanded(observation_layout: Layout, action_layout: Layout) -> list[tuple[Any, Any]]:
    """The rotations of bodies that are observed and commanded: entries and columns of each."""
    observed = [(e, c) for e, c in observation_layout.slices() if e.kind in ROTATIONS and e.symmetry is not None]
    given = [(e, c) for e, c in action_layout.slices() if e.kind in ROTATIONS and e.symmetry is not None]
    return [(seen, command) for seen in observed for command in given if seen[0].body == command[0].body]


def _check_layouts(observation_layout: Layout, action_layout: Layout) -> None:
    """Refuses symmetries that layouts contradict, and mirrored scenes with something that cannot be mirrored."""
    observed = {e.body: e for e in observation_layout.entries if e.kind in ROTATIONS}
    for entry in action_layout.entries:
        if entry.kind not in ROTATIONS or entry.body is None:
            continue
        own, seen = entry.body_symmetry, observed.get(entry.body, Entry("angle")).body_symmetry
        same = len(own.rotations) == len(seen.rotations) and bool(len(own.reflections)) == bool(len(seen.reflections))
        if not same or seen.axis >= 0:
            raise ConfigError(
                f"symmetry: body {entry.body!r} is commanded, so expected the same turns in steps and mirrors in the "
                "layouts of observations and actions, found others"
            )
    if not _mirrored(observation_layout):
        if _mirrored(action_layout):
            raise ConfigError("symmetry: expected a mirror in the layout of observations too, found none")
        return
    for name, layout in (("observations", observation_layout), ("actions", action_layout)):
        for entry, columns in layout.slices():
            turned = entry.kind in ROTATIONS and not len(entry.body_symmetry.reflections)
            if turned or (entry.kind == "other" and entry.symmetry is None):
                what = "mirror_x, mirror_y or mirror_z" if turned else "mirror"
                raise ConfigError(
                    f"symmetry: {name}, {layout.describe(columns.start)}: expected {what}, if it is the same in a "
                    "mirrored scene, found none: a scene is mirrored as a whole"
                )


def _turned(entry: Entry, values: np.ndarray, turn: int, mirror: Mirror | None, center: float) -> np.ndarray:
    """The numbers of a rotation R g, or S R g m."""
    symmetry = entry.body_symmetry
    rotations = rotations_of(entry, values) @ symmetry.rotations[turn]
    if mirror is not None:
        rotations = mirror.matrix @ rotations @ symmetry.reflections[0]
    if entry.kind == "angle":
        angles = np.arctan2(rotations[:, 1, :1], rotations[:, 0, :1])
        return angles + 2 * np.pi * np.round((center - angles) / (2 * np.pi))
    encoding = Encoding(Layout((replace(entry, symmetry=None),)))
    return encoding.decode(two_columns(nearest_rotation(two_columns(rotations))))


def _numbers(values: Any, n: int) -> tuple[Any, ...]:
    """Finite numbers from a file."""
    listed = isinstance(values, list | tuple) and len(values) == n
    if not listed or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        raise ConfigError(f"symmetry: expected {n} numbers, found others")
    if not all(abs(v) < _LARGEST for v in values):
        raise ConfigError("symmetry: expected numbers of moderate size, found others")
    return tuple(float(v) for v in values)
