"""Problems found by leave-one-out prediction: episodes unlike the others, and thin coverage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from closedform.analysis.leave_one_out import leave_one_out
from closedform.analysis.problem import Problem, listed
from closedform.demos.chosen_layouts import choose_layouts
from closedform.demos.demos import Demos
from closedform.errors import ClosedFormError
from closedform.evaluation.notes import policy_notes
from closedform.policies.closed_form import ClosedFormPolicy

_LEAVE_OUT_EPISODES, _QUERIES = 206, 10  # episodes that are left out in turn, and steps of each that are predicted


def leave_out(
    demos: Demos, problems: list[Problem], say: Callable[[str, float], object]
) -> tuple[list[float | None], list[tuple[int, int, float]], list[str]]:
    """Predicts episodes from all others with the closed-form policy; an evenly spread selection if there are many."""
    errors: list[float | None] = [None] * len(demos)
    distances: list[tuple[int, int, float]] = []
    notes: list[str] = []
    if len(demos) < 2 or any(problem.severity == "error" for problem in problems):
        return errors, distances, notes
    try:
        policy = ClosedFormPolicy(choose_layouts(demos).demos)
        _predict(policy, errors, distances, say)
        notes = policy_notes(policy)
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
) -> None:
    """Fills in errors and distances."""
    n_episodes = len(errors)
    most = _LEAVE_OUT_EPISODES if policy.n_windows < 200_000 else 20
    chosen = np.unique(np.linspace(0, n_episodes - 1, min(most, n_episodes)).astype(int)).tolist()
    for count, left_out in enumerate(leave_one_out(policy, episodes=chosen, n_windows=_QUERIES)):
        say("leave-one-out prediction", count / len(chosen))
        errors[left_out.episode] = left_out.rms_error
        places = zip(left_out.steps.tolist(), left_out.distances.tolist(), strict=True)
        distances += [(left_out.episode, step, distance) for step, distance in places]


def find_badly_predicted(errors: list[float | None]) -> list[Problem]:
    """Episodes whose leave-one-out error is far above the others'."""
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
            "look at it: it is a mistake, or a rare case that needs more demonstrations",
            row,
            0,
        )

    return listed(rows, make, "unlike the others", "warning")


def find_thin_coverage(distances: list[tuple[int, int, float]]) -> list[Problem]:
    """The steps that are farthest from all other episodes."""
    if len(distances) < 20:
        return []
    values = np.array([distance for _, _, distance in distances])
    q1, q3 = np.quantile(values, [0.25, 0.75])
    rows = np.argsort(-values)
    rows = rows[values[rows] > q3 + 3 * (q3 - q1)]

    def make(row: int) -> Problem:
        episode, step, distance = distances[row]
        message = f"unlike anything elsewhere: distance {distance:.2g}, the median is {np.median(values):.2g}"
        return Problem("note", "thin coverage", message, "record more there if it matters", episode, step)

    return listed(rows, make, "thin coverage", "note")
