"""Control: how a runner speaks to the controller, in lockstep or in another process."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from closedform.errors import ArmError
from closedform.robot.clocks import LockstepClock
from closedform.robot.command import Command, Status
from closedform.robot.control_loop import ControlLoop
from closedform.robot.controller import Controller
from closedform.robot.interfaces import Arm


class Control(Protocol):
    """A controller that takes commands and tells its status."""

    def send(self, command: Command) -> None:
        """Gives it the newest command."""
        ...

    def status(self) -> Status:
        """Its newest status; raises `ArmError` with the reason where it ended."""
        ...

    def close(self) -> None:
        """Halts the arm, ends the controller and completes its record."""
        ...


class LockstepControl:
    """The controller on simulated time: it ticks while the clock's time passes, repeatable to the bit.

    Args:
        arm: a simulated one; it is connected here.
        controller: that decides.
        clock: whose passing time ticks the controller.
        folder: for the record of ticks; None keeps none.
    """

    def __init__(self, arm: Arm, controller: Controller, clock: LockstepClock, folder: Path | None = None):
        arm.connect()
        state = arm.state()
        problem = controller.start_problem(state)
        if problem is not None:
            arm.disconnect()
            raise ArmError(f"the arm is not started: {problem}")
        self._loop, self._command, self._closed = ControlLoop(arm, controller, folder), None, False
        self._status = self._loop.tick(clock.now(), None)
        period = controller.config.period
        clock.every(period, self._tick, clock.now() + period)

    def _tick(self, time: float) -> None:
        if not self._closed:
            self._status = self._loop.tick(time, self._command)

    def send(self, command: Command) -> None:
        """Gives it the newest command."""
        self._command = command

    def status(self) -> Status:
        """Its newest status."""
        return self._status

    def close(self) -> None:
        """Stops the arm, which is braked as it sees fit, and completes the record."""
        if not self._closed:
            self._closed = True
            self._loop.close()
