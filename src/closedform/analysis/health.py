"""Health: statistics of a set of demonstrations, and problems found in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from closedform.analysis.leave_one_out import leave_one_out
from closedform.demos.demos import Demos
from closedform.demos.encoding import Encoding, rotation_matrix
from closedform.demos.layout import SPATIAL_ROTATIONS, Layout
from closedform.errors import ClosedFormError
from closedform.evaluation.notes import copying_notes, policy_notes
from closedform.policies.closed_form import ClosedFormPolicy

_IDLE_SECONDS, _IDLE_STEPS = 1.0, 10  # how long nothing may change before it counts as idle
_MOST_LISTED = 5  # problems of one kind that are listed one by one
_LEAVE_OUT_EPISODES, _QUERIES = 206, 10  # episodes that are left out in turn, and steps of each that are predicted


@dataclass(frozen=True)
class Problem:
    """A finding that a person should look at.

    Attributes:
        severity: `error` (the demonstrations cannot be used as they are), `warning` or `note`.
        kind: in a word or two, such as `jump`.
        episode, step: the location, if it has one.
        column: the number of the observation or action that it is about, if any (the first of a rotation).
        message: what was found.
        advice: what to do about it.
    """

    severity: str
    kind: str
    message: str
    advice: str
    episode: int | None = None
    step: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class EntryFacts:
    """Statistics of one number of an observation or action."""

    name: str
    low: float
    high: float
    mean: float
    std: float
    state: str


@dataclass(frozen=True)
class Health:
    """The findings on a set of demonstrations.

    Attributes:
        n_episodes, n_steps, rate: the size, and the rate in steps per second (None if unknown).
        lengths: steps of each episode.
        observations, actions: statistics of each number.
        prediction_error: the leave-one-out error of each episode, root mean square in units where actions fill [-1, 1];
            None for episodes that were not tried.
        distances: (episode, step, distance to the other episodes) of the steps that were tried.
        problems: the most severe first.
        notes: what to know about the default policy of these demonstrations.
    """

    n_episodes: int
    n_steps: int
    rate: float | None
    lengths: list[int]
    observations: list[EntryFacts]
    actions: list[EntryFacts]
    prediction_error: list[float | None]
    distances: list[tuple[int, int, float]]
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The findings as plain lists and dictionaries."""
        return asdict(self)


def examine(demos: Demos, *, progress: Callable[[str, float], object] | None = None) -> Health:
    """Examines demonstrations, which may contain non-finite numbers.

    Args:
        demos: as returned by `load_demos(path, finite=False)`.
        progress: called with a description and the fraction done.
    """
    say = progress or (lambda *_: None)
    lengths = [len(episode) for episode in demos]
    problems: list[Problem] = []
    facts: dict[str, list[EntryFacts]] = {}
    for what in ("observations", "actions"):
        say(f"checking {what}", 0.0)
        values = demos.all_observations() if what == "observations" else demos.all_actions()
        layout = demos.observation_layout if what == "observations" else demos.action_layout
        problems += _not_finite(what, values, layout, lengths)
        facts[what] = [_entry(what, layout.describe(i), values[:, i]) for i in range(values.shape[1])]
        problems += _constant(facts[what], layout.used_columns)
        problems += _jumps(what, values, layout, lengths) if what == "observations" else []
        problems += _outliers(values, layout, lengths) if what == "actions" else []
    problems += _duplicates(demos)
    problems += _idle(demos)
    problems += _short(lengths)
    errors, distances, notes = _leave_one_out(demos, problems, say)
    problems += _badly_predicted(errors) + _thin(distances)
    order = {"error": 0, "warning": 1, "note": 2}
    return Health(
        n_episodes=len(demos),
        n_steps=sum(lengths),
        rate=demos.rate,
        lengths=lengths,
        observations=facts["observations"],
        actions=facts["actions"],
        prediction_error=errors,
        distances=distances,
        problems=sorted(problems, key=lambda p: order[p.severity]),
        notes=notes,
    )


def _place(lengths: list[int], row: int) -> tuple[int, int]:
    ends = np.cumsum(lengths)
    episode = int(np.searchsorted(ends, row, side="right"))
    return episode, int(row - (ends[episode] - lengths[episode]))


def _listed(rows: np.ndarray, make: Callable[[int], Problem], kind: str, severity: str) -> list[Problem]:
    """The first of many problems of a kind, and a summary of the others."""
    problems = [make(int(row)) for row in rows[:_MOST_LISTED]]
    if len(rows) > _MOST_LISTED:
        others = list(dict.fromkeys(make(int(row)).episode for row in rows[_MOST_LISTED:1000]))
        where = ", ".join(map(str, others[:30])) + (", ..." if len(others) > 30 else "")
        message = f"{len(rows) - _MOST_LISTED} more of the same kind, in episodes {where}"
        problems.append(Problem(severity, kind, message, "see the first ones"))
    return problems


def _entry(what: str, name: str, values: np.ndarray) -> EntryFacts:
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


