"""Encoding: numbers of a layout as blocks that can be averaged and moved rigidly, and back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from closedform.geometry.body_symmetry import untwisted
from closedform.geometry.layout import ROTATIONS, SPATIAL_ROTATIONS, Entry, Layout
from closedform.geometry.so3 import (
    axis_angle_of,
    columns_about_z,
    columns_of_quaternion,
    matrix_of_axis_angle,
    nearest_rotation,
    quaternion_of,
    rotation_matrix,
    two_columns,
)


@dataclass(frozen=True)
class Block:
    """A run of encoded numbers that a change of frame treats as one.

    Attributes:
        start: index of its first encoded number.
        size: how many numbers; the dimension of space if it turns.
        turns: whether it is a vector that a change of frame rotates.
        moves: whether a change of frame also translates it.
        unit: whether it is a unit vector, which needs no scaling.
    """

    start: int
    size: int
    turns: bool
    moves: bool
    unit: bool


@dataclass(frozen=True)
class Encoding:
    """Turns angles and rotations into unit vectors, which do not wrap around and have a meaningful average.

    An angle becomes (cos, sin), or among spatial entries, where it is about the z axis, (cos, sin, 0). A quaternion
    becomes the first two columns of its rotation matrix, which are the same for q and -q and continuous everywhere
    (forcing w >= 0 instead would jump at half turns, the usual pose of a gripper that points down). Everything else
    is unchanged, except that ignored entries are dropped, so layouts with ignored entries cannot be decoded. Decoding
    projects averaged rotations back onto rotations. Where a body looks the same turned about an axis by any angle, all
    its rotations about this axis have one encoding.

    Attributes:
        layout: of the numbers.
        blocks: the runs of encoded numbers that a change of frame treats as one.
    """

    layout: Layout
    blocks: tuple[Block, ...] = field(init=False)

    def __post_init__(self):
        blocks: list[Block] = []
        for entry in self.layout.entries:
            start = blocks[-1].start + blocks[-1].size if blocks else 0
            blocks.extend(_blocks_of(entry, start, self.layout.spatial))
        object.__setattr__(self, "blocks", tuple(blocks))

    @cached_property
    def width(self) -> int:
        """The number of encoded numbers per row."""
        return self.blocks[-1].start + self.blocks[-1].size

    @cached_property
    def is_plain(self) -> bool:
        """Whether encoding changes nothing."""
        return not self.layout.ignores and not any(block.unit for block in self.blocks)

    @property
    def dimension(self) -> int | None:
        """2 or 3 if some block turns; None if no change of frame has an effect."""
        sizes = {block.size for block in self.blocks if block.turns}
        return max(sizes) if sizes else None

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Encodes rows. (..., layout.width) -> (..., width), float64; not finite where a rotation is not."""
        values = np.asarray(values, np.float64)
        if self.is_plain:
            return values
        spatial = self.layout.spatial
        return np.concatenate(
            [_encode(entry, values[..., columns], spatial) for entry, columns in self.layout.slices()], -1
        )

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """The inverse of `encode`. (..., width) -> (..., layout.width)."""
        if self.is_plain:
            return encoded
        return np.concatenate([_decode(entry, encoded[..., columns]) for entry, columns in self.slices()], -1)

    def slices(self) -> list[tuple[Entry, slice]]:
        """Each entry with the columns of its encoded numbers."""
        return self._slices

    @cached_property
    def _slices(self) -> list[tuple[Entry, slice]]:
        found, start = [], 0
        for entry in self.layout.entries:
            stop = start + sum(block.size for block in _blocks_of(entry, 0, self.layout.spatial))
            found.append((entry, slice(start, stop)))
            start = stop
        return found


def _blocks_of(entry: Entry, start: int, spatial: bool) -> list[Block]:
    if entry.kind == "ignored":
        return []
    if entry.kind in SPATIAL_ROTATIONS:
        return [Block(start + i, 3, turns=True, moves=False, unit=True) for i in (0, 3)]
    if entry.kind == "angle":
        return [Block(start, 3 if spatial else 2, turns=True, moves=False, unit=True)]
    moves = entry.kind == "position"
    return [Block(start, entry.size, turns=moves or entry.kind == "vector", moves=moves, unit=False)]


def _encode(entry: Entry, values: np.ndarray, spatial: bool) -> np.ndarray:
    if entry.symmetry is not None and entry.kind in ROTATIONS and entry.body_symmetry.axis >= 0:
        return _untwisted(entry, values, spatial)
    match entry.kind:
        case "angle":
            parts = [np.cos(values), np.sin(values)]
            return np.concatenate([*parts, np.zeros_like(values)] if spatial else parts, -1)
        case "quaternion":
            return columns_of_quaternion(values)
        case "quaternion_wxyz":
            return columns_of_quaternion(np.roll(values, -1, -1))
        case "rotation6d_rows":
            return two_columns(np.swapaxes(rotation_matrix(values), -1, -2))
        case "axis_angle":
            with np.errstate(over="ignore", invalid="ignore"):  # the result is then not finite
                return two_columns(matrix_of_axis_angle(values))
        case "ignored":
            return values[..., :0]
        case _:
            return values


def _untwisted(entry: Entry, values: np.ndarray, spatial: bool) -> np.ndarray:
    """The encoding of a rotation without its turn about the axis of a body's symmetry."""
    columns = _encode(replace(entry, symmetry=None), values, spatial)
    if entry.kind == "angle":  # nothing is left of it, unless it is not a number
        return np.where(np.isnan(columns), np.nan, np.eye(columns.shape[-1])[0])
    return two_columns(untwisted(rotation_matrix(columns), entry.body_symmetry.axis))


def _decode(entry: Entry, encoded: np.ndarray) -> np.ndarray:
    match entry.kind:
        case "angle":
            return np.arctan2(encoded[..., 1:2], encoded[..., :1])
        case "quaternion":
            return quaternion_of(nearest_rotation(encoded))
        case "quaternion_wxyz":
            return np.roll(quaternion_of(nearest_rotation(encoded)), 1, -1)
        case "rotation6d":
            return two_columns(nearest_rotation(encoded))
        case "rotation6d_rows":
            return two_columns(np.swapaxes(nearest_rotation(encoded), -1, -2))
        case "axis_angle":
            return axis_angle_of(nearest_rotation(encoded))
        case _:
            return encoded


def rotations_of(entry: Entry, values: np.ndarray) -> np.ndarray:
    """The rotation matrices (n, 3, 3) of the numbers (n, size) of an entry, symmetric or not."""
    encoded = Encoding(Layout((replace(entry, symmetry=None),))).encode(values)
    return rotation_matrix(columns_about_z(encoded) if entry.kind == "angle" else encoded)
