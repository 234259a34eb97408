"""Company: how numbers move relative to the hand and to one another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closedform.demos.inference.sample import Sample, dot

WINDOW = 5  # steps over which motions are compared
POINTS = 40  # of each episode
EPISODES = 60
SHIFTS = 12  # other episodes that each one is compared with


def rest_together(sample: Sample, first: Sequence[int], second: Sequence[int]) -> float:
    """How much more than by chance two groups of numbers move at the same steps; 0 if either never rests or moves.

    The number of steps at which both move over that at which at least one does; each has to rest 5% of the time.
    """
    one, two = sample.moving(list(first)), sample.moving(list(second))
    if len(one) < 16 or not all(0.01 < moving.mean() < 0.95 for moving in (one, two)):
        return 0.0
    chance = one.mean() * two.mean() / (one.mean() + two.mean() - one.mean() * two.mean())
    shared = (one & two).sum() / max((one | two).sum(), 1)
    return float(max(shared - chance, 0) / (1 - chance))


def follows(sample: Sample, group: Sequence[int], hand: Sequence[int]) -> tuple[float, float]:
    """How well a hand's motion explains that of another group, number by number, while the group moves.

    Returns:
        The explained fraction of the group's motion, and the factor.
    """
    steps = sample.steps(WINDOW)
    moved = sample.x[steps + WINDOW][:, list(group)] - sample.x[steps][:, list(group)]
    with_hand = sample.x[steps + WINDOW][:, list(hand)] - sample.x[steps][:, list(hand)]
    size = np.linalg.norm(moved, axis=1)
    if not len(size) or size.max() <= 0:
        return 0.0, 0.0
    fast = size > max(0.1 * np.quantile(size, 0.99), 1e-9)
    if fast.sum() < 16:
        return 0.0, 0.0
    y, h = moved[fast].ravel(), with_hand[fast].ravel()
    product, energy = dot(y, h), max(dot(h, h), 1e-150)
    return product * abs(product) / (energy * max(dot(y, y), 1e-150)), product / energy


class Reach:
    """Compares how near a hand comes to something in the same episode and in others.

    If a group of numbers is a place that a hand goes to, the hand comes nearer to that of its own episode.

    Args:
        sample: the data.
        hand: the columns of its position.
    """

    def __init__(self, sample: Sample, hand: Sequence[int]):
        lengths = np.diff(sample.bounds)
        whole = np.flatnonzero(lengths >= 4)
        if len(whole) > EPISODES:
            whole = whole[np.linspace(0, len(whole) - 1, EPISODES).astype(int)]
        self.steps = (
            np.stack([np.linspace(sample.bounds[e], sample.bounds[e + 1] - 1, POINTS).astype(int) for e in whole])
            if len(whole)
            else np.zeros((0, POINTS), int)
        )
        self.sample = sample
        self.path = sample.x[self.steps][..., list(hand)]  # (E, P, n)
        self.unit = np.maximum(self.path.reshape(-1, len(hand)).std(0), 1e-12) if len(whole) else np.ones(len(hand))

    def __call__(self, group: Sequence[int]) -> tuple[float, float]:
        """The nearest distance in the same episode over that in others, and the fraction of episodes where it is less.

        Constant offsets between the hand and its destination, such as a finger's length, do not matter.
        """
        n = len(self.path)
        if n < 5:
            return 1.0, 0.0
        other = self.sample.x[self.steps][..., list(group)]
        own = self._nearest(other)
        shifts = np.unique(np.linspace(1, n - 1, SHIFTS).astype(int))
        elsewhere = np.stack([self._nearest(np.roll(other, shift, axis=0)) for shift in shifts])
        return float(own.mean() / max(float(elsewhere.mean()), 1e-12)), float((own < elsewhere).mean())

    def _nearest(self, other: np.ndarray) -> np.ndarray:
        """(E, P, n) -> (E,), without the offset that all episodes share at their nearest points."""
        gap = (self.path - other) / self.unit
        nearest = np.sum(gap**2, axis=2).argmin(axis=1)
        gap = gap - np.median(gap[np.arange(len(gap)), nearest], axis=0)
        return np.sqrt(np.sum(gap**2, axis=2)).min(axis=1)
