"""Mirror: where a scene is mirrored so that what demonstrations end with stays in its place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, DataError
from closedform.geometry.body_symmetry import untwisted
from closedform.geometry.encoding import rotations_of
from closedform.geometry.layout import ROTATIONS, Entry

_AGREE = 0.5  # mean cosine of deviations, a full turn being those from one mirror plane of a body to the next
_ALONG = 0.8  # cosine of the angle between mirrors that are one
_LEVEL = 0.3  # largest height of a mirror's unit normal: gravity is not mirrored


@dataclass(frozen=True)
class Mirror:
    """A vertical plane, or a line, in which scenes are mirrored.

    Attributes:
        point: (3,), on it.
        normal: (3,), of unit length and level.
    """

    point: tuple[float, float, float]
    normal: tuple[float, float, float]

    @cached_property
    def matrix(self) -> np.ndarray:
        """(3, 3), I - 2 n n^T."""
        return np.eye(3) - 2 * np.outer(self.normal, self.normal)


def find_mirror(demos: Demos) -> Mirror:
    """Where bodies that are mirrored are when demonstrations end; of several, the one that ends most precisely."""
    layout, commanded = demos.observation_layout, demos.action_layout.bodies
    last = np.array([episode.observations[-1] for episode in demos if len(episode)], np.float64)
    places = {e.body: last[:, c] for e, c in layout.slices() if e.kind == "position"} if len(last) else {}
    found: list[tuple[float, str, np.ndarray, np.ndarray]] = []
    for entry, columns in layout.slices():
        if entry.body is None or entry.body in commanded or entry.body not in places:
            continue
        normals, ends, place = _level_normals(entry, last[:, columns]), places[entry.body], np.zeros(3)
        if len(normals):
            place[: ends.shape[1]] = np.median(ends, axis=0)
            found.append((float(np.std(ends, axis=0).max()), entry.body, place, normals))
    if not found:
        raise ConfigError(
            "symmetry: expected a mirror of a body that is not commanded and whose position is observed, found none: "
            "scenes are mirrored where such a body ends"
        )
    (_, body, point, (normal, *_)), *others = sorted(found, key=lambda one: one[0])
    for spread, other, place, normals in others:
        if np.abs(normals @ normal).max() < _ALONG or abs((place - point) @ normal) > 3 * spread + 1e-9:
            raise DataError(
                f"symmetry: expected bodies that end in one mirror plane, found {body!r} and {other!r} in two"
            )
    return Mirror(tuple(map(float, point)), tuple(map(float, normal)))  # pyright: ignore[reportArgumentType]


def _level_normals(entry: Entry, last: np.ndarray) -> np.ndarray:
    """The level normals (n, 3) of the planes in which a body is mirrored when demonstrations end, the surest first.

    Args:
        entry: with the symmetry.
        last: (E, size), its numbers.
    """
    symmetry = entry.body_symmetry
    if not len(symmetry.reflections):
        return np.empty((0, 3))
    axes = rotations_of(entry, last) if entry.kind in ROTATIONS else np.eye(3)[None]
    axes = axes if symmetry.axis < 0 else untwisted(axes, symmetry.axis)
    normals = np.stack([axes @ _normal(reflection) for reflection in symmetry.reflections], axis=1)
    level = [first for first in normals[0] if abs(first[2]) <= _LEVEL]
    found = []
    for first in level:
        along = normals @ first  # of each end, of all its planes the nearest: the body may have been turned
        nearest = np.argmax(np.round(np.abs(along), 6), axis=1)[:, None]
        signs = np.where(np.take_along_axis(along, nearest, 1) < 0, -1.0, 1.0)  # a normal's opposite is the same
        chosen = signs * np.take_along_axis(normals, nearest[..., None], 1)[:, 0]
        middle = np.median(chosen, axis=0) * (1.0, 1.0, 0.0)
        middle /= max(np.linalg.norm(middle), 1e-9)
        away = np.arccos(np.clip(chosen @ middle, -1, 1))
        found.append((float(np.mean(np.cos(2 * len(level) * away))), middle))
    sure = sorted((round(-agreement, 6), i) for i, (agreement, _) in enumerate(found) if agreement >= _AGREE)
    if not sure:
        raise DataError(
            f"symmetry: expected demonstrations that end with a mirror plane of body {entry.body!r} upright and in "
            "one direction, found others: it cannot be told where to mirror the scene"
        )
    return np.array([found[i][1] for _, i in sure])


def _normal(reflection: np.ndarray) -> np.ndarray:
    """The unit normal (3,) of a reflection's plane: I - M is 2 n n^T."""
    column = (np.eye(3) - reflection)[:, np.argmin(np.diag(reflection))]
    return column / np.linalg.norm(column)
