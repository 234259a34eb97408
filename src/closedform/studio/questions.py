"""Questions that take longer than a step: where to demonstrate next, whether an episode helped, what is familiar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.analysis.familiarity import Familiarity
from closedform.analysis.health import examine
from closedform.demos.demos import Demos
from closedform.evaluation.drawing import Placement
from closedform.evaluation.environment import Environment
from closedform.evaluation.rollout import roll_out
from closedform.policies.demonstration_policy import DemonstrationPolicy

_CELLS = 20  # of a map, along each side


@dataclass(frozen=True)
class Paired:
    """The successes of two policies from the same starts, one after the other: without an episode and with it."""

    seeds: tuple[int, ...]
    without: tuple[bool, ...]
    with_it: tuple[bool, ...]

    def to_json(self) -> dict[str, Any]:
        """The counts."""
        pairs = list(zip(self.without, self.with_it, strict=True))
        return {
            "n": len(self.seeds),
            "without": sum(self.without),
            "with_it": sum(self.with_it),
            "better": sum(b and not a for a, b in pairs),
            "worse": sum(a and not b for a, b in pairs),
        }


def compare_policies(
    environment: Environment,
    without: DemonstrationPolicy[Any],
    with_it: DemonstrationPolicy[Any],
    seeds: Sequence[int],
) -> Paired:
    """Runs two policies from the same starts, with the same randomness."""
    found = [[roll_out(environment, policy, seed).success for seed in seeds] for policy in (without, with_it)]
    return Paired(tuple(seeds), tuple(found[0]), tuple(found[1]))


def least_familiar_start(environment: Environment, policy: DemonstrationPolicy[Any], seeds: Sequence[int]) -> int:
    """The seed whose start is farthest from all demonstrations."""
    starts = np.stack([np.asarray(environment.reset(seed), np.float64) for seed in seeds])
    return int(seeds[int(np.argmax(_distances(policy, starts)))])


def worth_watching(demos: Demos, numbers: Sequence[int]) -> dict[int, list[str]]:
    """What the health checks found about episodes, by the numbers of their takes."""
    found: dict[int, list[str]] = {}
    for problem in examine(demos).problems:
        if problem.episode is not None and problem.kind != "thin coverage":  # it is about what is missing
            said = f"{problem.kind}: {problem.advice}"
            known = found.setdefault(numbers[problem.episode], [])
            known += [] if said in known else [said]
    return found


def familiarity_map(
    policy: DemonstrationPolicy[Any], placement: Placement, observation: np.ndarray, familiarity: Familiarity
) -> dict[str, Any]:
    """How familiar the scene would be with the hand elsewhere: a grid of shares, by rows from top to bottom.

    A share is the fraction of demonstrated states that are nearer to the other demonstrations; 2 stands for an alarm.
    """
    left, right, bottom, top = placement.drawing.extent
    across, along = (np.arange(_CELLS) + 0.5) / _CELLS, (np.arange(_CELLS) + 0.5) / _CELLS
    xs, ys = left + across * (right - left), top + along * (bottom - top)
    moved = np.repeat(observation[None], _CELLS * _CELLS, axis=0)
    moved[:, placement.columns(placement.hand)] = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    distances = _distances(policy, moved)
    shares = [2.0 if familiarity.alarm(float(d)) else round(familiarity.share_nearer(float(d)), 2) for d in distances]
    return {"cells": _CELLS, "shares": shares}


def _distances(policy: DemonstrationPolicy[Any], observations: np.ndarray) -> np.ndarray:
    """The distances (n,) of observations (n, D_o) to the nearest demonstrations."""
    windows = policy.sampling_windows(observations, 1)
    rng = np.random.default_rng(0)
    return policy.planner.batch(windows, 1, rng).distances
