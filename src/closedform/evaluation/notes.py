"""Notes to the user on a policy or an evaluation, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from closedform.evaluation.environment import policy_meaning
from closedform.evaluation.episode_result import EpisodeResult
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.nearest_neighbor import NearestNeighborPolicy
from closedform.policies.policy import Policy

NEARLY_ONE = 1.05  # effective number of demonstrations below which a plan copies one of them
OUTSIDE = 0.05  # fraction of steps outside the range of the data that is worth a note


def policy_notes(policy: Policy[Any]) -> list[str]:
    """Notes on a policy before it runs."""
    if not isinstance(policy, DemonstrationPolicy):
        return []
    notes = []
    if policy.config.frames == "auto" and len(policy.model.transfer.frames) == 1:
        notes.append(
            "only the world frame can be used, so demonstrations help only where they were recorded: declare the "
            "positions of bodies in the layouts of observations and actions"
        )
    if policy.found_symmetry:
        mirrored = next(entry for entry in policy.observation_layout.entries if entry.symmetry is not None)
        notes.append(
            f"the demonstrations show that {mirrored.body} looks the same in a mirror ({mirrored.symmetry}), so they "
            "also count as their mirror images; --set find_symmetry=false if it does not"
        )
    converted = isinstance(policy, DemonstrationPolicy) and policy.targets is not None
    if not converted and policy_meaning(policy) == "displacements":
        notes.append(
            "actions look like displacements and are planned as such: displacements drift, since nothing pulls back to "
            "the demonstrated path; if the robot accepts targets, convert them with --actions absolute"
        )
    return notes


def copying_notes(policy: Policy[Any], n_effective: Sequence[float], where: str) -> list[str]:
    """A note if plans with these effective numbers of demonstrations merely copy a single one."""
    if isinstance(policy, NearestNeighborPolicy) or not len(n_effective):
        return []
    median = float(np.median(n_effective))
    if median >= NEARLY_ONE:
        return []
    return [
        f"this policy is effectively 1-nearest-neighbor: the median effective number of demonstrations is {median:.2f} "
        f"{where}; a larger bandwidth, fewer observed numbers or more demonstrations would let it average"
    ]


def result_notes(policy: Policy[Any], episodes: Sequence[EpisodeResult]) -> list[str]:
    """Notes on the episodes of an evaluation."""
    numbers = [number for episode in episodes for number in episode.n_effective or ()]
    notes = copying_notes(policy, numbers, "in this evaluation")
    known = [(episode.outside, episode.steps) for episode in episodes if episode.outside is not None]
    if not known:
        return notes
    total = sum(steps for _, steps in known)
    share = sum(outside[0] * steps for outside, steps in known) / total
    if share > OUTSIDE:
        names = [(outside[0] * steps, outside[1]) for outside, steps in known if outside[1] is not None]
        most = max({name for _, name in names}, key=lambda name: sum(n for n, own in names if own == name))
        notes.append(
            f"observations leave the range of the demonstrations in {share:.0%} of steps, most often {most}: "
            "are the units and the task the same, and do demonstrations cover the start states?"
        )
    return notes
