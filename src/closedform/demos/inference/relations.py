"""Relations: numbers that follow exactly from others, which reveal positions and the order of quaternions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.inference.rotations import ORDERS, Rotation, matrices
from closedform.demos.inference.sample import WIDEST, Sample

ROWS = 48
CLOSE = 1e-3  # of the spread of the compared numbers
SURE = 6.0  # evidence for an order of quaternions that fits exactly


@dataclass(frozen=True)
class Difference:
    """Three runs of three numbers: `one - other = between`, possibly rotated.

    Attributes:
        one, other, between: the first column of each.
        turned: whether only lengths agree: `between` is the difference in a body's frame.
    """

    one: int
    other: int
    between: int
    turned: bool


def find_differences(sample: Sample, free: np.ndarray) -> list[Difference]:
    """Runs of three numbers that are differences of two others, among the free columns (D_o,)."""
    n = sample.x.shape[1]
    varies = free & sample.observed.varies
    starts = [i for i in range(n - 2) if free[i : i + 3].all() and varies[i : i + 3].sum() >= 2]
    rows = _rows(sample)
    if len(starts) < 3 or len(rows) < 8 or n > WIDEST // 2:
        return []
    triples = np.stack([sample.x[rows, i : i + 3] for i in starts])  # (S, R, 3)
    lengths = np.sum(triples**2, axis=2)
    spread = np.sqrt(np.maximum(triples.var(axis=1).sum(1), 1e-24))
    found = []
    for p, one in enumerate(starts):
        for q, other in enumerate(starts):
            if p == q or abs(one - other) < 3:
                continue
            gap = triples[p] - triples[q]
            length = np.sum(gap**2, axis=1)
            close = CLOSE * spread
            straight = np.abs(gap - triples).max(axis=(1, 2)) < close
            turned = np.abs(np.sqrt(length) - np.sqrt(lengths)).max(axis=1) < close
            turned &= p < q  # lengths have no sign
            for k in np.flatnonzero(straight | turned):
                between = starts[k]
                if abs(between - one) >= 3 and abs(between - other) >= 3:
                    found.append(Difference(one, other, between, not straight[k]))
    plain = {frozenset((d.one, d.other, d.between)) for d in found if not d.turned}
    return [d for d in found if not d.turned or frozenset((d.one, d.other, d.between)) not in plain]


def find_observer(sample: Sample, difference: Difference, rotations: list[Rotation]) -> tuple[Rotation, int] | None:
    """The rotation in whose frame a rotated difference is, and which of its two orders fits; None if unknown.

    Returns:
        The rotation, and 0 or 1 for the order that fits exactly.
    """
    rows = _rows(sample)
    gap = sample.x[rows, difference.one : difference.one + 3] - sample.x[rows, difference.other : difference.other + 3]
    seen = sample.x[rows, difference.between : difference.between + 3]
    close = 10 * CLOSE * max(float(np.sqrt(gap.var(0).sum())), 1e-12)
    for rotation in rotations:
        fits = []
        for kind in ORDERS[rotation.family]:
            turned = np.einsum("nji,nj->ni", matrices(sample.x[rows][:, rotation.columns], kind), gap)
            fits.append(min(np.abs(turned - seen).max(), np.abs(turned + seen).max()) < close)
        if fits[0] != fits[1]:
            return rotation, int(fits[1])
    return None


def find_relative(sample: Sample, rotations: list[Rotation]) -> None:
    """Marks quaternions that are one body's rotation relative to another; the order that fits is the right one."""
    quaternions = [rotation for rotation in rotations if rotation.family == "quaternion"]
    rows = _rows(sample)
    if len(quaternions) < 3 or len(rows) < 8 or len(quaternions) > 24:
        return
    for order, kind in enumerate(ORDERS["quaternion"]):
        axes = [matrices(sample.x[rows][:, rotation.columns], kind) for rotation in quaternions]
        for p, seen in enumerate(quaternions):
            for q in range(len(quaternions)):
                for r in range(len(quaternions)):
                    if len({p, q, r}) < 3 or seen.relative or quaternions[q].relative or quaternions[r].relative:
                        continue
                    error = np.abs(np.swapaxes(axes[q], 1, 2) @ axes[r] - axes[p]).max()
                    varied = axes[p].std(0).max()
                    if error < 0.02 and error < 0.1 * varied:
                        seen.relative = True
                        for rotation in (seen, quaternions[q], quaternions[r]):
                            rotation.support(SURE if order == 0 else -SURE, "fits a relative rotation exactly")


def _rows(sample: Sample) -> np.ndarray:
    """Some steps, evenly spread."""
    return np.unique(np.linspace(0, len(sample.x) - 1, ROWS).astype(int))
