"""Mirror: where a scene is mirrored so that what demonstrations end with stays in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.encoding import Encoding, rotation_matrix
from closedform.demos.layout import ROTATIONS, Entry, Layout
from closedform.demos.symmetry import untwisted
from closedform.errors import ConfigError, DataError

_AGREE = 0.8  # length of the mean of unit vectors, below which ends have no common direction
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
    """Where bodies that are mirrored are when demonstrations end."""
    layout, commanded = demos.observation_layout, demos.action_layout.bodies
    last = np.array([episode.observations[-1] for episode in demos if len(episode)], np.float64)
    places = {e.body: last[:, c] for e, c in layout.slices() if e.kind == "position"} if len(last) else {}
    point, normal, first, spread = np.zeros(3), np.zeros(3), "", 0.0
    for entry, columns in layout.slices():
        if entry.body is None or entry.body in commanded or entry.body not in places:
            continue
        place, ends = np.zeros(3), places[entry.body]
        place[: ends.shape[1]] = np.median(ends, axis=0)
        normals = _level_normals(entry, last[:, columns])
        if not first and len(normals):
            point, normal, first, spread = place, normals[0], entry.body, float(np.std(ends, axis=0).max())
        elif len(normals) and not (
            np.abs(normals @ normal).max() > _AGREE and abs((place - point) @ normal) <= 3 * spread + 1e-9
        ):
            raise DataError(
                f"symmetry: expected bodies that end in one mirror plane, found {first!r} and {entry.body!r} in two"
            )
    if not first:
        raise ConfigError(
            "symmetry: expected a mirror of a body that is not commanded and whose position is observed, found none: "
            "scenes are mirrored where such a body ends"
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
    means = np.array([_mean_direction(normals, first) for first in normals[0]])
    lengths = np.linalg.norm(means[:, :2], axis=1)
    sure = np.flatnonzero((lengths >= _AGREE) & (np.abs(means[:, 2]) <= _LEVEL))
    if not len(sure):
        raise DataError(
            f"symmetry: expected demonstrations that end with a mirror plane of body {entry.body!r} upright and in "
            "one direction, found others: it cannot be told where to mirror the scene"
        )
    sure = sure[np.argsort(-np.round(lengths[sure], 6), kind="stable")]
    return means[sure] * (1.0, 1.0, 0.0) / lengths[sure, None]


def _normal(reflection: np.ndarray) -> np.ndarray:
    """The unit normal (3,) of a reflection's plane: I - M is 2 n n^T."""
    column = (np.eye(3) - reflection)[:, np.argmin(np.diag(reflection))]
    return column / np.linalg.norm(column)


def _mean_direction(normals: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The middle (3,) of unit normals (n, m, 3), of each end that nearest to `first`; its length says if they agree.

    A normal and its opposite are the same, and of a body that was turned it may be another of its planes.
    """
    along = normals @ first
    nearest = np.argmax(np.round(np.abs(along), 6), axis=1)
    at = np.arange(len(normals))
    return np.median(normals[at, nearest] * np.where(along[at, nearest] < 0, -1.0, 1.0)[:, None], axis=0)


def rotations_of(entry: Entry, values: np.ndarray) -> np.ndarray:
    """Rotations (n, 3, 3) of the numbers of an entry."""
    encoded = Encoding(Layout((replace(entry, symmetry=None),))).encode(values)
    if entry.kind != "angle":
        return rotation_matrix(encoded)
    cos, sin, zero = encoded[:, 0], encoded[:, 1], np.zeros(len(values))
    return rotation_matrix(np.stack([cos, sin, zero, -sin, cos, zero], axis=1))
