"""Template: the shape of a body, and where it is in a picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from closedform.vision.pictures import opencv

_MARGIN = 2  # pixels around the shape that must not be covered by it
_EMPTY = 0.02  # of the shape's largest value
_STEPS, _STILL = 20, 1e-3  # of Gauss-Newton, and the step, in pixels and radians, that ends it
_LARGEST_STEP = np.array([3.0, 3.0, 0.3])  # pixels, pixels, radians
_N_ANGLES = 24  # of a search, before refinement
_N_REFINED = 4  # of the places that a search finds
_ROUND = 0.9  # agreement of a shape with itself, turned by any angle, that makes angles meaningless
_DAMPING = 1e-6


class SeenPose(NamedTuple):
    """Where a body is in a picture.

    Attributes:
        x, y: in pixels.
        angle: in radians, from the picture's x toward its y; 0 for round bodies.
        confidence: how much of the shape is explained, at most 1; bodies that are not there have about 0.
        visible: the fraction of the shape that no other body hides.
    """

    x: float
    y: float
    angle: float
    confidence: float
    visible: float


@dataclass(frozen=True)
class Template:
    """A shape on a grid of pixels around its center, as it is at angle 0.

    Attributes:
        shape: (2 R + 1, 2 R + 1) of float32, 0 outside of the body and 1 inside, smooth at the edge.
    """

    shape: np.ndarray

    @cached_property
    def radius(self) -> int:
        """R."""
        return len(self.shape) // 2

    @cached_property
    def is_round(self) -> bool:
        """Whether the shape looks the same at every angle."""
        pixels = self._grid(np.zeros(3), np.linspace(0, 2 * np.pi, 12, endpoint=False)[1:])
        turned = np.stack([_sample(self.shape, *one + self.radius) for one in pixels])
        explained = 1 - np.square(turned - self.shape).sum((1, 2)) / np.square(self.shape).sum()
        return bool(explained.min() > _ROUND)

    def refine(self, mask: np.ndarray, seen: np.ndarray, pose: np.ndarray) -> SeenPose:
        """The pose near another one that explains a picture best (inverse compositional Gauss-Newton).

        Baker and Matthews (2004), "Lucas-Kanade 20 years on". What other bodies hide does not count.

        Args:
            mask: (H, W), how sure it is that pixels are of the body.
            seen: (H, W), how sure it is that no other body hides them.
            pose: (3,), x, y and angle to begin with.
        """
        points, values, gradients = self._support
        pose = np.array(pose, float)
        for _ in range(_STEPS):
            x, y = _moved(points, pose)
            weighted = gradients * _sample(seen, x, y)[:, None]
            curvature = weighted.T @ gradients
            curvature[np.diag_indices(3)] += _DAMPING * (1 + curvature.diagonal())
            step = np.linalg.solve(curvature, weighted.T @ (_sample(mask, x, y) - values))
            step = np.clip(step, -_LARGEST_STEP, _LARGEST_STEP)
            cos, sin = np.cos(pose[2]), np.sin(pose[2])
            pose -= cos * step[0] - sin * step[1], sin * step[0] + cos * step[1], step[2]
            if np.abs(step).max() < _STILL:
                break
        return self._judged(mask, seen, pose)

    def search(self, mask: np.ndarray, seen: np.ndarray) -> SeenPose:
        """The best pose anywhere in a picture, at any angle."""
        cv2, radius = opencv(), self.radius
        padded = cv2.copyMakeBorder(mask, radius, radius, radius, radius, cv2.BORDER_CONSTANT, value=0)
        small = cv2.resize(padded, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        found = []
        for angle in np.linspace(0, 2 * np.pi, 1 if self.is_round else _N_ANGLES, endpoint=False):
            x, y = self._grid(np.zeros(3), [-angle])[0] + radius
            turned = cv2.resize(_sample(self.shape, x, y), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            difference = cv2.matchTemplate(small, turned, cv2.TM_SQDIFF)
            row, column = np.unravel_index(difference.argmin(), difference.shape)
            found.append((difference[row, column], 2.0 * column, 2.0 * row, angle))
        best = [self.refine(mask, seen, np.array(place[1:])) for place in sorted(found)[:_N_REFINED]]
        return max(best, key=lambda one: one.confidence * one.visible)

    def around(self, mask: np.ndarray, pose: SeenPose) -> np.ndarray:
        """A picture's numbers on the template's grid, as far as it is seen there."""
        x, y = self._grid(np.array([pose.x, pose.y, 0.0]), [pose.angle])[0]
        return _sample(mask, x, y)

    def covered(self, pose: SeenPose, size: tuple[int, int]) -> np.ndarray:
        """(H, W), where the shape is in a picture of that size."""
        cv2, cos, sin = opencv(), np.cos(pose.angle), np.sin(pose.angle)
        shift = np.array([pose.x, pose.y]) - self.radius * np.array([cos - sin, sin + cos])
        return cv2.warpAffine(self.shape, np.array([[cos, -sin, shift[0]], [sin, cos, shift[1]]]), size[::-1])

    def _judged(self, mask: np.ndarray, seen: np.ndarray, pose: np.ndarray) -> SeenPose:
        points, values, _ = self._support
        x, y = _moved(points, pose)
        weight = _sample(seen, x, y)
        error = float((weight * np.square(_sample(mask, x, y) - values)).sum())
        total = float((weight * np.square(values)).sum())
        angle = 0.0 if self.is_round else float(np.angle(np.exp(1j * pose[2])))
        confidence = 1 - error / total if total > 0 else 0.0
        return SeenPose(
            float(pose[0]), float(pose[1]), angle, confidence, float((weight * values).sum() / values.sum())
        )

    @cached_property
    def _support(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Points (2, P) on and around the shape, its values (P,) there, and their derivatives (P, 3) by the pose."""
        cv2, shape = opencv(), self.shape
        near = cv2.dilate(shape, np.ones((2 * _MARGIN + 1,) * 2, np.uint8)) > _EMPTY
        v, u = np.mgrid[-self.radius : self.radius + 1, -self.radius : self.radius + 1]
        by_v, by_u = np.gradient(shape)
        turning = np.zeros_like(by_u) if self.is_round else u * by_v - v * by_u
        gradients = np.stack([by_u[near], by_v[near], turning[near]], axis=1)
        return np.stack([u[near], v[near]]).astype(float), shape[near].astype(float), gradients.astype(float)

    def _grid(self, pose: np.ndarray, angles: np.ndarray | list[float]) -> np.ndarray:
        """(n, 2, 2 R + 1, 2 R + 1), the x and y of the grid's points at a place and at several angles."""
        v, u = np.mgrid[-self.radius : self.radius + 1, -self.radius : self.radius + 1]
        points = np.stack([u.ravel(), v.ravel()]).astype(float)
        return np.stack([_moved(points, np.array([*pose[:2], angle])) for angle in angles]).reshape(-1, 2, *u.shape)


def _moved(points: np.ndarray, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cos, sin = np.cos(pose[2]), np.sin(pose[2])
    return pose[0] + cos * points[0] - sin * points[1], pose[1] + sin * points[0] + cos * points[1]


def _sample(picture: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A picture's numbers between its pixels, and 0 outside of it."""
    cv2 = opencv()
    found = cv2.remap(
        picture,
        np.atleast_2d(x).astype(np.float32),
        np.atleast_2d(y).astype(np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=0,
    )
    return found.reshape(np.shape(x))
