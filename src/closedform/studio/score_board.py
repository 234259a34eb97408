"""ScoreBoard: how the runs of a session ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from closedform.evaluation.intervals import wilson_ci95


@dataclass(frozen=True)
class ScoredRun:
    """One run from a start state: of which seed, whether a person drove any of it, and how it ended."""

    seed: int
    helped: bool
    success: bool
    score: float


class ScoreBoard:
    """The runs of a session; rates count those in which the policy drove alone."""

    def __init__(self):
        self._runs: list[ScoredRun] = []
        self._edited_at = 0  # runs before the last edit

    def add(self, run: ScoredRun) -> None:
        """Adds a run that ended."""
        self._runs.append(run)

    def edited(self) -> None:
        """Begins to count anew: the demonstrations or parameters changed."""
        self._edited_at = len(self._runs)

    def to_json(self) -> dict[str, Any]:
        """The counts, with 95% intervals of rates."""
        alone = [run for run in self._runs if not run.helped]
        return {
            "runs": len(self._runs),
            "helped": len(self._runs) - len(alone),
            "alone": _rate(alone),
            "before_edit": _rate([run for run in self._runs[: self._edited_at] if not run.helped]),
            "since_edit": _rate([run for run in self._runs[self._edited_at :] if not run.helped]),
            "recent": [
                {"seed": run.seed, "helped": run.helped, "success": run.success, "score": round(run.score, 3)}
                for run in self._runs[-40:]
            ],
        }


def _rate(runs: list[ScoredRun]) -> dict[str, Any]:
    n, successes = len(runs), sum(run.success for run in runs)
    return {"n": n, "successes": successes, "ci95": list(wilson_ci95(successes, n)) if n else None}
