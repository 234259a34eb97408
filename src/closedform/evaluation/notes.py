"""Notes to the user on a policy or an evaluation, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from closedform.evaluation.environment import policy_meaning
from closedform.evaluation.episode_result import EpisodeResult
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.policy import Policy

OUTSIDE = 0.05  # fraction of steps of failed episodes outside the range of the data that is worth a note


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


def result_notes(episodes: Sequence[EpisodeResult]) -> list[str]:
    """Notes on the episodes of an evaluation: whether those that failed left the demonstrations, unlike the others."""
    known = [episode for episode in episodes if episode.outside is not None]
    failed = [episode for episode in known if not episode.success]
    share, most = _outside(failed)
    others, _ = _outside([episode for episode in known if episode.success])
    if share <= max(OUTSIDE, 2 * others):
        return []
    return [
        f"in episodes that failed, observations leave the range of the demonstrations in {share:.0%} of steps, most "
        f"often {most}, and in {others:.0%} of steps of the others: are the units and the task the same, and do "
        "demonstrations cover the start states?"
    ]


def _outside(episodes: Sequence[EpisodeResult]) -> tuple[float, str | None]:
    """The fraction of steps outside the range of the demonstrations, and the entry that is outside most often."""
    found = [(outside[0] * one.steps, outside[1]) for one in episodes if (outside := one.outside) is not None]
    beyond = [name for _, name in found if name is not None]
    most = max(beyond, key=lambda name: sum(n for n, own in found if own == name), default=None)
    return sum(n for n, _ in found) / max(sum(one.steps for one in episodes), 1), most
