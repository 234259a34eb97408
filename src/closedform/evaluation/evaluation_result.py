"""EvaluationResult: the outcome of an evaluation, and its results file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import DataError, LoadError
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.intervals import Interval, bootstrap_ci95, wilson_ci95
from closedform.evaluation.origin import Origin
from closedform.evaluation.results_check import check_results, refuse, short
from closedform.evaluation.subject import Subject
from closedform.figures import html_table
from closedform.files import read_json, write_file

FORMAT = "closedform-results"
FORMAT_VERSION = 1
_FIGURES = ("complete", "score", "success", "steps", "latency_ms")
_NAMES = {
    "format",
    "format_version",
    *Subject.__dataclass_fields__,
    *_FIGURES,
    *Origin.__dataclass_fields__,
    "episodes",
}


@dataclass(frozen=True)
class EvaluationResult:
    """The outcome of an evaluation.

    Attributes:
        subject: what was evaluated.
        complete: whether all of its episodes were run.
        score: the mean over episodes (95% bootstrap interval).
        success: the success rate (95% Wilson interval).
        mean_steps: the mean length of an episode.
        latency_p50_ms, latency_p99_ms: percentiles over all plans.
        origin: how it was produced.
        episodes: at least one, ordered by seed.
        extra: additional fields of the file.
    """

    subject: Subject
    complete: bool
    score: Interval
    success: Interval
    mean_steps: float
    latency_p50_ms: float
    latency_p99_ms: float
    origin: Origin
    episodes: tuple[EpisodeResult, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = sorted(_NAMES & self.extra.keys())
        if taken:
            raise DataError(f"expected extra fields with new names, found the existing one {taken[0]!r}")

    def __repr__(self) -> str:
        n = f"{len(self.episodes)}" + ("" if self.complete else f" of {self.subject.n_episodes}")
        name = self.subject.policy.get("name")
        return (
            f"EvaluationResult({name} in {self.subject.env}: success {self.success}, score {self.score}, {n} episodes)"
        )

    def _repr_html_(self) -> str:
        """The result in a notebook."""
        rows = [
            ("success [95%]", str(self.success)),
            ("score [95%]", str(self.score)),
            ("steps", f"{self.mean_steps:.0f} on average"),
            ("a plan", f"{self.latency_p50_ms:.2g} ms, p99 {self.latency_p99_ms:.2g} ms"),
            ("episodes", f"{len(self.episodes)}" + ("" if self.complete else f" of {self.subject.n_episodes}")),
        ]
        return html_table(f"{self.subject.policy.get('name')} in {self.subject.env}", rows)

    @classmethod
    def of(cls, subject: Subject, episodes: Iterable[EpisodeResult], origin: Origin) -> EvaluationResult:
        """Summarizes at least one episode, in any order."""
        episodes = tuple(sorted(episodes, key=lambda episode: episode.seed))
        if not episodes:
            raise DataError("expected at least one episode to summarize, found none")
        n, n_successes = len(episodes), sum(episode.success for episode in episodes)
        scores = np.array([episode.score for episode in episodes])
        latencies = np.concatenate([episode.latency_ms for episode in episodes])
        return cls(
            subject=subject,
            complete=n == subject.n_episodes,
            score=Interval(float(scores.mean()), *bootstrap_ci95(scores)),
            success=Interval(n_successes / n, *wilson_ci95(n_successes, n)),
            mean_steps=float(np.mean([episode.steps for episode in episodes])),
            latency_p50_ms=float(np.percentile(latencies, 50)),
            latency_p99_ms=float(np.percentile(latencies, 99)),
            origin=origin,
            episodes=episodes,
        )

    @classmethod
    def load(cls, path: str | Path) -> EvaluationResult:
        """Reads a results file; every field is checked, since files are not trusted."""
        return cls.from_json(read_json(Path(path), "a results file"), path)

    def save(self, path: str | Path) -> None:
        """Writes a results file atomically."""
        content = self.to_json()
        rows = ",\n".join(f"    {json.dumps(row)}" for row in content["episodes"])
        head = json.dumps({**content, "episodes": []}, indent=2)
        write_file(Path(path), head.removesuffix("[]\n}") + f"[\n{rows}\n  ]\n}}\n")

    @classmethod
    def from_json(cls, content: Any, where: object = "results") -> EvaluationResult:
        """Reads the content of a results file.

        Args:
            content: as returned by `to_json`.
            where: the file, for messages.
        """
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise LoadError(f"{where}: expected a results file written by 'closedform eval --json', found another file")
        if content.get("format_version") != FORMAT_VERSION:
            raise LoadError(
                f"{where}: expected results of version {FORMAT_VERSION}, found "
                f"{content.get('format_version')!r:.60}; it was written by another version of closedform"
            )
        if content.get("episodes") == []:
            raise LoadError(
                f"{where}: expected episodes, found none; the evaluation was interrupted during its first episode"
            )
        check_results(content, where)
        result = cls(
            subject=Subject.from_json(content),
            complete=content["complete"],
            score=Interval.from_json(content["score"]),
            success=Interval.from_json(content["success"]),
            mean_steps=content["steps"]["mean"],
            latency_p50_ms=content["latency_ms"]["p50"],
            latency_p99_ms=content["latency_ms"]["p99"],
            origin=Origin.from_json(content),
            episodes=tuple(
                EpisodeResult.from_json(row, where, f"episodes[{index}].")
                for index, row in enumerate(content["episodes"])
            ),
            extra={key: value for key, value in content.items() if key not in _NAMES},
        )
        result._check_agreement(where)
        return result

    @property
    def notes(self) -> list[str]:
        """Notes on the policy or the evaluation, one line each."""
        return list(self.extra.get("notes", ()))

    def to_json(self) -> dict[str, Any]:
        """The content for a results file."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **self.subject.to_json(),
            "complete": self.complete,
            "score": self.score.to_json(),
            "success": self.success.to_json(),
            "steps": {"mean": self.mean_steps},
            "latency_ms": {"p50": self.latency_p50_ms, "p99": self.latency_p99_ms},
            **self.origin.to_json(),
            **self.extra,
            "episodes": [episode.to_json() for episode in self.episodes],
        }

    def _check_agreement(self, where: object) -> None:
        """Refuses summary statistics that do not match the episodes."""
        allowed, seeds = self.subject.seeds, [episode.seed for episode in self.episodes]
        if len(set(seeds)) < len(seeds) or min(seeds) < allowed[0] or max(seeds) > allowed[-1]:
            refuse(where, f"each seed from {allowed[0]} to {allowed[-1]} at most once", f"seeds {short(seeds)}")
        n = self.subject.n_episodes
        if self.complete != (len(seeds) == n):
            refuse(where, f"complete to be {len(seeds) == n} with {len(seeds)} of {n} episodes", f"{self.complete}")
        means = {
            "score": (self.score.mean, [episode.score for episode in self.episodes]),
            "success": (self.success.mean, [episode.success for episode in self.episodes]),
            "steps": (self.mean_steps, [episode.steps for episode in self.episodes]),
        }
        for what, (found, values) in means.items():
            mean = math.fsum(float(value) / len(values) for value in values)
            if not math.isclose(mean, found, rel_tol=1e-6, abs_tol=1e-6):
                refuse(where, f"{what}.mean to be that of the episodes, {mean:.6g}", f"{found:.6g}")
