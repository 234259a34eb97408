"""Pusher: a person who solves Push-T by looking at the scene and moving one hand."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

OUTLINE = np.array([(-60, 0), (60, 0), (60, 30), (15, 30), (15, 120), (-15, 120), (-15, 30), (-60, 30)], np.float64)
CENTER = np.array([0.0, 45.0])  # of mass, in the axes of the block
GYRATION = np.sqrt(3000.0)  # its radius, pixels: how far a turn by one radian counts as a shift
GOAL = np.array([256.0, 256.0, np.pi / 4])
_RADIUS = 15.0  # of the hand
_SPACING, _CORNER = 7.5, 4.0  # of the places where it pushes, and their distance from corners
_CLEAR, _NEAR = 21.0, 24.0  # distances from the block at which the hand goes around it, and from which it approaches
_LOW, _HIGH = 22.0, 490.0  # where the hand fits between the walls
_PATIENCE = 40  # steps on the way to a place, after which the person tries another one
_STRIDE, _LEAD = 26.0, 13.0  # pixels that the hand leads by when it travels and when it pushes


class _Contacts(NamedTuple):
    """Places on the outline (n, 2) with their inward normals (n, 2), in the axes of the block."""

    points: np.ndarray
    normals: np.ndarray


class Pusher:
    """Pushes the block with the one straight push, of all around its outline, that brings it nearest to the goal.

    The block moves only while it is pushed and contact has no friction, so a push along the normal n at a lever w moves
    it along (n, w) in the plane of shifts and turns, where a turn counts by the radius of gyration. The person
    pushes until the rest of the error is perpendicular to that, and then looks for the next place.

    Args:
        seed: of the person's moods and the unsteadiness of the hand.
        tremor: the standard deviation of that, pixels.
        whim: how much the person's taste in pushes varies: the standard deviation of the logarithm of how fast each
            push seems; 0 for one who always chooses the best.
    """

    def __init__(self, seed: int | Sequence[int] = 0, tremor: float = 2.0, whim: float = 0.5):
        self._rng, self._tremor, self._whim = np.random.default_rng(seed), tremor, whim
        self._shake = np.zeros(2)
        self._contact: int | None = None
        self._on_the_way = 0
        self._retreating = False

    def target(self, state: np.ndarray) -> np.ndarray:
        """Where to move the hand, (2,), in a state (5,): hand x, y, block x, y, angle."""
        hand, block = np.asarray(state[:2], np.float64), np.asarray(state[2:5], np.float64)
        points, normals, gains, depths = _pushes(block)
        gave_up = self._on_the_way > _PATIENCE
        if self._contact is None or gave_up or self._exhausted(gains):
            rates = _rates(hand, block, points, normals, gains, depths)
            if gave_up:
                rates *= np.linalg.norm(points - points[self._contact], axis=1) > 40
            self._contact = int(np.argmax(rates * np.exp(self._whim * self._rng.normal(size=len(rates)))))
            self._on_the_way, self._retreating = 0, True
        k = self._contact
        goal = self._approach(hand, block, points[k], normals[k], depths[k])
        self._shake = 0.7 * self._shake + 0.7 * self._rng.normal(0, self._tremor, 2)
        return np.clip(goal + self._shake, _LOW - 8, _HIGH + 8)

    def _exhausted(self, gains: np.ndarray) -> bool:
        return bool(gains[self._contact] < max(0.7, 0.2 * gains.max()))

    def _approach(
        self, hand: np.ndarray, block: np.ndarray, point: np.ndarray, normal: np.ndarray, depth: float
    ) -> np.ndarray:
        before, touching = point - _NEAR * normal, point - _RADIUS * normal
        away = hand - point
        beside = abs(away @ np.array([-normal[1], normal[0]]))
        if beside < 5.0 and -_NEAR - 8 < away @ normal < -_RADIUS + 6:  # in line with the push
            self._on_the_way, self._retreating = 0, False
            return touching + normal * min(_LEAD, depth + 1.0)
        self._on_the_way += 1
        out = turned(_away(to_block(hand[None], block))[0], block[2])
        distance = max(float(np.linalg.norm(out)), 1e-9)
        if self._retreating and distance < _CLEAR - 1.5:
            return hand + 12.0 * out / distance
        self._retreating = False
        waypoint = _around(hand, before, block)
        step = waypoint - hand
        return hand + step * min(1.0, _STRIDE / max(np.linalg.norm(step), 1e-9))


def error_of(block: np.ndarray) -> np.ndarray:
    """What is missing to the goal, (3,): the shift of the center of mass, and the turn times the radius of gyration."""
    centers = [from_block(CENTER[None], pose)[0] for pose in (GOAL, block)]
    turn = (GOAL[2] - block[2] + np.pi) % (2 * np.pi) - np.pi
    return np.array([*(centers[0] - centers[1]), GYRATION * turn])


def _pushes(block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All pushes in the world: where, along what, how much of the error each removes, and how deep it is."""
    contacts, error = _contacts(), error_of(block)
    points, normals = from_block(contacts.points, block), turned(contacts.normals, block[2])
    arms = points - from_block(CENTER[None], block)
    levers = (arms[:, 0] * normals[:, 1] - arms[:, 1] * normals[:, 0]) / GYRATION
    directions = np.concatenate([normals, levers[:, None]], axis=1)
    lengths = np.linalg.norm(directions, axis=1)
    gains = directions @ error / lengths
    return points, normals, gains, gains * lengths


