"""Turns: which way the agent of Push-T goes round the head of the T (the paper's "Dataset Partitioning")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.demos import Demos

CENTRE = 256.0  # of the screen, and where the block's origin, the middle of its head, belongs
AT_END = 30.0  # pixels within which the block is at its end position
NEAR_HEAD = 50.0  # pixels within which the agent is near the head; the paper gives no number
N_STEPS = 30  # over which a turn is measured
ENOUGH = 0.25  # radians that make it one


@dataclass(frozen=True)
class Turn:
    """What the agent did after it came near the head of a T that is almost in place.

    Attributes:
        step: at which it came near.
        angle: by which it then went round the centre of the screen, in radians, clockwise as one looks at it.
        n_steps: over how many steps; fewer than 30 where the episode ended.
    """

    step: int
    angle: float
    n_steps: int

    @property
    def clockwise(self) -> bool:
        """Whether it is a clockwise turn."""
        return self.angle > ENOUGH

    @property
    def decided(self) -> bool:
        """Whether it can be judged: an episode that ends before the agent turned either way cannot."""
        return self.n_steps == N_STEPS or abs(self.angle) > ENOUGH


def find_turns(observations: np.ndarray) -> list[Turn]:
    """The turns of an episode, one after the other, given its observations (T, 5)."""
    agent, block = observations[:, :2], observations[:, 2:4]
    at_end = np.hypot(*(block - CENTRE).T) < AT_END
    near = np.hypot(*(agent - block).T) < NEAR_HEAD
    angles = np.unwrap(np.arctan2(*(agent - CENTRE).T[::-1]))  # y points down, so that it grows clockwise
    turns, step = [], 0
    for found in np.flatnonzero(at_end & near):
        if found >= step:
            step = min(found + N_STEPS, len(observations) - 1)
            turns.append(Turn(int(found), float(angles[step] - angles[found]), int(step - found)))
    return turns


def clockwise_steps(demos: Demos) -> np.ndarray:
    """(n_steps,), all steps but those of turns that are not clockwise: the paper's conditional dataset."""
    keep = []
    for episode in demos:
        kept = np.ones(len(episode), bool)
        for turn in find_turns(episode.observations):
            if not turn.clockwise:
                kept[turn.step : turn.step + N_STEPS] = False
        keep.append(kept)
    return np.concatenate(keep)
