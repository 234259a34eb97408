"""Insight: what a page shows of a plan, as plain lists: its path, the demonstrations behind it, other samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.analysis.explain import transferred_chunks
from closedform.analysis.familiarity import Familiarity
from closedform.analysis.stage import rounded
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan

_N_GHOSTS = 8
_N_BEHIND = 6
_N_SAMPLES = 12


def insight(
    policy: DemonstrationPolicy[Any],
    window: np.ndarray,
    plan: Plan,
    numbers: dict[int, int],
    familiarity: Familiarity | None,
    seconds: float,
) -> dict[str, Any]:
    """What a page shows of a plan.

    Args:
        policy: the policy that made it, unchanged since.
        window: (N_o, D_o), the observations that it was made for.
        plan: the plan.
        numbers: the number of the take of each episode id.
        familiarity: of the policy; None if it is not known.
        seconds: that the plan took.
    """
    model = policy.model
    rows = model.store.rows_at(plan.episodes, plan.steps, 0 if plan.copies is None else plan.copies)[:_N_GHOSTS]
    chunks = transferred_chunks(model, window, rows, plan)
    samples = policy.sample(window[None], _N_SAMPLES, seed=0)[0]
    return {
        "chunk": _path(plan.actions),
        "n_execute": policy.config.n_execute,
        "fan": [_path(chunk) for chunk in samples],
        "ghosts": [
            {"path": _path(chunk), "weight": round(float(weight), 4), "take": numbers.get(int(episode)), "step": int(t)}
            for chunk, weight, episode, t in zip(chunks, plan.weights, plan.episodes, plan.steps, strict=False)
        ],
        "behind": _behind(plan, numbers),
        "frame": plan.frame,
        "n_effective": round(plan.n_effective, 3),
        "distance": round(plan.distance, 3),
        "level": None if familiarity is None else familiarity.level(plan.distance),
        "share_farther": None if familiarity is None else round(familiarity.share_farther(plan.distance), 3),
        "milliseconds": round(1e3 * seconds, 2),
    }


def _behind(plan: Plan, numbers: dict[int, int]) -> list[dict[str, Any]]:
    """The takes with the largest weights, summed over their chunks, each with the step of its heaviest chunk."""
    found: dict[int, dict[str, Any]] = {}
    for episode, step, weight in zip(plan.episodes.tolist(), plan.steps.tolist(), plan.weights.tolist(), strict=True):
        take = found.setdefault(episode, {"take": numbers.get(episode), "step": step, "weight": 0.0})
        take["weight"] += weight
    largest = sorted(found.values(), key=lambda take: -take["weight"])[:_N_BEHIND]
    return [{**take, "weight": round(take["weight"], 4)} for take in largest]


def _path(chunk: np.ndarray) -> list[list[float]]:
    return rounded(chunk[:, :2])