def _rates(
    hand: np.ndarray,
    block: np.ndarray,
    points: np.ndarray,
    normals: np.ndarray,
    gains: np.ndarray,
    depths: np.ndarray,
) -> np.ndarray:
    """How fast each push (n,) reduces the error, with the way there; 0 where the hand does not fit."""
    error = np.linalg.norm(error_of(block))
    left = np.sqrt(np.maximum(error**2 - np.maximum(gains, 0.0) ** 2, 0.0))
    ways = np.linalg.norm(points - _NEAR * normals - hand, axis=1)
    behind = points - (_RADIUS + 8) * normals
    fits = np.all((behind > _LOW) & (behind < _HIGH), axis=1)
    return np.where(fits, (error - left) / (4.0 + ways / 13.0 + np.maximum(depths, 0.0) / 6.0), 0.0)


def turned(vectors: np.ndarray, angle: float) -> np.ndarray:
    """Vectors (..., 2) turned by an angle."""
    c, s = np.cos(angle), np.sin(angle)
    return vectors @ np.array([(c, s), (-s, c)])


def from_block(points: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Points (n, 2) in the axes of the block, in the world."""
    return block[:2] + turned(points, block[2])


def to_block(points: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Points (n, 2) in the world, in the axes of the block."""
    return turned(points - block[:2], -block[2])


@cache
def _contacts() -> _Contacts:
    """Places all around the outline where the hand fits."""
    points, normals = [], []
    for start, end in zip(OUTLINE, np.roll(OUTLINE, -1, axis=0), strict=True):
        along = (end - start) / np.linalg.norm(end - start)
        normal = np.array([-along[1], along[0]])  # inward: the outline is counterclockwise in its own axes
        for at in np.arange(_CORNER, np.linalg.norm(end - start) - _CORNER + 1e-9, _SPACING):
            point = start + at * along
            if np.linalg.norm(_away((point - (_RADIUS + 1) * normal)[None])) > _RADIUS:
                points.append(point)
                normals.append(normal)
    return _Contacts(np.array(points), np.array(normals))


def _away(points: np.ndarray) -> np.ndarray:
    """From the outline to points (n, 2) outside of the block, along the shortest way: (n, 2)."""
    starts, along = OUTLINE, np.roll(OUTLINE, -1, axis=0) - OUTLINE
    share = np.clip(np.sum((points[:, None] - starts) * along, axis=2) / np.sum(along**2, axis=1), 0, 1)
    away = points[:, None] - (starts + share[..., None] * along)
    nearest = np.argmin(np.sum(away**2, axis=2), axis=1)
    return away[np.arange(len(points)), nearest]


def _free(start: np.ndarray, end: np.ndarray) -> bool:
    """Whether the hand can move straight; near its start it may be close to the block."""
    way = start + np.linspace(0, 1, max(2, int(np.linalg.norm(end - start) / 4)))[:, None] * (end - start)
    distances = np.linalg.norm(_away(way), axis=1)
    return bool(distances.min() > min(_CLEAR - 2.5, distances[0] - 0.5))


@cache
def _corners() -> tuple[tuple[np.ndarray, ...], dict[int, list[tuple[int, float]]]]:
    """Points around the block, and which of them are connected by straight ways of which length."""
    offset = _CLEAR + 4
    points = tuple(
        np.array(p) for x in (-60 - offset, 60 + offset) for p in ((x, -offset), (x, 15.0), (x, 30 + offset))
    ) + tuple(np.array((x, y)) for x in (-15 - offset, 15 + offset) for y in (30 + offset, 80.0, 120 + offset))
    points += (np.array((0.0, -offset)), np.array((0.0, 120 + offset)))
    ways = {
        i: [(j, float(np.linalg.norm(q - p))) for j, q in enumerate(points) if j != i and _free(p, q)]
        for i, p in enumerate(points)
    }
    return points, ways


def _around(hand: np.ndarray, goal: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The first stop (2,) of the shortest way of the hand around the block and between the walls."""
    start, end = to_block(np.stack([hand, goal]), block)
    if _free(start, end):
        return goal
    points, ways = _corners()
    places = from_block(np.stack(points), block)
    fits = np.all((places > _LOW - 2) & (places < _HIGH + 2), axis=1)
    last = {i: float(np.linalg.norm(end - p)) for i, p in enumerate(points) if fits[i] and _free(p, end)}
    queue = [(float(np.linalg.norm(p - start)), i, i) for i, p in enumerate(points) if fits[i] and _free(start, p)]
    heapq.heapify(queue)
    done: set[int] = set()
    best, found = np.inf, goal
    while queue:
        length, i, first = heapq.heappop(queue)
        if i in done or length >= best:
            continue
        done.add(i)
        if i in last and length + last[i] < best:
            best, found = length + last[i], places[first]
        for j, more in ways[i]:
            if fits[j]:
                heapq.heappush(queue, (length + more, j, first))
    return found
