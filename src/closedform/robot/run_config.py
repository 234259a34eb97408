"""Run config: the parameters of a run, how an episode ended, and whether a policy fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Layout
from closedform.policies.policy import Policy


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The parameters of a run; times in seconds.

    Attributes:
        rate: steps per second.
        max_steps: of an episode.
        sight_timeout: without sight of a body for so long, the runner stops.
        travel_speed: of the tool on its way to the start, in meters a second.
        images: whether to record every picture.
        thinking: simulated time from a picture to the command that follows from it; for a lockstep clock only.
    """

    rate: float = 10.0
    max_steps: int = 300
    sight_timeout: float = 1.0
    travel_speed: float = 0.1
    images: bool = False
    thinking: float = 0.0

    def __post_init__(self):
        for name in ("rate", "max_steps", "sight_timeout", "travel_speed"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name}: expected a number above 0, found {getattr(self, name)!r}")
        if not 0 <= self.thinking < 1 / self.rate:
            raise ConfigError(f"thinking: expected 0 to less than a step, found {self.thinking!r}")


class RunResult(NamedTuple):
    """How an episode ended.

    Attributes:
        episode: its number in the record; None if no step was recorded.
        steps: how many were recorded.
        done: whether the task was done.
        reason: why it ended.
    """

    episode: int | None
    steps: int
    done: bool
    reason: str


def check_layouts(policy: Policy[Any], observed: Layout) -> None:
    """Refuses a policy that needs other observations than there are, or whose actions are no positions of the hand."""
    expected, found = _words(observed), _words(policy.observation_layout)
    if expected != found:
        raise DataError(f"the policy does not fit: expected one that observes {expected}, found {found}")
    entries = policy.action_layout.entries
    if [(entry.kind, entry.size) for entry in entries] != [("position", 2)]:
        raise DataError(
            "the policy does not fit: expected actions that are positions of the tool (2 numbers on the workplane), "
            f"found {_words(policy.action_layout)}"
        )


def _words(layout: Layout) -> str:
    return ", ".join(f"{entry.body or '-'} {entry.kind} ({entry.size})" for entry in layout.entries)
