"""Steering: drives a hand in space with a mouse over a picture of the scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Steers(Protocol):
    """An environment that shows itself and has a hand that a person can move."""

    @property
    def view(self) -> Sequence[Sequence[float]]:
        """Unit vectors of the world: to the right of the picture, toward its bottom along the ground, and up."""
        ...

    @property
    def reach(self) -> float:
        """How far the hand moves while the mouse crosses the picture."""
        ...

    def render(self) -> np.ndarray:
        """An image of the scene, (height, width, 3) of uint8."""
        ...

    def hand(self) -> np.ndarray:
        """The position of the hand, (3,)."""
        ...

    def closed(self) -> bool:
        """Whether its gripper was last commanded to close."""
        ...

    def action_to(self, position: np.ndarray, closed: bool) -> np.ndarray:
        """The action (D_a,) that moves the hand to a position (3,) with its gripper closed or open."""
        ...


class Steering:
    """Turns the motion of a pressed mouse into actions.

    Wherever the person grabs, the hand begins where it is: the mouse moves it to the side, to the front and back, and
    the wheel up and down. Its gripper stays as it was until the person changes it.

    Args:
        environment: the environment, which has been reset.
    """

    def __init__(self, environment: Steers):
        self._environment = environment
        self._began: tuple[np.ndarray, np.ndarray, bool] | None = None

    def action(self, point: Sequence[float]) -> np.ndarray:
        """The action for a pointer.

        Args:
            point: x and y as fractions of the picture, the height by the wheel in the same unit, and the key of the
                gripper, 1 after an odd number of presses.
        """
        x, y, lift, key = (*point, 0.0, 0.0)[:4]
        environment, at = self._environment, np.array([x, y, lift])
        if self._began is None:
            self._began = at, np.array(environment.hand(), np.float64), environment.closed() != bool(key)
        grabbed, hand, inverted = self._began
        moved = environment.reach * (at - grabbed) @ np.asarray(environment.view, np.float64)
        return environment.action_to(hand + moved, bool(key) != inverted)

    def let_go(self) -> None:
        """Ends a stretch; the next one begins where the hand is then."""
        self._began = None
