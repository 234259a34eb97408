"""Encoding: numbers of a layout as blocks that can be averaged and moved rigidly, and back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from closedform.demos.layout import ROTATIONS, SPATIAL_ROTATIONS, Entry, Layout
from closedform.demos.symmetry import untwisted


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
            return _transposed(values)
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


def nearest_rotation(columns: np.ndarray) -> np.ndarray:
    """The rotation whose first two columns are nearest in the least-squares sense. (..., 6) -> (..., 3, 3).

    Averaged columns are neither unit-length nor orthogonal. Unlike `rotation_matrix`, this corrects both columns
    equally: they are multiplied by the inverse square root of their 2 x 2 Gram matrix.
    """
    x, y = columns[..., :3], columns[..., 3:]
    xx, xy, yy = (np.sum(a * b, -1, keepdims=True) for a, b in ((x, x), (x, y), (y, y)))
    area = np.sqrt(np.maximum(xx * yy - xy * xy, 0.0))
    size = np.sqrt(xx + yy + 2 * area)
    sound = area > 1e-9 * np.maximum(size * size, 1e-300)  # else there is no unique nearest one
    scale = size / np.where(sound, (xx + area) * (yy + area) - xy * xy, 1.0)
    nearest = np.concatenate([((yy + area) * x - xy * y) * scale, ((xx + area) * y - xy * x) * scale], -1)
    return rotation_matrix(np.where(sound, nearest, columns))


def rotation_matrix(columns: Any) -> Any:
    """The rotation that Gram-Schmidt orthogonalization makes of two columns. (..., 6) -> (..., 3, 3).

    Takes numpy arrays or torch tensors.
    """
    xp = array_namespace(columns)
    x, y = columns[..., :3], columns[..., 3:]
    x = x / xp.clip(xp.linalg.vector_norm(x, axis=-1, keepdims=True), 1e-12)
    y = y - xp.sum(x * y, axis=-1, keepdims=True) * x
    y = y / xp.clip(xp.linalg.vector_norm(y, axis=-1, keepdims=True), 1e-12)
    return xp.stack([x, y, xp.linalg.cross(x, y)], axis=-1)


def two_columns(matrix: Any) -> Any:
    """The first two columns, concatenated, of numpy arrays or torch tensors. (..., 3, 3) -> (..., 6)."""
    return array_namespace(matrix).concat([matrix[..., :, 0], matrix[..., :, 1]], axis=-1)


def _transposed(columns: np.ndarray) -> np.ndarray:
    return two_columns(np.swapaxes(rotation_matrix(columns), -1, -2))


def columns_of_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """The first two columns of a unit quaternion's (x, y, z, w) rotation matrix. (..., 4) -> (..., 6)."""
    norm = np.linalg.norm(quaternion, axis=-1, keepdims=True)
    x, y, z, w = np.moveaxis(quaternion / np.maximum(norm, 1e-12), -1, 0)
    first = (1 - 2 * (y * y + z * z), 2 * (x * y + z * w), 2 * (x * z - y * w))
    second = (2 * (x * y - z * w), 1 - 2 * (x * x + z * z), 2 * (y * z + x * w))
    return np.stack(first + second, -1)


def quaternion_of(matrix: np.ndarray) -> np.ndarray:
    """The unit quaternion (x, y, z, w) with w >= 0 of a rotation matrix. (..., 3, 3) -> (..., 4).

    Each row of the symmetric 4x4 matrix 4 q q^T is the quaternion times one of its own components; the row with the
    largest diagonal entry is the best conditioned.
    """
    m = matrix
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    xw, yw, zw = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    rows = np.stack(
        [
            np.stack([1 + xx - yy - zz, xy, xz, xw], -1),
            np.stack([xy, 1 - xx + yy - zz, yz, yw], -1),
            np.stack([xz, yz, 1 - xx - yy + zz, zw], -1),
            np.stack([xw, yw, zw, 1 + xx + yy + zz], -1),
        ],
        -2,
    )
    best = np.argmax(np.diagonal(rows, axis1=-2, axis2=-1), -1)
    quaternion = np.take_along_axis(rows, best[..., None, None], -2)[..., 0, :]
    quaternion = quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True)
    return np.where(quaternion[..., 3:] < 0, -quaternion, quaternion)


def matrix_of_axis_angle(vector: np.ndarray) -> np.ndarray:
    """Rodrigues' formula. (..., 3) -> (..., 3, 3)."""
    angle = np.linalg.norm(vector, axis=-1)[..., None, None]
    x, y, z = np.moveaxis(vector / np.maximum(angle[..., 0], 1e-12), -1, 0)
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*x.shape, 3, 3)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def axis_angle_of(matrix: np.ndarray) -> np.ndarray:
    """The inverse of `matrix_of_axis_angle`, with angles up to pi. (..., 3, 3) -> (..., 3)."""
    quaternion = quaternion_of(matrix)
    sine = np.linalg.norm(quaternion[..., :3], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(sine, quaternion[..., 3:])
    return quaternion[..., :3] * np.where(sine > 1e-12, angle / np.maximum(sine, 1e-12), 2.0)
