"""Familiarity: whether an observation resembles the demonstrations, with a calibrated false-alarm rate."""

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
    """The leave-one-out distances of demonstrations, and the alarm threshold that follows from them.

    A new episode of the same kind is as far from the demonstrations as each of them is from the others. So a fraction
    `false_alarm_rate` of its observations lies beyond that quantile of the leave-one-out distances (split-conformal
    prediction; windows of one episode are not independent, so the rate holds on average over episodes).

    Attributes:
        distances: (n,), leave-one-out distances of windows, ascending.
        false_alarm_rate: the fraction of familiar observations that raise an alarm.
    """

    distances: np.ndarray
    false_alarm_rate: float

    @property
    def threshold(self) -> float:
        """The distance beyond which an alarm is raised; infinite if there are too few windows to calibrate it."""
        n = len(self.distances)
        rank = math.ceil((n + 1) * (1 - self.false_alarm_rate))
        return float(self.distances[rank - 1]) if rank <= n else math.inf

    def describe(self) -> str:
        """The alarm threshold as text."""
        if math.isinf(self.threshold):
            return f"too few windows ({len(self.distances)}) for a false-alarm rate of {self.false_alarm_rate:g}"
        return f"alarm beyond {self.threshold:.2f}"

    def alarm(self, plan: Plan | float) -> bool:
        """Whether a plan, or a distance, is outside the range of the demonstrations."""
        return (plan.distance if isinstance(plan, Plan) else plan) > self.threshold

    def share_nearer(self, distance: float) -> float:
        """The fraction of left-out windows that are nearer to the other episodes than this."""
        return float(np.searchsorted(self.distances, distance) / len(self.distances))


def measure_familiarity(
    policy: DemonstrationPolicy[Any], false_alarm_rate: float = 0.01, *, n_windows: int = 2000
) -> Familiarity:
    """Measures the leave-one-out distances of a policy; takes about a second for 200 episodes.

    Args:
        policy: any policy with at least two episodes.
        false_alarm_rate: the fraction of familiar observations that may raise an alarm.
        n_windows: how many windows to measure, at least one per episode.
    """
    if not 0 < false_alarm_rate < 1:
        raise ConfigError(f"false_alarm_rate: expected a number between 0 and 1, found {false_alarm_rate!r}")
    n_episodes = len(policy.episode_ids)
    if n_episodes < 2:
        raise DataError("expected at least two episodes for leave-one-out distances, found one")
    each = max(1, n_windows // n_episodes)
    found = [left_out.distances for left_out in leave_one_out(policy, n_windows=each)]
    return Familiarity(np.sort(np.concatenate(found)), false_alarm_rate)
