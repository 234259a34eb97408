"""Copies: numbers of the observation that repeat the last observation or the last action."""

from __future__ import annotations

import numpy as np

from closedform.demos.inference.inferred import Copy
from closedform.demos.inference.sample import Sample

SCREEN = 64  # pairs of steps on which candidates are found before all are compared
TOLERANCE = 1e-6  # of the range of a column


def find_copies(sample: Sample) -> tuple[Copy, ...]:
    """Columns that always equal another one a step earlier, such as stacked frames, up to a constant offset."""
    steps = sample.steps(1)
    if len(steps) < 8:
        return ()
    found: dict[int, Copy] = {}
    for copy in [*_of_observations(sample, steps), *_of_actions(sample, steps)]:
        found.setdefault(copy.column, copy)
    return tuple(found[column] for column in sorted(found))


def _of_observations(sample: Sample, steps: np.ndarray) -> list[Copy]:
    """Runs of columns with one shift; at least one number of a run must change, since resting numbers are all equal."""
    x, n = sample.x, sample.x.shape[1]
    close = TOLERANCE * (sample.observed.high - sample.observed.low) + 1e-12
    moves = sample.observed.varies & ~sample.observed.still & ~sample.observed.binary
    changing = steps[np.any(x[steps + 1][:, moves] != x[steps][:, moves], axis=1)] if moves.any() else steps[:0]
    if len(changing) < 8:
        return []
    some = changing[np.linspace(0, len(changing) - 1, SCREEN).astype(int)]
    now, last = x[some + 1], x[some]
    same = np.ones((n, n), bool)  # column j now equals column i at the last step, up to an offset if it moves
    offset = np.where(moves[:, None] & moves[None, :], now[0][:, None] - last[0][None, :], 0.0)
    for row in range(len(some)):
        same &= np.abs(now[row][:, None] - last[row][None, :] - offset) <= close[:, None]
    shifts = [int(j - i) for j, i in np.argwhere(same & moves[None, :] & moves[:, None]) if i != j]
    copies: dict[int, int] = {}
    for shift in sorted(set(shifts), key=lambda shift: (-shifts.count(shift), abs(shift))):
        columns = np.arange(max(shift, 0), min(n, n + shift))
        matches = same[columns, columns - shift] & sample.observed.usable[columns]
        matches[matches] = [
            np.all(np.abs(x[steps + 1, j] - x[steps, j - shift] - offset[j, j - shift]) <= close[j])
            for j in columns[matches]
        ]
        sources = {i for j, i in copies.items() if j - i != shift}  # of copies already found; not copies themselves
        for run in np.split(columns, np.flatnonzero(np.diff(matches)) + 1):
            if matches[run[0] - columns[0]] and moves[run].any() and sources.isdisjoint(run.tolist()):
                copies.update({int(j): int(j - shift) for j in run if j not in copies})
    return [Copy(j, i) for j, i in copies.items()]


def _of_actions(sample: Sample, steps: np.ndarray) -> list[Copy]:
    """Columns that hold the last action."""
    copies = []
    for i in np.flatnonzero(sample.commanded.varies):
        own = sample.a[steps, i]
        if len(np.unique(own)) < 3:
            continue
        close = TOLERANCE * (sample.commanded.high[i] - sample.commanded.low[i]) + 1e-12
        for j in np.flatnonzero(sample.observed.varies & ~sample.observed.still):
            # A number that follows a target exactly also equals it a step later, but is no copy: it starts elsewhere.
            if abs(sample.x[steps[0] + 1, j] - own[0]) > close:
                continue
            if np.all(np.abs(sample.x[steps + 1, j] - own) <= close) and not _starts_apart(sample, int(j)):
                copies.append(Copy(int(j), int(i), "action"))
    return copies


def _starts_apart(sample: Sample, column: int) -> bool:
    """Whether a column starts episodes at different values; before the first action there is none to repeat."""
    starts = sample.x[sample.starts, column]
    return len(starts) < 2 or bool(np.ptp(starts) > 0)
