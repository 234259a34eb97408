"""Hands: the parts of an action that are transferred together, and the object that each of them grasps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import ROTATIONS, SPATIAL_ROTATIONS
from closedform.geometry.so3 import rotation_matrix
from closedform.transfer.frame import BodyPoses

_CARRIED = 0.1  # of the spread of a hand's path: how far a body must have moved to count as grasped
_TOGETHER = 0.15  # of that motion: how far it may have moved relative to the hand
LOOSE = 0.1  # of half the range of a hand's targets: how much farther than in grasps its body may be while held
APART = 0.02  # of the spread: how far it moves relative to the hand in the step in which it is released


@dataclass(frozen=True)
class Hand:
    """A body that actions command, or all of an action if they command none.

    Attributes:
        name: of the body.
        columns: (c,), its numbers in an encoded action.
        body: which of `BodyPoses` it is observed as; -1 if it is not.
        position, rotation: where its position and its rotation begin in an encoded action; -1 if it has none. The
            rotation of a hand that grasps is then the identity, always.
    """

    name: str | None
    columns: np.ndarray
    body: int
    position: int
    rotation: int

    @property
    def holds(self) -> bool:
        """Whether its grasps can be detected: its pose is observed and commanded."""
        return self.body >= 0 and self.position >= 0


def hands_of(encoding: Encoding, poses: BodyPoses, *, holding: bool) -> tuple[Hand, ...]:
    """The hands that actions command; numbers that belong to no body go with the first.

    A hand whose rotation is not commanded does not turn what it grasps.

    Args:
        encoding: of actions.
        poses: of the bodies observed.
        holding: whether to detect what they grasp.
    """
    entries = encoding.slices()
    turning = ("position", "vector", *ROTATIONS)
    names = list(dict.fromkeys(e.body for e, _ in entries if e.body is not None and e.kind in turning)) or [None]
    observed: list[str | None] = [name for name, *_ in poses.bodies] if holding and poses.dimension == 3 else []
    hands = []
    for name in names:
        own = [(e, c) for e, c in entries if e.body == name or (name == names[0] and e.body not in names)]
        named = [(e, c) for e, c in own if e.body == name and name is not None]
        position = next((c.start for e, c in named if e.kind == "position" and e.size == 3), -1)
        rotation = next((c.start for e, c in named if e.kind in SPATIAL_ROTATIONS), -1)
        body = observed.index(name) if name in observed else -1
        if body >= 0 and (poses.bodies[body][2] is None if rotation >= 0 else not poses.identity):
            body = -1
        hands.append(
            Hand(
                name=name,
                columns=np.concatenate([np.arange(c.start, c.stop) for _, c in own]),
                body=body,
                position=position,
                rotation=rotation,
            )
        )
    return tuple(hands)


def turn_sum(hand: Hand, encoded: np.ndarray, poses: np.ndarray) -> np.ndarray:
    """The sum (3, 3) over steps of a hand's commanded axes relative to its observed axes.

    Commanded and observed rotations may follow different conventions: robosuite's differ by a quarter turn. The hand
    follows its commands, so the rotation nearest to this sum is that difference.
    """
    if not hand.holds or hand.rotation < 0 or not len(encoded):
        return np.zeros((3, 3))
    commanded = rotation_matrix(encoded[:, hand.rotation : hand.rotation + 6])
    return np.einsum("tji,tjk->ik", rotation_matrix(poses[:, hand.body, 3:]), commanded)


def rotation_near(matrix: np.ndarray) -> np.ndarray:
    """The rotation nearest to a matrix (3, 3); the identity if the matrix does not determine one."""
    if not matrix.any():
        return np.eye(3)
    left, size, right = np.linalg.svd(matrix)
    if size[1] <= 1e-9:
        return np.eye(3)
    return left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right


def held_bodies(hand: Hand, poses: np.ndarray, others: list[int], n_back: int) -> np.ndarray:
    """The body that a hand has grasped at each step of an episode. (T, bodies, 9) -> (T,), -1 for none.

    A body counts as grasped once it has moved along with the hand, until it moves relative to the hand.

    Args:
        hand: the hand.
        poses: of all bodies.
        others: bodies that are not hands.
        n_back: steps over which a motion is judged.
    """
    held = np.full(len(poses), -1)
    if not hand.holds or len(poses) < 2:
        return held
    steps = np.arange(len(poses))
    before = np.maximum(steps - n_back, 0)
    path = poses[:, hand.body, :3]
    spread = np.sqrt(path.var(0).sum())
    for body in others:
        place, axes = poses[:, body, :3], rotation_matrix(poses[:, body, 3:])
        seen = np.einsum("tji,tj->ti", axes, path - place)  # the hand in the body's frame
        moved = np.linalg.norm(place - place[before], axis=1)
        together = (moved > _CARRIED * spread) & (np.linalg.norm(seen - seen[before], axis=1) < _TOGETHER * moved)
        apart = np.linalg.norm(np.diff(seen, axis=0, prepend=seen[:1]), axis=1) > APART * spread
        last_together = np.maximum.accumulate(np.where(together, steps, -1))
        last_apart = np.maximum.accumulate(np.where(apart, steps, -1))
        held[(last_together >= 0) & (last_together >= last_apart)] = body
    return held
