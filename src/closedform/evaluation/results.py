"""Results: the file that an evaluation writes, and the comparison of several."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import DataError, LoadError
from closedform.evaluation.intervals import bootstrap_ci95, wilson_ci95
from closedform.evaluation.results_check import check_results
from closedform.files import read_json, write_file

FORMAT = "closedform-results"
FORMAT_VERSION = 1


def summarise(subject: dict[str, Any], episodes: Sequence[dict[str, Any]], origin: dict[str, Any]) -> dict[str, Any]:
    """What a results file holds.

    Args:
        subject: what was evaluated: environment, demonstrations, policy, parameters, seed and number of episodes. Two
            evaluations with the same subject have the same episodes.
        episodes: rows of `Rollout.to_json`, in any order.
        origin: command, versions, machine and commit.
    """
    episodes = sorted(episodes, key=lambda row: row["seed"])
    results: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **subject,
        "complete": len(episodes) == subject["n_episodes"],
    }
    if episodes:
        scores = np.array([row["score"] for row in episodes])
        n_successes = sum(row["success"] for row in episodes)
        latencies = np.concatenate([row["latency_ms"] for row in episodes])
        results |= {
            "score": {"mean": float(scores.mean()), "ci95": bootstrap_ci95(scores)},
            "success": {"mean": n_successes / len(episodes), "ci95": wilson_ci95(n_successes, len(episodes))},
            "steps": {"mean": float(np.mean([row["steps"] for row in episodes]))},
            "latency_ms": {f"p{q}": float(np.percentile(latencies, q)) for q in (50, 99)},
        }
    return {**results, **origin, "episodes": episodes}


def write_results(results: dict[str, Any], path: Path) -> None:
    """Writes a results file; the old one is replaced only when the new one is whole."""
    rows = ",\n".join(f"    {json.dumps(row)}" for row in results["episodes"])
    head = json.dumps({**results, "episodes": []}, indent=2)
    write_file(path, head.removesuffix("[]\n}") + f"[\n{rows}\n  ]\n}}\n")


def read_results(path: Path) -> dict[str, Any]:
    """Reads a results file; all of it is checked, since a file may come from anywhere."""
    results = read_json(path, "a results file")
    if not isinstance(results, dict) or results.get("format") != FORMAT:
        raise LoadError(f"{path}: expected a results file of 'closedform eval --json', found another file")
    if results.get("format_version") != FORMAT_VERSION:
        raise LoadError(
            f"{path}: expected results of version {FORMAT_VERSION}, found {results.get('format_version')!r:.60}; "
            "another version of closedform wrote it"
        )
    if results.get("episodes") == []:
        raise LoadError(f"{path}: expected episodes, found none; the evaluation stopped before its first ended")
    check_results(results, path)
    return results


@dataclass(frozen=True)
class Comparison:
    """Two evaluations, paired by seed.

    Attributes:
        n: episodes that both have.
        score, success: how much better the second is, its mean over the episodes.
        score_ci95, success_ci95: their intervals (bootstrap over episodes).
        wins, ties, losses: episodes in which the second scored higher, the same and lower.
        differences: (seed, difference in score), those that differ most first.
    """

    n: int
    score: float
    score_ci95: tuple[float, float]
    success: float
    success_ci95: tuple[float, float]
    wins: int
    ties: int
    losses: int
    differences: list[tuple[int, float]]


def compare(first: dict[str, Any], second: dict[str, Any]) -> Comparison:
    """Compares two results in the same environment over the seeds that both have."""
    if first["env"] != second["env"]:
        raise DataError(f"expected results in one environment, found {first['env']!r} and {second['env']!r}")
    rows, others = ({row["seed"]: row for row in results["episodes"]} for results in (first, second))
    seeds = sorted(rows.keys() & others.keys())
    if not seeds:
        raise DataError(
            f"expected episodes with the same seeds, found {min(rows)} to {max(rows)} and {min(others)} to "
            f"{max(others)}"
        )
    score, success = (
        np.array([float(others[seed][what]) - float(rows[seed][what]) for seed in seeds])
        for what in ("score", "success")
    )
    order = np.argsort(-np.abs(score), kind="stable")
    return Comparison(
        n=len(seeds),
        score=float(score.mean()),
        score_ci95=bootstrap_ci95(score),
        success=float(success.mean()),
        success_ci95=bootstrap_ci95(success),
        wins=int(np.sum(score > 1e-9)),
        ties=int(np.sum(np.abs(score) <= 1e-9)),
        losses=int(np.sum(score < -1e-9)),
        differences=[(seeds[i], float(score[i])) for i in order if abs(score[i]) > 1e-9],
    )