def _not_finite(what: str, values: np.ndarray, layout: Layout, lengths: list[int]) -> list[Problem]:
    rows, columns = np.nonzero(~np.isfinite(values))
    first = {int(row): int(column) for row, column in zip(rows[::-1], columns[::-1], strict=True)}

    def make(row: int) -> Problem:
        episode, step = _place(lengths, row)
        found = values[row, first[row]]
        message = f"{what[:-1]} {layout.describe(first[row])} is {found}"
        advice = "remove the step or record the episode again"
        return Problem("error", "not finite", message, advice, episode, step, first[row])

    return _listed(np.unique(rows), make, "not finite", "error")


def _constant(facts: list[EntryFacts], columns: tuple[int, ...]) -> list[Problem]:
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


def _jumps(what: str, values: np.ndarray, layout: Layout, lengths: list[int]) -> list[Problem]:
    """Steps that change a number by half its range or a rotation by half a radian, and far more than usual."""
    problems: list[Problem] = []
    inside = np.ones(len(values), bool)
    inside[np.append(0, np.cumsum(lengths)[:-1])] = False  # the first step of an episode follows on nothing
    for column, kind, change, least in _changes(values, layout):
        usual = change[inside & np.isfinite(change)]
        if not len(usual) or not least > 0:
            continue
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero(inside & (change > max(least, 10 * float(np.median(usual)))))
        turns = np.abs(change[rows, None] - [2 * np.pi, 360.0]) < [0.6, 30.0]
        wraps = kind not in SPATIAL_ROTATIONS and len(rows) > 0 and bool(turns.all(0).any())
        if wraps:
            severity, name = ("note" if kind == "angle" else "warning"), "wrapped angle"
            advice = (
                "nothing to do: it is declared an angle" if kind == "angle" else "declare it an angle in the layout"
            )
        else:
            severity, name, advice = "warning", "jump", "check for a lost marker or a dropped packet"

        def make(
            row: int, column: int = column, kind: str = kind, labels: tuple[str, str, str] = (severity, name, advice)
        ) -> Problem:
            found = f"{what[:-1]} {layout.describe(column)} jumps"
            if kind not in SPATIAL_ROTATIONS:
                found += f" from {values[row - 1, column]:.4g} to {values[row, column]:.4g}"
            return Problem(labels[0], labels[1], found, labels[2], *_place(lengths, row), column)

        problems += _listed(rows, make, name, severity)
    return problems


def _changes(values: np.ndarray, layout: Layout) -> Iterator[tuple[int, str, np.ndarray, float]]:
    """The change of each number or rotation from the previous step, and the smallest change that could be a jump."""
    for entry, columns in layout.slices():
        part = values[:, columns].astype(np.float64)
        change = np.zeros(len(part))
        if entry.kind in SPATIAL_ROTATIONS:
            rotations = rotation_matrix(Encoding(Layout((entry,))).encode(part))
            traces = np.einsum("tij,tij->t", rotations[1:], rotations[:-1])
            change[1:] = np.arccos(np.clip((traces - 1) / 2, -1, 1))
            yield columns.start, entry.kind, change, 0.5
        elif entry.kind not in ("binary", "ignored"):
            for index, number in enumerate(part.T):
                change = np.zeros(len(part))
                change[1:] = np.abs(np.diff(number))
                finite = number[np.isfinite(number)]
                yield columns.start + index, entry.kind, change, 0.5 * float(np.ptp(finite)) if len(finite) else 0.0


def _outliers(values: np.ndarray, layout: Layout, lengths: list[int]) -> list[Problem]:
    """Actions farther from the central 98% of values than that range is wide."""
    problems: list[Problem] = []
    for column in range(values.shape[1]):
        number = values[:, column].astype(np.float64)
        finite = number[np.isfinite(number)]
        if not len(finite):
            continue
        low, high = np.quantile(finite, [0.01, 0.99])
        with np.errstate(invalid="ignore"):
            rows = np.flatnonzero((number < low - (high - low)) | (number > high + (high - low)))

        def make(
            row: int, number: np.ndarray = number, column: int = column, low: float = low, high: float = high
        ) -> Problem:
            episode, step = _place(lengths, row)
            message = f"action {layout.describe(column)} is {number[row]:.4g}, usually {low:.4g} to {high:.4g}"
            advice = "check the command at that step"
            return Problem("warning", "unusual action", message, advice, episode, step, column)

        problems += _listed(rows, make, "unusual action", "warning") if high > low else []
    return problems


def _duplicates(demos: Demos) -> list[Problem]:
    seen: dict[bytes, int] = {}
    problems = []
    for index, episode in enumerate(demos):
        digest = hashlib.sha256(episode.observations.tobytes() + episode.actions.tobytes()).digest()
        if digest in seen:
            message = f"episode {index} is the same as episode {seen[digest]}"
            problems.append(Problem("warning", "duplicate", message, "remove one of them", index, 0))
        seen.setdefault(digest, index)
    return problems


