"""Turning: rotations in actions, compared with the observed rotation of the body that they command."""

from __future__ import annotations

import numpy as np

from closedform.demos.inference.commands import STEPS, WINDOW, Match, displacement_sums
from closedform.demos.inference.rotations import ORDERS, Rotation, matrices, turns_between
from closedform.demos.inference.sample import Sample, dot

STEADY = 0.3  # of an observed rotation's spread that remains relative to the commanded one
EXPLAINED = 0.5  # of an observed rotation that commanded turns explain
LEAD = 0.15  # by which one order of numbers must explain more than the other
EVIDENCE = 4.0


def commanded_rotation(
    sample: Sample, match: Match, observed: Rotation, inside: list[Rotation]
) -> tuple[int, Rotation, float] | None:
    """A rotation in the action right after a target that the observed rotation follows.

    Both may follow different conventions, so it is enough if their relative rotation is constant. The result adds to
    the evidence for the order of the numbers of both.

    Args:
        sample: the data.
        match: the commanded position.
        observed: the rotation of the commanded body.
        inside: rotations found among the numbers of the action.

    Returns:
        The first column, the rotation that it is, and the confidence that it is commanded.
    """
    start = match.action + match.size
    lag = round(match.lag)
    steps = sample.steps(lag, most=STEPS)
    asked_for = next((rotation for rotation in inside if rotation.start == start), None)
    if asked_for is None and start + 3 <= sample.a.shape[1]:
        norms = np.linalg.norm(sample.a[:, start : start + 3], axis=1)
        if norms.max() < np.pi + 0.01 and sample.commanded.varies[start : start + 3].any():
            asked_for = Rotation(start, "axis_angle")
    if asked_for is None or len(steps) < 32:
        return None
    size = asked_for.size
    seen = {kind: matrices(sample.x[steps + lag][:, observed.columns], kind) for kind in ORDERS[observed.family]}
    asked = {kind: matrices(sample.a[steps][:, start : start + size], kind) for kind in ORDERS[asked_for.family]}
    left = {}
    for one, axes in seen.items():
        alone = 1 - _steady(axes)
        for other, wanted in asked.items():
            together = 1 - _steady(np.swapaxes(axes, 1, 2) @ wanted)
            left[one, other] = together / max(alone, 1e-9) if alone > 1e-5 else 1.0
    (kind, asked_kind), best = min(left.items(), key=lambda item: item[1])
    if best > STEADY:
        return None
    rivals = [value for (one, _), value in left.items() if one != kind]
    if rivals and min(rivals) > 2 * best:
        sign = 1 if kind == ORDERS[observed.family][0] else -1
        observed.support(sign * EVIDENCE, "read so, it follows the commanded rotation")
    others = [value for (_, other), value in left.items() if other != asked_kind]
    if others and min(others) > 2 * best:  # numbers equal to later observed ones are so in any order
        sign = 1 if asked_kind == ORDERS[asked_for.family][0] else -1
        asked_for.support(sign * EVIDENCE, "read so, the observed rotation follows it")
    return start, asked_for, float(0.95 * (1 - best / 2))


def commanded_turns(sample: Sample, match: Match, observed: Rotation) -> float:
    """The fraction of the observed rotation explained by three numbers after a displacement; adds to its evidence."""
    start = match.action + match.size
    lag = round(match.lag)
    commanded, steps = displacement_sums(sample, lag, WINDOW)
    if start + 3 > commanded.shape[1] or len(steps) < 32:
        return 0.0
    wanted = commanded[:, start : start + 3].ravel()
    shares = []
    for kind in ORDERS[observed.family]:
        first, later = (matrices(sample.x[s][:, observed.columns], kind) for s in (steps, steps + WINDOW))
        world = turns_between(first, later)
        body = np.einsum("nji,nj->ni", first, world)
        shares.append(max(_share(wanted, turns.ravel()) for turns in (world, body)))
    best = int(np.argmax(shares))
    if shares[best] > EXPLAINED and shares[best] > shares[1 - best] + LEAD:
        observed.support(
            EVIDENCE if best == 0 else -EVIDENCE, f"read so, actions explain {shares[best]:.0%} of its turning"
        )
    return float(shares[best])


def _share(wanted: np.ndarray, turned: np.ndarray) -> float:
    return dot(wanted, turned) ** 2 / max(dot(wanted, wanted) * dot(turned, turned), 1e-150)


def _steady(axes: np.ndarray) -> float:
    """1 if all rotations (n, 3, 3) are equal, smaller the more they differ."""
    return float(np.linalg.svd(axes.mean(0), compute_uv=False).sum() / 3)
