"""Statistics of each number of observations and actions, and problems found in single numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from closedform.analysis.problem import Problem, listed, place
from closedform.demos.demos import Demos
from closedform.geometry.encoding import Encoding, rotations_of
from closedform.geometry.layout import ROTATIONS, SPATIAL_ROTATIONS, Entry, Kind, Layout
from closedform.geometry.so3 import angle_between, rotation_matrix

_JUMP_ANGLE = 0.5  # radians from one step to the next
_BRIEF = 3  # steps after which what was lost is back
_SWITCH = ("note", "switch", "nothing to do if it is a gripper or a switch: it jumps in most episodes, and stays")
_JUMP = ("warning", "jump", "check for a lost marker or a dropped packet")


@dataclass(frozen=True)
class EntryFacts:
    """Statistics of one number of an observation or action."""

    name: str
    low: float
    high: float
    mean: float
    std: float
    state: str


def measure_entry(what: str, name: str, values: np.ndarray) -> EntryFacts:
    """Measures one number over all steps."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not len(finite):
        return EntryFacts(f"{what[:-1]} {name}", 0.0, 0.0, 0.0, 0.0, "not finite")
    low, high = float(finite.min()), float(finite.max())
    mean, std = float(finite.mean()), float(finite.std())
    state = "ok"
    if high == low:
        state = "constant"
    elif std < 1e-6 * max(abs(low), abs(high)) or _nearly_constant(finite, low, high):
        state = "nearly constant"
    return EntryFacts(f"{what[:-1]} {name}", low, high, mean, std, state)


def _nearly_constant(values: np.ndarray, low: float, high: float) -> bool:
    """Whether nearly all values are within a thousandth of the range around the median."""
    middle = np.median(values)
    return bool(np.mean(np.abs(values - middle) < 1e-3 * (high - low)) > 0.999)


def find_not_finite(what: str, demos: Demos, values: np.ndarray, lengths: list[int]) -> list[Problem]:
    """Steps with a number that is NaN or infinite."""
    rows, columns = np.nonzero(~np.isfinite(values))
    first = {int(row): int(column) for row, column in zip(rows[::-1], columns[::-1], strict=True)}

    def make(row: int) -> Problem:
        episode, step = place(lengths, row)
        found = values[row, first[row]]
        message = f"{what[:-1]} {demos.describe(what, first[row])} is {found}"
        advice = "remove the step or record the episode again"
        return Problem("error", "not finite", message, advice, episode, step, first[row])

    return listed(np.unique(rows), make, "not finite", "error")


def find_constant(facts: list[EntryFacts], columns: tuple[int, ...]) -> list[Problem]:
    """Numbers that never or hardly change, among the given columns."""
    return [
        Problem(
            "note",
            "constant",
            f"{entry.name} is {entry.state} ({entry.low:.6g} to {entry.high:.6g})",
            "drop it; if it should vary, check that the sensor is connected",
            column=column,
        )
        for column, entry in ((column, facts[column]) for column in columns)
        if entry.state != "ok"
    ]


def find_jumps(demos: Demos, values: np.ndarray, lengths: list[int]) -> list[Problem]:
    """Observations that change by half their range, or rotations by half a radian, and far more than usual."""
    problems: list[Problem] = []
    inside = np.ones(len(values), bool)
    inside[np.append(0, np.cumsum(lengths)[:-1])] = False  # the first step of an episode has no predecessor
    for column, kind, change, least in _changes(values, demos.observation_layout):
        usual = change[inside & np.isfinite(change)]
        if not len(usual) or not least > 0:
            continue
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(inside & (change > max(least, 10 * float(np.median(usual)))))
        if not len(rows):
            continue
        severity, name, advice = _judged(values, rows, column, kind, change, lengths)

        def make(
            row: int, column: int = column, kind: str = kind, labels: tuple[str, str, str] = (severity, name, advice)
        ) -> Problem:
            verb = "switches" if labels[1] in ("binary number", "switch") else "jumps"
            found = f"observation {demos.describe('observations', column)} {verb}"
            if kind not in SPATIAL_ROTATIONS:
                found += f" from {values[row - 1, column]:.4g} to {values[row, column]:.4g}"
            return Problem(labels[0], labels[1], found, labels[2], *place(lengths, row), column)

        problems += listed(rows, make, name, severity)
    return problems


