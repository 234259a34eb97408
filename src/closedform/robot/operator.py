"""Operator: a person who watches a run, and leads the tool by hand while they hold it on the camera's picture."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from closedform.geometry.layout import Layout
from closedform.robot.arm_setup import position_columns
from closedform.robot.interfaces import Estimate
from closedform.robot.runner import Runner
from closedform.robot.workplane import Workplane
from closedform.vision.marker_tracker import MarkerTracker
from closedform.vision.pinhole import onto_plane

SPEED = 0.2  # meters a second that a target is led at
PATIENCE = 0.5  # seconds without news of the person, after which the tool stands still


class Operator:
    """Passes on what a person does to the runner of the present episode; does nothing between episodes.

    All methods may be called at any moment, from any thread. `lead` takes over, so that the tool goes to where the
    picture was touched, at no more than `SPEED` and within the workspace; `release` hands back to the policy. Without
    news of a person who leads, the tool stands still until they go on or release it.

    Args:
        tracker: knows where the camera is.
        plane: that the tool moves on.
        height: of the tool above it, in meters.
        layout, hand: where an observation has the hand's position.
        rate: steps per second.
        now: a clock, in seconds.
    """

    def __init__(
        self,
        tracker: MarkerTracker,
        plane: Workplane,
        height: float,
        layout: Layout,
        hand: str,
        rate: float = 10.0,
        now: Callable[[], float] = time.monotonic,
    ):
        self._runner: Runner | None = None
        self._tracker, self._plane, self._height = tracker, plane, height
        self._columns = position_columns(layout, hand)
        self._reach = SPEED / rate / plane.scale
        self._now, self._lock = now, threading.Lock()
        self._leads, self._target, self._heard = False, np.zeros(2), -np.inf
        self._at: np.ndarray | None = None

    @property
    def runs(self) -> bool:
        """Whether there is an episode."""
        return self._runner is not None

    @contextlib.contextmanager
    def attached(self, runner: Runner) -> Iterator[None]:
        """Watches an episode of a runner."""
        with self._lock:
            self._runner, self._leads = runner, False
        try:
            yield
        finally:
            self._runner = None

    def lead(self, x: float, y: float) -> None:
        """Leads the tool toward a pixel of the picture; takes over first, unless that was done."""
        target = self.position(x, y)
        with self._lock:
            runner, begins = self._runner, not self._leads
            if runner is None or target is None:
                return
            self._leads, self._target, self._heard = True, target, self._now()
            if begins:
                self._at = None
                runner.take_over(self.act)

    def release(self) -> None:
        """Hands back to the policy, if the tool was led."""
        with self._lock:
            runner, ends, self._leads = self._runner, self._leads, False
            if runner is not None and ends:
                runner.hand_back()

    def pause(self) -> None:
        """Halts the arm; it waits."""
        if (runner := self._runner) is not None:
            runner.pause()

    def resume(self) -> None:
        """Lets the arm go on."""
        if (runner := self._runner) is not None:
            runner.resume()

    def stop(self) -> None:
        """Ends the episode."""
        if (runner := self._runner) is not None:
            runner.stop()

    def act(self, estimate: Estimate) -> np.ndarray | None:
        """The action (2,) of a person who leads; None to stand still. See `Runner.take_over`."""
        with self._lock:
            target, silent = self._target, self._now() - self._heard > PATIENCE
        if silent:
            self._at = None
            return None
        here = self._at
        if here is None:
            here = target if self._columns is None else estimate.observation[self._columns]
        move = target - here
        far = float(np.linalg.norm(move))
        self._at = here + move * min(1.0, self._reach / far if far else 1.0)
        return self._at

    def position(self, x: float, y: float) -> np.ndarray | None:
        """Where on the workplane (2,), in the policy's units, a pixel shows the tip; None if it shows no such place."""
        up = self._plane.to_base(np.array([0.0, 0.0, self._height]))[2]
        there = onto_plane(self._tracker.intrinsics, self._tracker.camera, np.array([[x, y]]), np.array([up]))[0]
        if not np.isfinite(there).all():
            return None
        return self._plane.to_positions(self._plane.from_base(np.array([*there, up])))
