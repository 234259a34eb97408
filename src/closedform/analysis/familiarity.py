"""Familiarity: whether an observation resembles the demonstrations, with a calibrated false-alarm rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.analysis.leave_one_out import windows_at
from closedform.errors import ConfigError, DataError
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan

_RARE = 0.1  # of left-out observations
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples spread evenly between whole numbers


@dataclass(frozen=True)
class Familiarity:
    """The leave-one-out distances of demonstrations, and the alarm threshold that follows from them.

    A new episode of the same kind is as far from the demonstrations as each of them is from the others. So a fraction
    `false_alarm_rate` of its observations lies beyond that quantile of the leave-one-out distances (split-conformal
    prediction; windows of one episode are not independent, so the rate holds on average over episodes).

    Episodes start farther apart than they continue, so the first observation of an episode is compared with the first
    ones of left-out episodes: `familiarity.at(first=True).alarm(plan)`.

    Attributes:
        distances: (n,), leave-one-out distances of windows, ascending.
        false_alarm_rate: the fraction of familiar observations that raise an alarm.
        starts: the same for first observations alone, if it is known.
    """

    distances: np.ndarray
    false_alarm_rate: float
    starts: Familiarity | None = None

    def at(self, *, first: bool) -> Familiarity:
        """What an observation is compared with, which may be the first one of its episode."""
        return self.starts if first and self.starts is not None else self

    @property
    def threshold(self) -> float:
        """The distance beyond which an alarm is raised; infinite if there are too few windows to calibrate it."""
        n = len(self.distances)
        n_beyond = math.floor((n + 1) * self.false_alarm_rate + 1e-9)  # rates such as 1 / (n + 1) are rounded
        return float(self.distances[n - n_beyond]) if n_beyond else math.inf

    def level(self, distance: float) -> str:
        """`familiar`; `rare`, if less than a tenth of left-out observations are as far; or `out of range`, an alarm."""
        if self.alarm(distance):
            return "out of range"
        return "rare" if self.share_farther(distance) < _RARE else "familiar"

    def scale(self, distance: float) -> str:
        """What a distance means, as text."""
        share = self.share_farther(distance)
        text = f"{share:.1%}" if 0 < share < 0.1 or 0.99 <= share < 1 else f"{share:.0%}"
        return f"nearer than {text} of left-out observations"

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

    def share_farther(self, distance: float) -> float:
        """The fraction that are as far or farther: what the bars of all pages show, full for the most familiar."""
        return 1 - self.share_nearer(distance)


def measure_familiarity(
    policy: DemonstrationPolicy[Any], false_alarm_rate: float = 0.01, *, n_windows: int = 2000
) -> Familiarity:
    """Measures the leave-one-out distances of a policy; takes about a second for 200 episodes.

    With n episodes, the smallest rate that can be kept for first observations is 1 / (n + 1): a smaller one is rounded
    up to it, so that a start farther away than every other one still raises the alarm.

    Args:
        policy: any policy with at least two episodes.
        false_alarm_rate: the fraction of familiar observations that may raise an alarm.
        n_windows: how many windows to measure besides first ones, and the most episodes that are left out.
    """
    if not 0 < false_alarm_rate < 1:
        raise ConfigError(f"false_alarm_rate: expected a number between 0 and 1, found {false_alarm_rate!r}")
    model = policy.model  # one and the same, although a fleet may change the policy meanwhile
    episodes = model.store.recorded
    if len(episodes) < 2:
        raise DataError("expected at least two episodes for leave-one-out distances, found one")
    chosen = np.unique(np.linspace(0, len(episodes) - 1, min(n_windows, len(episodes))).astype(int))
    each = max(1, n_windows // len(chosen))
    starts, found = [], []
    for place, index in enumerate(chosen.tolist()):
        length = len(episodes[index])
        if not length:
            continue
        moments = (np.arange(each) + place * _GOLDEN % 1) / each  # all alike, even with one of each episode
        steps = np.array([0, *np.unique((moments * length).astype(int))])
        windows = windows_at(episodes[index], steps, policy.config.n_obs_steps)
        rest, rng = model.leave_out(index), np.random.default_rng(0)
        distances = policy.planner_of(rest).batch(windows, 1, rng).distances
        starts.append(distances[0])
        found.append(distances[1:])
    of_starts = Familiarity(np.sort(starts), max(false_alarm_rate, 1 / (len(starts) + 1)))
    return Familiarity(np.sort(np.concatenate(found)), false_alarm_rate, of_starts)
