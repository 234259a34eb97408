"""Turns: which way the agent of Push-T goes around the head of the T (the paper's "Dataset Partitioning")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.demos import Demos

CENTER = 256.0  # of the screen, and where the block's origin, the middle of its head, belongs
_AT_END = 30.0  # pixels within which the block is at its end position
_ALMOST_AT_END = 40.0  # pixels, for the steps dropped from demonstrations
_NEAR_HEAD = 50.0  # pixels from its middle within which the agent is near the head; the paper gives no number
_TOUCHING_HEAD = (
    75.0  # pixels from its middle within which the agent can touch it: half its length and the agent's radius
)
_N_STEPS = 30  # over which a turn is measured
_ENOUGH = 0.25  # radians that count as a turn


@dataclass(frozen=True)
class Turn:
    """The agent's motion after it approached the head of a T that is almost in place.

    Attributes:
        step: when it approached the head.
        angle: its motion from then on around the center of the screen, in radians, clockwise positive.
        n_steps: over how many steps; fewer than 30 if the episode ended.
    """

    step: int
    angle: float
    n_steps: int

    @property
    def clockwise(self) -> bool:
        """Whether it is a clockwise turn."""
        return self.angle > _ENOUGH

    @property
    def decided(self) -> bool:
        """Whether the direction is decided; not if the episode ends before the agent has turned either way."""
        return self.n_steps == _N_STEPS or abs(self.angle) > _ENOUGH


def find_turns(observations: np.ndarray) -> list[Turn]:
    """The turns of an episode in order, given its observations (T, 5)."""
    turns, free = [], 0
    angles = _angles(observations)
    for step in np.flatnonzero(_at_head(observations[:-1], _NEAR_HEAD, _AT_END)):
        if step >= free:
            free = min(step + _N_STEPS, len(observations) - 1)
            turns.append(Turn(int(step), float(angles[free] - angles[step]), int(free - step)))
    return turns


def clockwise_steps(demos: Demos) -> np.ndarray:
    """The wanted steps, (n_steps,): all but those that follow a step at the head without a clockwise turn.

    The region around the head is a little larger than that of `find_turns`. Otherwise demonstrations of the wrong way
    around, starting just outside the region, would be kept and be the nearest ones just inside it.
    """
    keep = []
    for episode in demos:
        kept, angles = np.ones(len(episode), bool), _angles(episode.observations)
        for step in np.flatnonzero(_at_head(episode.observations, _TOUCHING_HEAD, _ALMOST_AT_END)):
            if angles[min(step + _N_STEPS, len(episode) - 1)] - angles[step] <= _ENOUGH:
                kept[step : step + _N_STEPS] = False
        keep.append(kept)
    return np.concatenate(keep)


def _at_head(observations: np.ndarray, reach: float, end: float) -> np.ndarray:
    """At each step, whether the agent is near the head of a block that is near its goal position."""
    agent, block = observations[:, :2], observations[:, 2:4]
    return (np.hypot(*(block - CENTER).T) < end) & (np.hypot(*(agent - block).T) < reach)


def _angles(observations: np.ndarray) -> np.ndarray:
    """The unwrapped angle of the agent about the center of the screen, clockwise; y points down."""
    return np.unwrap(np.arctan2(*(observations[:, :2] - CENTER).T[::-1]))
