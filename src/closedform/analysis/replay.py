"""Replay: what a page shows of a rollout, as plain lists: its scene, and of each plan the demonstrations behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from closedform.analysis.explain import transferred_chunks
from closedform.analysis.familiarity import Familiarity
from closedform.analysis.stage import Stage
from closedform.evaluation.rollout import Rollout
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy

_MOST_GHOSTS = 6  # demonstrated chunks that are drawn over a plan
_MOST_NAMED = 4  # demonstrations that are listed and pictured
_MOST_PICTURED = 300  # demonstrations with a picture on a page


def replay(
    rollout: Rollout, policy: Policy[Any], stage: Stage, familiarity: Familiarity | None = None
) -> dict[str, Any]:
    """One rollout, for `page_of`.

    Args:
        rollout: the recording.
        policy: the policy that it is of, unchanged since.
        stage: how the scene is shown.
        familiarity: of the policy; None if it is not known.
    """
    n_seen = policy.config.n_obs_steps
    first = np.repeat(rollout.observations[:1], n_seen - 1, axis=0)
    seen = np.concatenate([first, rollout.observations])

    def shown(step: int, plan: Plan) -> dict[str, Any]:
        usual = familiarity and familiarity.at(first=step == 0)
        return {"t": step, **_shown(plan, policy, seen[step : step + n_seen], stage, usual)}

    return {
        "seed": rollout.seed,
        "success": rollout.success,
        "score": round(rollout.score, 4),
        "scores": np.round(rollout.scores, 3).tolist(),
        "poses": stage.poses(rollout.observations),
        "plans": [shown(step, plan) for step, plan in rollout.plans],
    }


def replay_plan(
    plan: Plan, policy: DemonstrationPolicy[Any], window: np.ndarray, stage: Stage, familiarity: Familiarity
) -> dict[str, Any]:
    """A single plan for a window of observations (N_o, D_o), as a rollout of no steps."""
    shown = {"t": 0, **_shown(plan, policy, window, stage, familiarity)}
    return {"seed": None, "scores": [], "poses": stage.poses(window[-1:]), "plans": [shown]}


def pictured_demos(policy: Policy[Any], replays: Sequence[dict[str, Any]], stage: Stage) -> dict[int, dict[str, Any]]:
    """The demonstrations that replays name, by id: the scene of each and the path of its actions."""
    if not isinstance(policy, DemonstrationPolicy) or stage.kind not in ("shapes", "points"):
        return {}
    named = dict.fromkeys(row["e"] for one in replays for plan in one["plans"] for row in plan["behind"])
    places = {episode: place for place, episode in enumerate(policy.episode_ids)}
    found = {}
    for episode in list(named)[:_MOST_PICTURED]:
        recorded = policy.episodes[places[episode]]
        found[episode] = {"poses": stage.poses(recorded.observations), "path": stage.path(recorded.actions)}
    return found


def _shown(
    plan: Plan, policy: Policy[Any], window: np.ndarray, stage: Stage, familiarity: Familiarity | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "chunk": stage.path(plan.actions),
        "frame": plan.frame,
        "held": plan.held,
        "distance": round(float(plan.distance), 3),
        "network": round(plan.neural_share, 3),
        "behind": _behind(plan),
        "ghosts": [],
    }
    if familiarity is not None:
        shown |= {
            "farther": round(familiarity.share_farther(plan.distance), 3),
            "level": familiarity.level(plan.distance),
        }
    if not isinstance(policy, DemonstrationPolicy) or plan.choice is None or not len(plan.weights):
        return shown
    images = 0 if plan.copies is None else plan.copies
    rows = policy.model.store.rows_at(plan.episodes, plan.steps, images)[:_MOST_GHOSTS]
    chunks = transferred_chunks(policy.model, window, rows, plan)
    shown["ghosts"] = [
        {"path": stage.path(chunk), "w": round(float(weight), 3), "e": int(episode)}
        for chunk, weight, episode in zip(chunks, plan.weights, plan.episodes, strict=False)
    ]
    return shown


def _behind(plan: Plan) -> list[dict[str, Any]]:
    """The demonstrations with the largest weights, summed over their chunks, each with the step of its heaviest one."""
    found: dict[int, dict[str, Any]] = {}
    for episode, step, weight in zip(plan.episodes.tolist(), plan.steps.tolist(), plan.weights.tolist(), strict=True):
        found.setdefault(episode, {"e": episode, "s": step, "w": 0.0})["w"] += weight
    largest = sorted(found.values(), key=lambda row: -row["w"])
    rest = round(sum(row["w"] for row in largest[_MOST_NAMED:]), 3)
    named = [{**row, "w": round(row["w"], 3)} for row in largest[:_MOST_NAMED]]
    return named if rest < 0.001 else [*named[:-1], named[-1] | {"more": [len(largest) - _MOST_NAMED, rest]}]