def _idle(demos: Demos) -> list[Problem]:
    """Runs of steps in which neither observations nor actions change by a thousandth of their spread."""
    shortest = max(_IDLE_STEPS, int(_IDLE_SECONDS * demos.rate)) if demos.rate else _IDLE_STEPS
    scales = []
    for values in (demos.all_observations(), demos.all_actions()):
        finite = np.where(np.isfinite(values), values, 0)
        scales.append(np.maximum(finite.std(0), 1e-12) * 1e-3)
    stretches = []
    for index, episode in enumerate(demos):
        if len(episode) < 2:
            continue
        still = np.ones(len(episode) - 1, bool)
        for values, scale in zip((episode.observations, episode.actions), scales, strict=True):
            with np.errstate(invalid="ignore"):
                still &= (np.abs(np.diff(values, axis=0)) <= scale).all(1)
        edges = np.diff(np.concatenate([[0], still, [0]]).astype(int))
        for begin, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            if end - begin >= shortest:
                stretches.append((index, int(begin), int(end - begin)))
    stretches.sort(key=lambda s: -s[2])

    def make(row: int) -> Problem:
        episode, step, length = stretches[row]
        return Problem("note", "idle", f"nothing changes for {length} steps", "remove these steps", episode, step)

    return _listed(np.arange(len(stretches)), make, "idle", "note")


def _short(lengths: list[int]) -> list[Problem]:
    typical = float(np.median(lengths))
    return [
        Problem(
            "warning",
            "short",
            f"episode {i} has {n} steps, the median is {typical:g}",
            "check that it is complete",
            i,
            0,
        )
        for i, n in enumerate(lengths)
        if n < 0.2 * typical
    ][:_MOST_LISTED]


def _leave_one_out(
    demos: Demos, problems: list[Problem], say: Callable[[str, float], object]
) -> tuple[list[float | None], list[tuple[int, int, float]], list[str]]:
    """Predicts episodes from all others with the closed-form policy; an evenly spread selection if there are many."""
    errors: list[float | None] = [None] * len(demos)
    distances: list[tuple[int, int, float]] = []
    notes: list[str] = []
    if len(demos) < 2 or any(problem.severity == "error" for problem in problems):
        return errors, distances, notes
    try:
        policy = ClosedFormPolicy(demos)
        n_effective = _predict(policy, errors, distances, say)
        notes = [*policy_notes(policy), *copying_notes(policy, n_effective, "in plans for left-out demonstrations")]
    except ClosedFormError as error:
        problems.append(
            Problem("error", "unusable", str(error), "the policy cannot be built from these demonstrations")
        )
    return errors, distances, notes


def _predict(
    policy: ClosedFormPolicy,
    errors: list[float | None],
    distances: list[tuple[int, int, float]],
    say: Callable[[str, float], object],
) -> list[float]:
    """Fills in errors and distances, and returns the effective numbers of the plans."""
    n_effective: list[float] = []
    n_episodes = len(errors)
    most = _LEAVE_OUT_EPISODES if policy.n_windows < 200_000 else 20
    chosen = np.unique(np.linspace(0, n_episodes - 1, min(most, n_episodes)).astype(int)).tolist()
    for count, left_out in enumerate(leave_one_out(policy, episodes=chosen, n_windows=_QUERIES)):
        say("leave-one-out prediction", count / len(chosen))
        errors[left_out.episode] = left_out.rms_error
        places = zip(left_out.steps.tolist(), left_out.distances.tolist(), strict=True)
        distances += [(left_out.episode, step, distance) for step, distance in places]
        n_effective += left_out.n_effective.ravel().tolist()
    return n_effective


def _badly_predicted(errors: list[float | None]) -> list[Problem]:
    known = np.array([error for error in errors if error is not None])
    if len(known) < 5:
        return []
    q1, q3 = np.quantile(known, [0.25, 0.75])
    limit = q3 + 3 * (q3 - q1)
    rows = np.array([i for i, error in enumerate(errors) if error is not None and error > limit], int)

    def make(row: int) -> Problem:
        message = (
            f"the others predict episode {row} badly: error {errors[row]:.2f}, the median is {np.median(known):.2f}"
        )
        return Problem(
            "warning",
            "unlike the others",
            message,
            "watch it: it is a mistake, or a rare case that needs more demonstrations",
            row,
            0,
        )

    return _listed(rows, make, "unlike the others", "warning")


def _thin(distances: list[tuple[int, int, float]]) -> list[Problem]:
    """The steps that are farthest from all other episodes."""
    if len(distances) < 20:
        return []
    values = np.array([distance for _, _, distance in distances])
    q1, q3 = np.quantile(values, [0.25, 0.75])
    rows = np.argsort(-values)
    rows = rows[values[rows] > q3 + 3 * (q3 - q1)]

    def make(row: int) -> Problem:
        episode, step, distance = distances[row]
        message = f"unlike anything elsewhere: distance {distance:.1f}, the median is {np.median(values):.1f}"
        return Problem("note", "thin coverage", message, "record more there if it matters", episode, step)

    return _listed(rows, make, "thin coverage", "note")
