"""Take: an episode of a studio session, with what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from closedform.analysis.stage import rounded
from closedform.demos.episode import Episode
from closedform.evaluation.drawing import Placement

Kind = Literal["recorded", "demonstration", "correction"]
_N_POINTS = 24  # of the hand's path in a thumbnail


@dataclass
class Take:
    """An episode of a session.

    Attributes:
        number: in the session, counted from 0.
        kind: `recorded` (the session began with it), `demonstration` (a person drove from the start of a run), or
            `correction` (a person took over from the policy).
        episode: the recorded steps.
        success: whether it ended with the task accomplished; None if unknown.
        policy_id: its id in the policy; None while it is deleted.
        file: its number in the folder that is recorded to; None if it is not there.
        picture: the address of a picture of its end, where a scene cannot be drawn.
    """

    number: int
    kind: Kind
    episode: Episode
    success: bool | None = None
    policy_id: int | None = None
    file: int | None = None
    picture: str = ""
    _summary: dict[str, Any] | None = field(default=None, repr=False)

    def summary(self, placement: Placement | None) -> dict[str, Any]:
        """What a thumbnail shows: the path of the hand and the first and last poses of all bodies, or a picture."""
        if self._summary is None:
            self._summary = self._summarize(placement)
        return {**self._summary, "success": self.success}

    def _summarize(self, placement: Placement | None) -> dict[str, Any]:
        known = {"number": self.number, "kind": self.kind, "steps": len(self.episode)}
        if placement is None:
            return {**known, "picture": self.picture}
        observations = self.episode.observations
        chosen = np.unique(np.linspace(0, len(observations) - 1, _N_POINTS).astype(int))
        poses, extent = placement.poses(observations[chosen].astype(np.float64)), placement.drawing.extent
        return {
            **known,
            "path": rounded(poses[placement.hand][:, :2], extent),
            "first": {body: rounded(pose[:1], extent)[0] for body, pose in poses.items()},
            "last": {body: rounded(pose[-1:], extent)[0] for body, pose in poses.items()},
        }
