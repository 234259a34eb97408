"""Rotations: runs of numbers that can only be quaternions, rotation-6D or axis-angle, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from closedform.demos.inference.sample import Column
from closedform.geometry.encoding import rotations_of
from closedform.geometry.layout import Entry, Kind
from closedform.geometry.so3 import axis_angle_of, matrix_of_axis_angle

UNIT = 2e-3  # the most that lengths may differ from 1
FLIP = 4.0  # radians by which an axis-angle vector jumps at a half turn, at least
PAIRS = 2000
SEVERAL = 8  # starts that count as many
MAINLY = 0.85  # of the rotation must be about the vertical, or it is no evidence
SCREEN = 32  # rows that rule out most columns at once
LARGE = 0.3  # radians; smaller rotations say little about the order of the numbers
SIZES = {"quaternion": 4, "rotation6d": 6, "axis_angle": 3}
ORDERS: dict[str, tuple[Kind, Kind]] = {
    "quaternion": ("quaternion", "quaternion_wxyz"),
    "rotation6d": ("rotation6d", "rotation6d_rows"),
    "axis_angle": ("axis_angle", "axis_angle"),
}


@dataclass
class Rotation:
    """A run of numbers that is a rotation, with the evidence for their order.

    Attributes:
        start: its first column.
        family: `quaternion`, `rotation6d` or `axis_angle`.
        score: evidence for the first of the family's two orders (x, y, z, w; columns), in nats; negative for the other.
        reasons: descriptions of the evidence.
        loose: whether the run could begin at another column as well, among constants.
        relative: whether it follows from the poses of two bodies.
    """

    start: int
    family: str
    score: float = 0.0
    reasons: list[str] = field(default_factory=list)
    loose: bool = False
    relative: bool = False

    @property
    def size(self) -> int:
        """How many numbers."""
        return SIZES[self.family]

    @property
    def columns(self) -> list[int]:
        """Which."""
        return list(range(self.start, self.start + self.size))

    @property
    def confidence(self) -> float:
        """The confidence that the order is right."""
        if self.family == "axis_angle":
            return 0.95
        sure = 1 / (1 + np.exp(-abs(self.score)))
        return float(min(sure, 0.99) * (0.85 if self.loose else 1.0))

    @property
    def kind(self) -> Kind:
        """The more likely kind."""
        return ORDERS[self.family][0 if self.score >= 0 else 1]

    def support(self, score: float, reason: str) -> None:
        """Adds evidence for the first order, or against it if the score is negative."""
        self.score += score
        if abs(score) > 0.5:
            self.reasons.append(reason)


def matrices(values: np.ndarray, kind: Kind) -> np.ndarray:
    """The rotation matrices of entries of a kind. (n, size) -> (n, 3, 3)."""
    return rotations_of(Entry(kind, values.shape[1]), values)


def turns_between(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Axis times angle, in the world, that turns one rotation into another. (n, 3, 3) twice -> (n, 3)."""
    return axis_angle_of(second @ np.swapaxes(first, -1, -2))


def find_rotations(
    values: np.ndarray, column: Column, steps: np.ndarray, starts: np.ndarray | None, free: np.ndarray
) -> list[Rotation]:
    """Rotations among the free columns.

    Args:
        values: (N, D)
        column: facts about the columns.
        steps: of `values` that have a next one in their episode.
        starts: the first step of each episode; None to leave the order of numbers open.
        free: (D,), which columns to search.
    """
    if len(values) < 8:
        return []
    found: list[Rotation] = []
    taken = ~free.copy()
    for family, test in (("rotation6d", _is_6d), ("quaternion", _is_quaternion)):
        size = SIZES[family]
        windows = [
            start
            for start in range(values.shape[1] - size + 1)
            if not taken[start : start + size].any() and test(values, column, start)
        ]
        for group in _overlapping(windows, size):
            start = group[0] if len(group) == 1 else _likeliest(group, size, values, column)
            found.append(Rotation(start, family, loose=len(group) > 1))
            taken[start : start + size] = True
    for start in range(values.shape[1] - 2):
        if not taken[start : start + 3].any() and _is_axis_angle(values, column, start, steps):
            found.append(Rotation(start, "axis_angle", reasons=["jumps by a whole turn at half turns"]))
            taken[start : start + 3] = True
    found.sort(key=lambda rotation: rotation.start)
    if starts is not None:
        for rotation in found:
            weigh_order(rotation, values[:, rotation.columns], starts)
    return found


def is_unit_everywhere(arrays: Iterable[np.ndarray], rotation: Rotation) -> bool:
    """Whether numbers that are a rotation in the sample are one in all of the data."""
    if rotation.family == "axis_angle":
        return True
    size = 4 if rotation.family == "quaternion" else 3
    for array in arrays:
        norms = np.linalg.norm(array[:, rotation.columns].astype(np.float64).reshape(len(array), -1, size), axis=2)
        if len(norms) and not np.abs(norms - 1).max() < UNIT:
            return False
    return True


