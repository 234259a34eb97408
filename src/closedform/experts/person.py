"""Person: moves one hand of a scene much like a human teleoperator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from closedform.evaluation.robomimic import Robomimic
from closedform.geometry.so3 import axis_angle_of, columns_of_quaternion, matrix_of_axis_angle, rotation_matrix

_Point = Sequence[float] | np.ndarray

_OPEN, _CLOSED = -1.0, 1.0
_STRIDE = 0.014  # meters that a hand moves in a step at speed 1
_TURN = 0.06  # radians, likewise
_TREMOR = 0.0015  # meters, the standard deviation of an unsteady hand
_STEADINESS = 0.85  # fraction of the tremor that carries to the next step
_PATIENCE = 25  # steps that a person waits for the hand to arrive


class HandCommand(NamedTuple):
    """A target for a hand: position (3,), axes (3, 3), and whether its gripper opens (-1) or closes (1)."""

    position: np.ndarray
    axes: np.ndarray
    closing: float

    def action(self) -> np.ndarray:
        """The command as an action (7,)."""
        return np.concatenate([self.position, axis_angle_of(self.axes), [self.closing]])


class Person:
    """A simulated operator of one hand, whose pace, tremor and habits last for an episode.

    Its methods yield a command for each step, so that a script for one hand is a generator (`yield from
    person.move(...)`), and the scripts of two hands can run in parallel.

    Args:
        environment: the environment, after a reset.
        rng: draws the person's traits and motions.
        hand: the index of the arm.
    """

    def __init__(self, environment: Robomimic, rng: np.random.Generator, hand: int = 0):
        self.environment, self.rng, self.hand = environment, rng, hand
        self.axes, self.position = environment.arms[hand].pose
        self.closing = _OPEN
        self.pace = float(rng.uniform(0.8, 1.3))
        self.clumsiness = float(rng.uniform(0.5, 1.5))
        self._tremor = np.zeros(3)

    @property
    def here(self) -> np.ndarray:
        """The position of the hand, (3,)."""
        return self.environment.arms[self.hand].pose.position

    def move(
        self,
        position: _Point,
        axes: np.ndarray | None = None,
        *,
        speed: float = 1.0,
        care: float = 0.0,
        within: float = 0.01,
        patience: int = _PATIENCE,
    ) -> Iterator[HandCommand]:
        """Moves to a pose with a smooth start and stop, then waits until the hand arrives or `patience` runs out.

        Args:
            position: (3,)
            axes: (3, 3); None keeps the current ones.
            speed: a multiple of the person's own pace.
            care: from 0 to 1, how much of the tremor is suppressed.
            within: the distance in meters that counts as arrived.
            patience: the number of steps to wait.
        """
        start, start_axes = self.position, self.axes
        goal, goal_axes = np.asarray(position, np.float64), self.axes if axes is None else axes
        turn = axis_angle_of(goal_axes @ start_axes.T)
        pace = speed * self.pace
        n = max(np.linalg.norm(goal - start) / (_STRIDE * pace), np.linalg.norm(turn) / (_TURN * pace))
        n = int(np.ceil(1.3 * n)) + 2  # soft ends cost a little
        for k in range(1, n + 1):
            share = 0.5 - 0.5 * np.cos(np.pi * k / n)
            self.position = start + share * (goal - start)
            self.axes = matrix_of_axis_angle(share * turn) @ start_axes
            yield self._command(care)
        self.axes = goal_axes
        for _ in range(patience):
            if np.linalg.norm(self.here - goal) < within:
                break
            yield self._command(care)

    def wander(
        self, position: _Point, axes: np.ndarray | None = None, *, spread: float = 0.03, **how: Any
    ) -> Iterator[HandCommand]:
        """Moves to a pose, sometimes with a detour or a pause on the way."""
        position = np.asarray(position, np.float64)
        if self.rng.random() < 0.4:
            halfway = self.position + self.rng.uniform(0.3, 0.7) * (position - self.position)
            beside = halfway + self.rng.normal(0, spread, 3) * self.clumsiness * (1, 1, 0.5)
            yield from self.move(beside, speed=how.get("speed", 1.0), within=0.04, patience=3)
            if self.rng.random() < 0.3:
                yield from self.hold(int(self.rng.integers(2, 8)))
        yield from self.move(position, axes, **how)

    def approach(
        self, position: _Point, axes: np.ndarray | None = None, *, error: float = 0.008, **how: Any
    ) -> Iterator[HandCommand]:
        """Moves to a pose, often missing it a little at first and then correcting."""
        position = np.asarray(position, np.float64)
        if self.rng.random() < 0.5:
            missed = position + self.rng.normal(0, error, 3) * self.clumsiness * (1, 1, 0.3)
            yield from self.wander(missed, axes, **how)
            yield from self.hold(int(self.rng.integers(0, 5)))
            yield from self.move(position, axes, **how)
        else:
            yield from self.wander(position, axes, **how)

    def hold(self, steps: int, *, care: float = 0.0) -> Iterator[HandCommand]:
        """Stays for some steps."""
        for _ in range(steps):
            yield self._command(care)

    def wait_until(self, holds: Callable[[], bool], *, at_most: int = 300) -> Iterator[HandCommand]:
        """Stays until a condition holds."""
        for _ in range(at_most):
            if holds():
                break
            yield self._command(0.5)

    def close(self, *, steps: int = 10) -> Iterator[HandCommand]:
        """Closes the gripper and waits for it."""
        self.closing = _CLOSED
        yield from self.hold(steps + int(self.rng.integers(0, 4)), care=0.8)

    def open(self, *, steps: int = 6) -> Iterator[HandCommand]:
        """Opens the gripper and waits for it."""
        self.closing = _OPEN
        yield from self.hold(steps + int(self.rng.integers(0, 3)), care=0.8)

    def _command(self, care: float) -> HandCommand:
        kick = self.rng.normal(0, _TREMOR * np.sqrt(1 - _STEADINESS**2), 3) * self.clumsiness
        self._tremor = _STEADINESS * self._tremor + kick
        return HandCommand(self.position + (1 - care) * self._tremor, self.axes, self.closing)


def above(position: np.ndarray, height: float) -> np.ndarray:
    """The point at a given height above a position (3,)."""
    return np.asarray(position) + np.array([0.0, 0.0, height])


def pointing_down(closing_along: np.ndarray) -> np.ndarray:
    """The axes (3, 3) of a hand that points down and closes along a horizontal direction."""
    x = np.array([closing_along[0], closing_along[1], 0.0])
    x /= np.linalg.norm(x)
    z = np.array([0.0, 0.0, -1.0])
    return np.stack([x, np.cross(z, x), z], axis=1)


def turned(axes: np.ndarray, angle: float) -> np.ndarray:
    """Axes (3, 3) rotated about the vertical."""
    return matrix_of_axis_angle(np.array([0.0, 0.0, angle])) @ axes


def nearest_turn(axes: np.ndarray, choices: list[np.ndarray]) -> np.ndarray:
    """The axes (3, 3) among several that need the smallest rotation."""
    return max(choices, key=lambda choice: np.trace(choice.T @ axes))


def object_pose(environment: Robomimic, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The position (3,) and axes (3, 3) of an object, by robosuite's name."""
    observed = environment.observed()
    axes = rotation_matrix(columns_of_quaternion(np.asarray(observed[f"{name}_quat"], np.float64)))
    return np.array(observed[f"{name}_pos"], np.float64), axes
