"""Small scenes drawn with known poses: an L and a disc in front of a table that is not evenly bright."""

from __future__ import annotations

import cv2
import numpy as np

HEIGHT, WIDTH, FINE = 72, 88, 8
L_SHAPE = np.array([(-9, -9), (-3, -9), (-3, 3), (9, 3), (9, 9), (-9, 9)], float)
DISC = 4.0


def background() -> np.ndarray:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    picture = np.stack([200 + x / 4, 210 - y / 4, np.full_like(x, 190)], -1).astype(np.uint8)
    picture[10:16, 20:60] = (120, 200, 120)  # a mark on the table
    return picture


def draw(block: np.ndarray, disc: np.ndarray) -> np.ndarray:
    """A picture of the block (x, y, angle) and of the disc (x, y) in front of it."""
    large = np.kron(background(), np.ones((FINE, FINE, 1), np.uint8))
    cos, sin = np.cos(block[2]), np.sin(block[2])
    corners = L_SHAPE @ np.array([[cos, sin], [-sin, cos]]) + block[:2] + 0.5
    cv2.fillPoly(large, [np.round(corners * FINE).astype(np.int32)], (170, 60, 50))
    cv2.circle(large, tuple(np.round((disc + 0.5) * FINE).astype(int)), int(DISC * FINE), (40, 70, 200), -1)
    return cv2.resize(large, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)


def poses(n: int, seed: int, apart: float = 0.0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Poses of block and disc, at least a distance apart."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < n:
        block = np.array([*rng.uniform((16, 16), (WIDTH - 16, HEIGHT - 16)), rng.uniform(-np.pi, np.pi)])
        disc = rng.uniform((6, 6), (WIDTH - 6, HEIGHT - 6))
        if np.hypot(*(block[:2] - disc)) >= apart:
            found.append((block, disc))
    return found
