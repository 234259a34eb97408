"""Familiarity: whether an observation is like the demonstrations, with a known rate of false alarms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.analysis.leave_one_out import leave_one_out
from closedform.errors import ConfigError, DataError
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan


@dataclass(frozen=True)
class Familiarity:
    """How far demonstrations are from each other, which tells when an observation is far from all of them.

    A new episode of the same kind is as far from the demonstrations as each of them is from the others. So a share
    `false_alarm_rate` of its observations lies beyond that quantile of the distances of episodes that were left out
    (split-conformal prediction; windows of an episode are not independent, so this holds on average over episodes).

    Attributes:
        distances: (n,), ascending, of windows of episodes that were left out.
        false_alarm_rate: the share of familiar observations that raise an alarm.
    """

    distances: np.ndarray
    false_alarm_rate: float

    @property
    def threshold(self) -> float:
        """The distance beyond which there is an alarm; infinite where there are too few windows to tell."""
        n = len(self.distances)
        rank = math.ceil((n + 1) * (1 - self.false_alarm_rate))
        return float(self.distances[rank - 1]) if rank <= n else math.inf

    def describe(self) -> str:
        """When there is an alarm, in words."""
        if math.isinf(self.threshold):
            return f"too few windows ({len(self.distances)}) for an alarm with {self.false_alarm_rate:g} false ones"
        return f"alarm beyond {self.threshold:.2f}"

    def alarm(self, plan: Plan | float) -> bool:
        """Whether a plan, or a distance, is out of the demonstrations' range."""
        return (plan.distance if isinstance(plan, Plan) else plan) > self.threshold

    def share_nearer(self, distance: float) -> float:
        """The share of left-out windows that are nearer to the other episodes than this."""
        return float(np.searchsorted(self.distances, distance) / len(self.distances))


def measure_familiarity(
    policy: DemonstrationPolicy[Any], false_alarm_rate: float = 0.01, *, n_windows: int = 2000
) -> Familiarity:
    """Leaves out one episode after the other; about a second for 200 episodes.

    Args:
        policy: any that has at least two episodes.
        false_alarm_rate: the share of familiar observations that may raise an alarm.
        n_windows: how many windows to look at, at least one of each episode.
    """
    if not 0 < false_alarm_rate < 1:
        raise ConfigError(f"false_alarm_rate: expected a number between 0 and 1, found {false_alarm_rate!r}")
    n_episodes = len(policy.episode_ids)
    if n_episodes < 2:
        raise DataError("expected at least two episodes to tell what is familiar, found one")
    each = max(1, n_windows // n_episodes)
    found = [left_out.distances for left_out in leave_one_out(policy, n_windows=each)]
    return Familiarity(np.sort(np.concatenate(found)), false_alarm_rate)
