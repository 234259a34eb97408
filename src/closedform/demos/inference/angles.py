"""Angles: numbers that jump by a whole turn, or that turn a body whose origin swings with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closedform.demos.inference.sample import Sample

TURN = 2 * np.pi
RARE = 0.1  # of all steps may be jumps, at most
SWING = 0.07  # of a body's motion must be explained by its rotation, at least


def wraps(values: np.ndarray, steps: np.ndarray, turn: float = TURN) -> np.ndarray:
    """How often each column jumps by a whole turn; 0 if it also jumps by other amounts. (N, D) -> (D,)

    A wrapped angle stays within one turn, moves little in most steps, and each jump, up to a whole turn, is as small as
    its other steps.
    """
    if len(steps) < 8:
        return np.zeros(values.shape[1], int)
    change = np.abs(values[steps + 1] - values[steps])
    jumps = change > 0.6 * turn
    counts = jumps.sum(0)
    ordinary = np.quantile(np.where(jumps, 0.0, change), 0.99, axis=0)
    rest = np.where(jumps, np.abs(turn - change), 0.0).max(0)
    spread = np.ptp(values, axis=0)
    # Most steps of a person's motion are small, and the one across the seam is as small as any other.
    sound = (rest < np.maximum(6 * ordinary, 0.03 * turn)) & (ordinary < 0.1 * turn)
    sound &= (spread < 1.005 * turn) & (spread > 0.9 * turn) & (counts < RARE * len(steps))
    return np.where(sound, counts, 0)


def is_swung(shares: tuple[float, float, float]) -> bool:
    """Whether the result of `swings` shows that a column is an angle that turns a body."""
    return shares[0] > SWING and shares[0] > 1.8 * max(shares[1:])


def swings(sample: Sample, place: Sequence[int], column: int) -> tuple[float, float, float]:
    """How much of a planar point's motion is explained by a body that rotates by a column's radians.

    A body rotates about its center of mass, and a recorded position elsewhere swings around it: dp = dR(angle) c for
    some c, found by least squares.

    Returns:
        The fraction explained; the same with the opposite sign of the angle; and without the phase.
    """
    steps = sample.steps(1)
    turned = sample.x[steps + 1, column] - sample.x[steps, column]
    keep = np.abs(turned) > max(0.02 * float(np.quantile(np.abs(turned), 0.99)) if len(turned) else 0.0, 1e-9)
    keep &= np.abs(turned) < 0.5
    if keep.sum() < 32:
        return 0.0, 0.0, 0.0
    steps, turned = steps[keep], turned[keep]
    moved = sample.x[steps + 1][:, list(place)[:2]] - sample.x[steps][:, list(place)[:2]]
    angle = sample.x[steps, column] + turned / 2
    shares = []
    for phase in (angle, -angle, np.zeros_like(angle)):
        cos, sin = np.cos(phase) * turned, np.sin(phase) * turned
        design = np.concatenate([np.stack([-sin, -cos], 1), np.stack([cos, -sin], 1)])
        goal = moved.T.ravel()
        normal = np.einsum("ni,nj->ij", design, design)
        solved = np.linalg.lstsq(normal, np.einsum("ni,n->i", design, goal), rcond=None)[0]
        shares.append(1 - float(np.sum((goal - design @ solved) ** 2)) / max(float(np.sum(goal**2)), 1e-150))
    return shares[0], shares[1], shares[2]
