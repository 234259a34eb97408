"""A problem found in a set of demonstrations, and how problems are listed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

_MOST_LISTED = 5  # problems of one kind that are listed one by one


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
        count: how many findings it stands for.
    """

    severity: str
    kind: str
    message: str
    advice: str
    episode: int | None = None
    step: int | None = None
    column: int | None = None
    count: int = 1


def place(lengths: list[int], row: int) -> tuple[int, int]:
    """The episode and step of a row of all steps."""
    ends = np.cumsum(lengths)
    episode = int(np.searchsorted(ends, row, side="right"))
    return episode, int(row - (ends[episode] - lengths[episode]))


def listed(rows: np.ndarray, make: Callable[[int], Problem], kind: str, severity: str) -> list[Problem]:
    """The first of many problems of a kind, and a summary of the others."""
    problems = [make(int(row)) for row in rows[:_MOST_LISTED]]
    if len(rows) > _MOST_LISTED:
        others = list(dict.fromkeys(make(int(row)).episode for row in rows[_MOST_LISTED:1000]))
        where = ", ".join(map(str, others[:30])) + (", ..." if len(others) > 30 else "")
        message = f"{len(rows) - _MOST_LISTED} more of the same kind, in episodes {where}"
        count = len(rows) - _MOST_LISTED
        problems.append(Problem(severity, kind, message, "see the first ones", count=count))
    return problems


@dataclass(frozen=True)
class ProblemGroup:
    """All problems of one kind.

    Attributes:
        severity, kind: those of the problems.
        count: how many findings there are.
        problems: the first of them one by one, and a summary of the others.
    """

    severity: str
    kind: str
    count: int
    problems: tuple[Problem, ...]

    def describe(self) -> str:
        """What was found, in one line."""
        first = self.problems[0]
        place = "" if first.episode is None else f" in episode {first.episode}"
        place += "" if not first.step else f", step {first.step}"
        more = (
            f" ({self.count} in all{place and f', the first{place}'})"
            if self.count > 1
            else f" ({place.strip()})"
            if place
            else ""
        )
        return f"{first.message}{more}"


def grouped(problems: Sequence[Problem]) -> list[ProblemGroup]:
    """Problems by kind and severity, in the order of the first of each."""
    found: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        found.setdefault((problem.severity, problem.kind), []).append(problem)
    return [ProblemGroup(*key, sum(p.count for p in some), tuple(some)) for key, some in found.items()]
