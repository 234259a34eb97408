"""EpisodeResult: one episode of an evaluation, one row of its results file."""

from __future__ import annotations

from collections import Counter
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
        frames: the frames of the plans in order, each with the number of plans in a row that used it.
        held: the same for grasped objects, `""` for none.
        n_effective: (plans,), the effective number of demonstrations of each.
        shrinkage: of the metric, the mean over plans.
        outside: the fraction of steps whose observation was outside the range of the demonstrations, and the entry that
            was so most often. Like the four above it is None without demonstrations, and in older results.
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
    frames: tuple[tuple[str, int], ...] | None = None
    held: tuple[tuple[str, int], ...] | None = None
    n_effective: tuple[float, ...] | None = None
    shrinkage: float | None = None
    outside: tuple[float, str | None] | None = None
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
        some = {name: _frozen(row[name]) for name in _OPTIONAL if name in row}
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
            **some,
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
        known = {name: getattr(self, name) for name in _OPTIONAL}
        row |= {name: _thawed(value) for name, value in known.items() if value is not None}
        return {**row, **self.extra}

    @property
    def frame_shares(self) -> dict[str, float]:
        """The fraction of plans that used each frame, the most used first."""
        counts: Counter[str] = Counter()
        for name, count in self.frames or ():
            counts[name] += count
        return {name: count / counts.total() for name, count in counts.most_common()}

    @property
    def held_share(self) -> float:
        """The fraction of plans with something grasped."""
        runs = self.held or ()
        return sum(count for name, count in runs if name) / max(sum(count for _, count in runs), 1)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


_OPTIONAL = ("neural_shares", "frames", "held", "n_effective", "shrinkage", "outside")  # not in every file
_NAMES = frozenset(one.name for one in fields(EpisodeResult)) - {"extra"}
