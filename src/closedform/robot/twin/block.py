"""The T of Push-T at one millimeter a pixel: its shape, its markers, and how much of the outline it covers."""

from __future__ import annotations

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.vision.marked_body import MarkedBody, square

BAR = (-0.06, 0.0, 0.06, 0.03)  # left, lower, right, upper in the T's frame, meters
STEM = (-0.015, 0.03, 0.015, 0.12)
HEIGHT = 0.03
GOAL = (0.256, 0.256, np.pi / 4)  # x, y, angle on the workplane
CENTER_OF_GRAVITY = (0.0, 0.045)  # gym-pusht's, about which it turns start states
MARKER = 0.024  # edge of a marker
MARKERS = {  # number: its center in the T's frame
    **{number: (-0.045 + 0.03 * number, 0.015) for number in range(4)},
    **{4 + number: (0.0, 0.045 + 0.03 * number) for number in range(3)},
}
NAME = "block"


def block_body() -> MarkedBody:
    """The T as a body with markers on its top, whose origin lies on the table."""
    corners = {number: square(MARKER, RigidPose.planar(x, y, 0.0, HEIGHT)) for number, (x, y) in MARKERS.items()}
    return MarkedBody(NAME, corners, 0.0)


def coverage(x: float, y: float, angle: float) -> float:
    """The fraction of the outline that the T covers.

    Args:
        x, y: of its origin on the workplane, in meters.
        angle: in radians.
    """
    goal, block = _rectangles(*GOAL), _rectangles(x, y, angle)
    area = sum(_area(rectangle) for rectangle in goal)
    return float(sum(_area(_clipped(one, other)) for one in goal for other in block) / area)


def start_pose(state: np.ndarray) -> np.ndarray:
    """The T's pose (3,) after gym-pusht is set to a state (5,): turned about its center of gravity."""
    cog, angle = 1e3 * np.array(CENTER_OF_GRAVITY), float(state[4])
    cos, sin = np.cos(angle), np.sin(angle)
    origin = np.asarray(state[2:4]) + cog - np.array([cos * cog[0] - sin * cog[1], sin * cog[0] + cos * cog[1]])
    return np.array([*origin, angle])


def distance_to(point: np.ndarray, pose: np.ndarray) -> tuple[float, np.ndarray]:
    """How far a point is from the T, and the direction away from it.

    Args:
        point: (2,) on the workplane, in meters.
        pose: (3,) of the T: x, y in meters, angle.

    Returns:
        The distance, negative inside, and a unit vector (2,).
    """
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    turn = np.array([[cos, -sin], [sin, cos]])
    own = turn.T @ (np.asarray(point) - pose[:2])
    distances = [_to_rectangle(own, rectangle) for rectangle in (BAR, STEM)]
    distance, away = min(distances, key=lambda found: found[0])
    return distance, turn @ away


def _to_rectangle(point: np.ndarray, rectangle: tuple[float, ...]) -> tuple[float, np.ndarray]:
    lower, upper = np.array(rectangle[:2]), np.array(rectangle[2:])
    nearest = np.clip(point, lower, upper)
    off = point - nearest
    distance = float(np.linalg.norm(off))
    if distance > 0:
        return distance, off / distance
    depths = np.concatenate([point - lower, upper - point])
    side = int(np.argmin(depths))
    away = np.zeros(2)
    away[side % 2] = -1.0 if side < 2 else 1.0
    return -float(depths[side]), away


def _rectangles(x: float, y: float, angle: float) -> list[np.ndarray]:
    """The two rectangles of the T (4, 2) on the workplane, counterclockwise."""
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.array([[cos, -sin], [sin, cos]])
    return [
        np.array([[left, low], [right, low], [right, up], [left, up]]) @ turn.T + [x, y]
        for left, low, right, up in (BAR, STEM)
    ]


def _clipped(subject: np.ndarray, clip: np.ndarray) -> np.ndarray:
    """The part of a polygon (n, 2) inside a convex one (m, 2), both counterclockwise (Sutherland and Hodgman)."""
    for start, end in zip(clip, np.roll(clip, -1, axis=0), strict=True):
        if not len(subject):
            break
        edge = end - start
        sides = edge[0] * (subject[:, 1] - start[1]) - edge[1] * (subject[:, 0] - start[0])
        kept = []
        for i in range(len(subject)):
            j = (i + 1) % len(subject)
            if sides[i] >= 0:
                kept.append(subject[i])
            if (sides[i] >= 0) != (sides[j] >= 0):
                kept.append(subject[i] + sides[i] / (sides[i] - sides[j]) * (subject[j] - subject[i]))
        subject = np.array(kept).reshape(-1, 2)
    return subject


def _area(polygon: np.ndarray) -> float:
    if len(polygon) < 3:
        return 0.0
    x, y = polygon.T
    return 0.5 * float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