def weigh_order(rotation: Rotation, values: np.ndarray, starts: np.ndarray) -> None:
    """Adds evidence for the order of numbers from the rotation itself.

    Between episodes, objects are usually placed differently only about the vertical; later motion may tilt them, and is
    weaker evidence.

    Args:
        rotation: the rotation.
        values: (N, size), its numbers.
        starts: the first step of each episode.
    """
    if rotation.family == "axis_angle":
        return
    first = values[starts]
    most_of_starts = 2.5 * min(len(first) / SEVERAL, 1.0)
    for rows, most, words in ((first, most_of_starts, "differs between starts"), (values, 1.2, "turns")):
        shares, size = _about_vertical(rows, rotation.family)
        if max(shares) < MAINLY:
            continue
        odds = np.log((1 - shares[1] + 0.03) / (1 - shares[0] + 0.03))
        score = float(np.clip(odds, -most, most)) * min(size / LARGE, 1.0)
        share, other = max(shares), min(shares)
        rotation.support(score, f"read so, it {words} about the vertical ({share:.0%}, else {other:.0%})")
    if rotation.family == "quaternion":
        signs = [(values[:, c] < -0.02).mean() for c in (0, 3)]
        touches = [np.quantile(np.abs(values[:, c]), 0.02) < 0.1 and values[:, c].std() > 0.1 for c in (0, 3)]
        for which, score in ((0, -1.5), (1, 1.5)):  # w is often made nonnegative
            if signs[which] == 0 and touches[which] and 0.05 < signs[1 - which] < 0.95:
                rotation.support(score, f"its {'first' if which == 0 else 'last'} number is never negative")


def _about_vertical(values: np.ndarray, family: str) -> tuple[list[float], float]:
    """The fraction of the rotation between rows that is about the z axis, for both orders; and its size in radians."""
    if len(values) < 2:
        return [0.0, 0.0], 0.0
    pairs = np.random.default_rng(0).integers(len(values), size=(2, PAIRS))
    shares, sizes = [], []
    for kind in ORDERS[family]:
        turns = turns_between(*matrices(values[pairs.ravel()], kind).reshape(2, PAIRS, 3, 3))
        # Near half a turn the sign of the axis is uncertain, but not its direction: squares suffice.
        energy = np.mean(turns**2, axis=0)
        shares.append(float(energy[2] / energy.sum()) if energy.sum() > 1e-6 else 0.0)
        sizes.append(float(np.sqrt(energy.sum())))
    return shares, min(sizes)


def _is_quaternion(values: np.ndarray, column: Column, start: int) -> bool:
    """Whether length is 1 throughout and at least two numbers vary, not only by switching."""
    own = slice(start, start + 4)
    if column.varies[own].sum() < 2 or (column.binary | ~column.varies)[own].all() or _switches(values[:, own]):
        return False
    return all(np.abs(np.linalg.norm(rows[:, own], axis=1) - 1).max() < UNIT for rows in (values[:SCREEN], values))


def _switches(values: np.ndarray) -> bool:
    """Whether all numbers are 0, 1 or -1 and change, as those of a one-hot code, which is of unit length as well."""
    whole = np.round(values)
    return bool((np.abs(values - whole) < UNIT).all() and (whole != whole[0]).any())


def _is_6d(values: np.ndarray, column: Column, start: int) -> bool:
    """Whether the numbers are two orthogonal unit vectors."""
    own = slice(start, start + 6)
    if column.varies[own].sum() < 3 or not column.usable[own].all() or _switches(values[:, own]):
        return False
    return all(_at_right_angles(rows[:, own].reshape(-1, 2, 3)) for rows in (values[:SCREEN], values))


def _at_right_angles(vectors: np.ndarray) -> bool:
    """Whether pairs of vectors (n, 2, 3) are orthonormal."""
    unit = np.abs(np.linalg.norm(vectors, axis=2) - 1).max() < UNIT
    return bool(unit and np.abs(np.sum(vectors[:, 0] * vectors[:, 1], axis=1)).max() < UNIT)


def is_interleaved_6d(values: np.ndarray, column: Column, start: int) -> bool:
    """Whether the numbers are the first two columns of a rotation matrix, written row by row."""
    own = slice(start, start + 6)
    if column.varies[own].sum() < 3 or not column.usable[own].all():
        return False
    return all(
        _at_right_angles(np.swapaxes(rows[:, own].reshape(-1, 3, 2), 1, 2)) for rows in (values[:SCREEN], values)
    )


def _is_axis_angle(values: np.ndarray, column: Column, start: int, steps: np.ndarray) -> bool:
    """Whether lengths are at most half a turn, and jumps by a whole turn hardly change the rotation."""
    own = slice(start, start + 3)
    if column.varies[own].sum() < 3:
        return False
    if any(np.linalg.norm(rows[:, own], axis=1).max() > np.pi + 0.01 for rows in (values[:SCREEN], values)):
        return False
    jumps = np.linalg.norm(values[steps + 1, own] - values[steps, own], axis=1)
    far = steps[jumps > FLIP]
    if len(far) < 2 or len(far) > 0.3 * len(steps):
        return False
    turned = turns_between(matrix_of_axis_angle(values[far, own]), matrix_of_axis_angle(values[far + 1, own]))
    return bool(np.quantile(np.linalg.norm(turned, axis=1), 0.9) < 0.7)


def _overlapping(windows: list[int], size: int) -> list[list[int]]:
    """Windows that share columns, grouped."""
    groups: list[list[int]] = []
    for start in windows:
        if groups and start < groups[-1][0] + size:
            groups[-1].append(start)
        else:
            groups.append([start])
    return groups


def _likeliest(group: list[int], size: int, values: np.ndarray, column: Column) -> int:
    """The best of windows that share columns: nearest to unit length, then after numbers that could be a position."""
    off = [np.abs(np.sum(values[:, s : s + size] ** 2, axis=1) - (size // 3 if size == 6 else 1)).max() for s in group]
    near = [start for start, error in zip(group, off, strict=True) if error <= 10 * min(off) + 1e-9]
    for start in near:
        if start >= 3 and column.varies[start - 3 : start].sum() >= 2:
            return start
    return near[-1]
