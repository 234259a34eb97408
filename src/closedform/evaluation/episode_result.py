"""EpisodeResult: one episode of an evaluation, a row of its results file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from closedform.errors import DataError
from closedform.evaluation.results_check import check_row, refuse, short


@dataclass(frozen=True)
class EpisodeResult:
    """How an episode went.

    Attributes:
        seed: of the start state and of the policy's randomness.
        score: the best score that was reached.
        success: whether the task was done.
        steps: how many actions were executed.
        most_repeated: how many plans were led by the same stretch of a demonstration, for the stretch that led most.
        loop: whether these are so many that the policy went in circles.
        demonstrations: those that led most, each with its share of all plans.
        distances: (plans,), from the observation to the demonstrations.
        latency_ms: (plans,), what each plan took, with all that were made together with it.
        neural_shares: (plans,), the share of a network in each plan; None where it is all or nothing.
        extra: what `evaluate(describe=...)` added.
    """

    seed: int
    score: float
    success: bool
    steps: int
    most_repeated: int
    loop: bool
    demonstrations: tuple[tuple[int, float], ...]
    distances: tuple[float, ...]
    latency_ms: tuple[float, ...]
    neural_shares: tuple[float, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = sorted(NAMES & self.extra.keys())
        if taken:
            raise DataError(f"expected an episode to be described under names of its own, found {taken[0]!r}")

    @classmethod
    def from_json(cls, row: Any, where: object = "an episode", prefix: str = "") -> EpisodeResult:
        """Reads a row of a results file; all of it is checked, since a file may come from anywhere.

        Args:
            row: what `to_json` returned.
            where, prefix: the file and the place in it, for messages.
        """
        if not isinstance(row, dict):
            refuse(where, "an object", short(row))
        check_row(row, where, prefix)
        shares = row.get("neural_shares")
        return cls(
            seed=row["seed"],
            score=row["score"],
            success=row["success"],
            steps=row["steps"],
            most_repeated=row["most_repeated"],
            loop=row["loop"],
            demonstrations=tuple((episode, share) for episode, share in row["demonstrations"]),
            distances=tuple(row["distances"]),
            latency_ms=tuple(row["latency_ms"]),
            neural_shares=None if shares is None else tuple(shares),
            extra={key: value for key, value in row.items() if key not in NAMES},
        )

    def to_json(self) -> dict[str, Any]:
        """The row of a results file."""
        row: dict[str, Any] = {
            "seed": self.seed,
            "score": self.score,
            "success": self.success,
            "steps": self.steps,
            "most_repeated": self.most_repeated,
            "loop": self.loop,
            "demonstrations": [[episode, share] for episode, share in self.demonstrations],
            "distances": list(self.distances),
            "latency_ms": list(self.latency_ms),
        }
        if self.neural_shares is not None:
            row["neural_shares"] = list(self.neural_shares)
        return {**row, **self.extra}


NAMES = frozenset(one.name for one in fields(EpisodeResult)) - {"extra"}
