"""Health: statistics of a set of demonstrations, and problems found in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from closedform.analysis.entry_problems import (
    EntryFacts,
    find_constant,
    find_jumps,
    find_not_finite,
    find_outliers,
    measure_entry,
)
from closedform.analysis.episode_problems import find_duplicates, find_faulty, find_idle, find_short
from closedform.analysis.outcome_problems import (
    find_ends_in_motion,
    find_equal_lengths,
    find_never_moved,
    find_uncommanded,
)
from closedform.analysis.prediction_problems import find_badly_predicted, find_thin_coverage, leave_out
from closedform.analysis.problem import Problem
from closedform.demos.demos import Demos

__all__ = ["EntryFacts", "Health", "Problem", "examine"]


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
        notes: on the default policy of these demonstrations.
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
        problems += find_not_finite(what, demos, values, lengths)
        facts[what] = [measure_entry(what, demos.describe(what, i), values[:, i]) for i in range(values.shape[1])]
        problems += find_constant(facts[what], layout.used_columns)
        problems += find_jumps(demos, values, lengths) if what == "observations" else []
        problems += find_outliers(demos, values, lengths) if what == "actions" else []
    if all(problem.severity != "error" for problem in problems):  # all numbers are finite
        problems += find_faulty(demos)
    problems += find_duplicates(demos)
    problems += find_idle(demos)
    problems += find_short(lengths)
    if all(problem.severity != "error" for problem in problems):
        problems += find_equal_lengths(lengths) + find_never_moved(demos)
        problems += find_ends_in_motion(demos) + find_uncommanded(demos)
    errors, distances, notes = leave_out(demos, problems, say)
    problems += find_badly_predicted(errors) + find_thin_coverage(distances)
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
