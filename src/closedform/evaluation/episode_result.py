"""EpisodeResult: one episode of an evaluation, one row of its results file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from closedform.errors import DataError
from closedform.evaluation.results_check import check_row, refuse, short


@dataclass(frozen=True)
class EpisodeResult:
    """The outcome of one episode.

    Attributes:
        seed: of the start state and of the policy's randomness.
        score: the maximum score over the episode.
        success: whether the task was accomplished.
        steps: how many actions were executed.
        most_repeated: the largest number of plans dominated by the same segment of a demonstration.
        loop: whether that number is so large that the policy was in a loop.
        demonstrations: the most used ones, each with its fraction of all plans.
        distances: (plans,), from the observation to the demonstrations.
        latency_ms: (plans,), the time of each plan, including all plans made in the same batch.
        neural_shares: (plans,), the weight of the network in each plan; None for policies that are not mixtures.
        extra: added by `evaluate(describe=...)`.
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
        taken = sorted(_NAMES & self.extra.keys())
        if taken:
            raise DataError(f"expected `describe` to return new field names, found the existing one {taken[0]!r}")

    @classmethod
    def from_json(cls, row: Any, where: object = "an episode", prefix: str = "") -> EpisodeResult:
        """Reads a row of a results file; every field is checked, since files are not trusted.

        Args:
            row: as returned by `to_json`.
            where, prefix: the file and the position in it, for messages.
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
            extra={key: value for key, value in row.items() if key not in _NAMES},
        )

    def to_json(self) -> dict[str, Any]:
        """The row for a results file."""
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


_NAMES = frozenset(one.name for one in fields(EpisodeResult)) - {"extra"}