def _judged(
    values: np.ndarray, rows: np.ndarray, column: int, kind: str, change: np.ndarray, lengths: list[int]
) -> tuple[str, str, str]:
    """The severity and kind of large changes of a number, and what to do about them."""
    if kind in SPATIAL_ROTATIONS:
        return _JUMP
    if two_valued(values[:, column]):
        return "note", "binary number", "declare it binary in the layout: it takes one of two values"
    turns = np.abs(change[rows, None] - [2 * np.pi, 360.0]) < [0.6, 30.0]
    if turns.all(0).any():
        if kind == "angle":
            return "note", "wrapped angle", "nothing to do: it is declared an angle"
        if (rotation := _same_rotation(values, rows, column)) is None:
            return "warning", "wrapped angle", "declare it an angle in the layout"
    elif (rotation := _same_rotation(values, rows, column)) is None:
        return _SWITCH if _stays(values[:, column], rows, lengths) else _JUMP
    return "warning", "undeclared rotation", f"declare it {rotation} in the layout: the rotation itself does not jump"


def _stays(number: np.ndarray, rows: np.ndarray, lengths: list[int]) -> bool:
    """Whether large changes of a number belong to most episodes and last, as those of a gripper.

    A lost marker is an exception, and comes back: within `_BRIEF` steps the number is near to where it was.
    """
    ends = np.cumsum(lengths)
    inside = np.searchsorted(ends, rows, side="right")
    if len(np.unique(inside)) <= len(lengths) / 2:
        return False
    for row, episode in zip(rows, inside, strict=True):
        later = number[row : min(row + _BRIEF, ends[episode])]
        if np.any(np.abs(later - number[row - 1]) < 0.5 * abs(number[row] - number[row - 1])):
            return False
    return True


def two_valued(values: np.ndarray) -> bool:
    """Whether a number takes exactly two values, such as an open and a closed gripper."""
    low, high = values.min(), values.max()
    return bool(low < high and ((values == low) | (values == high)).all())


def _same_rotation(values: np.ndarray, rows: np.ndarray, column: int) -> Kind | None:
    """The kind of rotation that a number is a part of, if the rotation does not change in any of its jumps.

    An axis-angle near a half turn, and a quaternion anywhere, may change its sign and stay the same rotation.
    """
    kinds: tuple[tuple[Kind, int], ...] = (("axis_angle", 3), ("quaternion", 4))
    for kind, size in kinds:
        for start in range(max(0, column - size + 1), min(column, values.shape[1] - size) + 1):
            before, after = (values[r, start : start + size].astype(np.float64) for r in (rows - 1, rows))
            if not (np.isfinite(before).all() and np.isfinite(after).all()):
                continue
            lengths = np.linalg.norm([before, after], axis=2)
            if np.abs(lengths - (np.pi if kind == "axis_angle" else 1.0)).max() > (
                0.6 if kind == "axis_angle" else 0.05
            ):
                continue
            turned, still = (rotations_of(Entry(kind, size), part) for part in (after, before))
            if angle_between(turned, still).max() < _JUMP_ANGLE:
                return kind
    return None


def _changes(values: np.ndarray, layout: Layout) -> Iterator[tuple[int, str, np.ndarray, float]]:
    """The change of each number or rotation from the previous step, and the smallest change that could be a jump."""
    for entry, columns in layout.slices():
        part = values[:, columns].astype(np.float64)
        change = np.zeros(len(part))
        if entry.kind in SPATIAL_ROTATIONS:
            rotations = rotation_matrix(Encoding(Layout((entry,))).encode(part))
            change[1:] = angle_between(rotations[1:], rotations[:-1])
            yield columns.start, entry.kind, change, _JUMP_ANGLE
        elif entry.kind not in ("binary", "ignored"):
            for index, number in enumerate(part.T):
                change = np.zeros(len(part))
                change[1:] = np.abs(np.diff(number))
                finite = number[np.isfinite(number)]
                yield columns.start + index, entry.kind, change, 0.5 * float(np.ptp(finite)) if len(finite) else 0.0


def find_outliers(demos: Demos, values: np.ndarray, lengths: list[int]) -> list[Problem]:
    """Actions farther from the central 98% of values than that range is wide; rotations and switches are left out."""
    problems: list[Problem] = []
    kinds = {
        c: entry.kind for entry, columns in demos.action_layout.slices() for c in range(columns.start, columns.stop)
    }
    for column in range(values.shape[1]):
        number = values[:, column].astype(np.float64)
        finite = number[np.isfinite(number)]
        if not len(finite) or kinds[column] in ("binary", *ROTATIONS) or two_valued(finite):
            continue
        low, high = np.quantile(finite, [0.01, 0.99])
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero((number < low - (high - low)) | (number > high + (high - low)))

        def make(
            row: int, number: np.ndarray = number, column: int = column, low: float = low, high: float = high
        ) -> Problem:
            episode, step = place(lengths, row)
            what = f"action {demos.describe('actions', column)}"
            message = f"{what} is {number[row]:.4g}, usually {low:.4g} to {high:.4g}"
            advice = "check the command at that step"
            return Problem("warning", "unusual action", message, advice, episode, step, column)

        problems += listed(rows, make, "unusual action", "warning") if high > low else []
    return problems
