"""Positions: runs of two or three numbers that are the position of a body."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from closedform.demos.inference.angles import is_swung, swings
from closedform.demos.inference.commands import Match, moved_as_commanded
from closedform.demos.inference.company import Reach, follows, rest_together
from closedform.demos.inference.relations import Difference
from closedform.demos.inference.rotations import Rotation
from closedform.demos.inference.sample import Sample

ENOUGH = 0.7  # confidence below which a run of numbers is not called a position
ALIKE = (0.3, 1.7)  # how far a body moves per unit of the hand that moves it
LONGER = (4, 6, 7)  # with a gripper, with three numbers of a rotation, with both
UNITS = 50.0  # the largest ratio of spreads of numbers of one unit
TOGETHER = 0.6  # how closely a position and a rotation of one body rest and move at the same time


@dataclass
class Group:
    """Numbers that are the position of a body.

    Attributes:
        start: the first.
        size: 2 or 3.
        reasons: the evidence, each with a confidence and a description.
        hand: the command that moves it, if it is commanded.
        rotation: of the same body.
        angle: the column of its angle, for a planar body.
    """

    start: int
    size: int
    reasons: list[tuple[float, str]] = field(default_factory=list)
    hand: Match | None = None
    rotation: Rotation | None = None
    angle: int | None = None

    @property
    def columns(self) -> list[int]:
        """Which numbers."""
        return list(range(self.start, self.start + self.size))

    @property
    def confidence(self) -> float:
        """The combined confidence of independent pieces of evidence."""
        return float(min(1 - np.prod([1 - sure for sure, _ in self.reasons]), 0.99)) if self.reasons else 0.0

    def overlaps(self, other: Group) -> bool:
        """Whether they share numbers."""
        return self.start < other.start + other.size and other.start < self.start + self.size


def hand_groups(matches: list[Match], sample: Sample) -> list[Group]:
    """Commanded runs of two or three numbers of one unit; longer ones are joints."""
    groups = []
    for match in [_of_one_unit(match, sample) for match in matches]:
        if match.size not in (2, 3) or match.further >= 2 or (match.size == 2 and match.astray):
            continue
        if not (sample.observed.varies & ~sample.observed.binary)[list(match.observation_columns)].all():
            continue
        words = "targets of" if match.how == "target" else "displacements of"
        sure = 0.6 + 0.35 * float(np.clip((match.r2 - 0.5) / 0.5, 0, 1))
        columns = f"{match.action}..{match.action + match.size - 1}"
        groups.append(
            Group(match.observation, match.size, [(sure, f"action numbers {columns} are {words} these")], match)
        )
    size = max((group.size for group in groups), default=0)
    return [group for group in groups if group.size == size]  # all in the same space


def _of_one_unit(match: Match, sample: Sample) -> Match:
    """A run of three without its third number if that has another unit, such as an angle after pixels."""
    if match.size != 3:
        return match
    spread = sample.x[:, list(match.observation_columns)].std(0)
    if spread[2] * UNITS < spread[:2].min() or spread[2] > UNITS * spread[:2].max():
        return replace(match, size=2, each=match.each[:2])
    return match


def long_hand_groups(matches: list[Match]) -> list[Group]:
    """The first three of longer runs: joints, or a position with a gripper, which only other bodies distinguish."""
    groups = []
    for match in matches:
        if match.size in LONGER:
            first = replace(match, size=3, each=match.each[:3])
            words = f"action numbers {match.action}..{match.action + match.size - 1} command these and more"
            groups.append(Group(match.observation, 3, [(0.5, words)], first))
    return groups


def sort_differences(
    sample: Sample, differences: list[Difference], hands: list[Group], rotations: list[Rotation]
) -> tuple[set[int], set[int], set[int]]:
    """Sorts numbers that are differences into positions, the vectors between them, and vectors in a body's frame.

    `one = other + between` does not say which of the last two is the vector. It is the one that is not a known
    position, or if neither is known, the one that moves whenever anything moves.

    Returns:
        The first columns of each.
    """
    known = {hand.start for hand in hands}
    known |= {rotation.start - 3 for rotation in rotations if not rotation.relative and rotation.start >= 3}
    positions, vectors, seen = set(), set(), set()
    for difference in differences:
        triple = (difference.one, difference.other, difference.between)
        if difference.turned:
            positions |= {difference.one, difference.other}
            seen.add(difference.between)
        elif difference.between in known and difference.other not in known:
            continue  # the same relation appears with both exchanged
        elif difference.between not in known and (
            difference.other in known or _rests(sample, difference.other) > _rests(sample, difference.between) + 0.05
        ):
            positions |= {difference.one, difference.other}
            vectors.add(difference.between)
        elif len(known & set(triple)) == 3:
            positions |= set(triple)
    return positions - vectors - seen, vectors - seen, seen


def is_relative_to_body(sample: Sample, hand: Group, bodies: list[Group]) -> bool:
    """Whether what seems to be a hand's position is its position relative to another body.

    While the hand carries the body such numbers rest, and the body moves as commanded.
    """
    if hand.hand is None or hand.hand.how == "target":
        return False
    for body in bodies:
        own = moved_as_commanded(sample, hand.hand, body.columns, body.columns)
        if own > 0.6 and moved_as_commanded(sample, hand.hand, hand.columns, body.columns) < 0.3:
            return True
    return False


def _rests(sample: Sample, start: int) -> float:
    moving = sample.moving([start, start + 1, start + 2])
    return 1 - float(moving.mean()) if len(moving) else 0.0


def find_positions(
    sample: Sample,
    hands: list[Group],
    rotations: list[Rotation],
    turning: list[int],
    related: set[int],
    free: np.ndarray,
) -> list[Group]:
    """Positions of bodies that no action commands, best evidence first, none sharing a number.

    Args:
        sample: the data.
        hands: the commanded positions.
        rotations: the rotations of the observation.
        turning: columns that are angles.
        related: first columns of positions known from differences.
        free: (D_o,), columns that may be part of one.
    """
    size = 3 if any(hand.size == 3 for hand in hands) or (rotations and not hands) or related else 2
    if not (hands or rotations or related):
        return []
    reaches = [(hand, Reach(sample, hand.columns)) for hand in hands if hand.size == size]
    varies = sample.observed.varies & ~sample.observed.binary
    candidates = []
    for start in range(sample.x.shape[1] - size + 1):
        own = list(range(start, start + size))
        if not free[own].all() or varies[own].sum() < 2:
            continue
        group = Group(start, size)
        if start in related:
            group.reasons.append((0.95, "its difference from another position is observed too"))
        _weigh_rotation(sample, group, rotations, turning)
        for hand, reach in reaches:
            _weigh_hand(sample, group, hand, reach)
        if group.confidence >= ENOUGH:
            candidates.append(group)
    chosen: list[Group] = []
    for group in sorted(candidates, key=lambda group: -sum(sure for sure, _ in group.reasons)):
        if not any(group.overlaps(other) for other in chosen):
            chosen.append(group)
    return sorted(chosen, key=lambda group: group.start)


def _weigh_rotation(sample: Sample, group: Group, rotations: list[Rotation], turning: list[int]) -> None:
    """Adds evidence from a rotation or an angle right after these numbers that moves and rests with them."""
    stop = group.start + group.size
    for rotation in rotations:
        if rotation.start == stop and not rotation.relative and group.size == 3:
            shared = rest_together(sample, group.columns, rotation.columns)
            if shared > TOGETHER:
                group.reasons.append((0.85, "it moves and rests with the rotation after it"))
    if stop in turning:
        shared = rest_together(sample, group.columns, [stop])
        if shared > TOGETHER:
            group.reasons.append((0.7, f"it moves and rests with angle {stop}"))
    elif group.size == 2 and stop < sample.x.shape[1] and sample.observed.varies[stop]:
        shares = swings(sample, group.columns, stop)
        if is_swung(shares) and rest_together(sample, group.columns, [stop]) > TOGETHER:
            group.reasons.append((0.8, f"it moves as number {stop} turns it, in radians ({shares[0]:.0%})"))


def _weigh_hand(sample: Sample, group: Group, hand: Group, reach: Reach) -> None:
    """Adds evidence from a hand that moves these numbers or goes to them."""
    explained, factor = follows(sample, group.columns, hand.columns)
    if explained > 0.5 and ALIKE[0] < factor < ALIKE[1]:
        sure = 0.6 + 0.35 * (explained - 0.5) / 0.5
        group.reasons.append((sure, f"when it moves, it moves with {_span(hand)} ({explained:.0%})"))
    ratio, share = reach(group.columns)
    if ratio < 0.6 and share > 0.8:
        group.reasons.append(
            (0.85, f"{_span(hand)} comes {1 / max(ratio, 0.01):.0f} times nearer to it than to that of other episodes")
        )
    elif ratio < 0.8 and share > 0.7:
        group.reasons.append((0.5, f"{_span(hand)} comes nearer to it than to that of other episodes"))


def _span(group: Group) -> str:
    return f"{group.start}..{group.start + group.size - 1}"
