"""Commander: numbers the commands of a runner, and lets nothing overtake a halt."""

from __future__ import annotations

import threading

import numpy as np

from closedform.errors import ArmError
from closedform.robot.command import MOST_WAYPOINTS, Command, Mode, Status, without_waypoints
from closedform.robot.control import Control
from closedform.robot.interfaces import Clock

_NEWS = 1.0  # seconds after which the controller's status is too old; it halts by itself when it goes on


class Commander:
    """Speaks to the controller for several threads.

    Only the newest command counts, so that waypoints sent right after a halt would undo it before the controller saw
    it. Therefore waypoints are not sent from a halt until `acknowledge`, or while the arm is held.

    Attributes:
        halted: why it was told to halt, or "".
    """

    def __init__(self, control: Control, clock: Clock):
        self._control, self._clock = control, clock
        self._lock = threading.Lock()
        status = control.status()
        self._sequence, self._resumes = status.sequence, status.stops
        self.halted, self._held = "", False

    @property
    def held(self) -> bool:
        """Whether the arm is held, by `hold`."""
        return self._held

    def newest(self) -> Status:
        """The controller's newest status, however old it is."""
        return self._control.status()

    def status(self) -> Status:
        """The controller's newest status; an `ArmError` if it is too old, as when its process was stopped."""
        status = self._control.status()
        age = self._clock.now() - status.time
        if age > _NEWS:
            raise ArmError(f"no news of the controller for {age:.1f} s: was its process stopped?")
        return status

    def stopped(self, status: Status) -> bool:
        """Whether the controller halted since `acknowledge`."""
        return status.stops > self._resumes

    def acknowledge(self) -> None:
        """Takes note of all halts up to now: the next waypoints end them."""
        with self._lock:
            self._resumes = self._control.status().stops
            self.halted, self._held = "", False

    def follow(self, issued: float, times: np.ndarray, points: np.ndarray, alarm: str = "") -> Command | None:
        """Sends waypoints (n,), (n, 3); returns None if the arm was told to stand still meanwhile."""
        with self._lock:
            if self.halted or self._held:
                return None
            times, points = times[:MOST_WAYPOINTS], points[:MOST_WAYPOINTS]
            command = Command(self._next(), issued, Mode.RUN, times, points, alarm, self._resumes)
            self._control.send(command)
            return command

    def stand(self) -> None:
        """Stands still until the next waypoints."""
        with self._lock:
            if not self.halted:
                self._still(Mode.HOLD, "")

    def hold(self, held: bool = True) -> None:
        """Stands still, and sends no waypoints until `hold(False)`."""
        with self._lock:
            self._held = held
            if not self.halted:
                self._still(Mode.HOLD, "")

    def recover(self) -> None:
        """Unlocks an arm that stopped by itself; it stands still until `acknowledge` and the next waypoints."""
        with self._lock:
            self._still(Mode.RECOVER, "")

    def halt(self, reason: str) -> bool:
        """Halts for a reason; tells whether that was the first one."""
        with self._lock:
            if self.halted:
                return False
            self.halted = reason
            self._still(Mode.HALT, reason)
            return True

    def _still(self, mode: Mode, reason: str) -> None:
        self._control.send(
            without_waypoints(mode, self._next(), self._clock.now(), resumes=self._resumes, reason=reason)
        )

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence
