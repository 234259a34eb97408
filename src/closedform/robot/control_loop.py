"""Control loop: reads the newest command and the arm, ticks the controller, moves the arm and keeps the record."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from closedform.demos.recorder import Recorder
from closedform.errors import ArmError, ClosedFormError
from closedform.geometry.layout import Entry, Layout
from closedform.robot.command import Command, Mode, Status
from closedform.robot.controller import Controller
from closedform.robot.interfaces import Arm

TICK_OBSERVATIONS = Layout((Entry("other", 2), Entry("other", 6), Entry("other", 6)))
TICK_ACTIONS = Layout((Entry("other", 6), Entry("other", 4)))


class ControlLoop:
    """One arm and its controller, tick by tick, in whichever process and on whichever clock.

    Every tick is recorded, as episodes that `load_demos` reads. Observations: the time of the tick, its lateness, the
    measured joints (6) and their velocities (6). Actions: the commanded joints (6), the mode, the number of stops, the
    sequence of the command that was followed, and 1 if the joints were sent.

    Args:
        arm: connected.
        controller: that decides.
        folder: for the record of ticks; None keeps none.
    """

    def __init__(self, arm: Arm, controller: Controller, folder: Path | None = None):
        self.arm, self.controller = arm, controller
        self.ticks = 0
        rate = 1 / controller.config.period
        self._recorder = None if folder is None else Recorder(folder, TICK_OBSERVATIONS, TICK_ACTIONS, rate=rate)
        if self._recorder is not None:
            self._recorder.begin()
        self._failing, self._recovered = False, 0

    def tick(self, time: float, command: Command | None, lateness: float = 0.0) -> Status:
        """One tick."""
        controller = self.controller
        if command is not None and command.mode == Mode.RECOVER and command.sequence != self._recovered:
            self._recovered = command.sequence
            self._recover()
        state = self.arm.state()
        decided = controller.tick(time, command, state)
        if decided.send:
            self.arm.servo(decided.joints, controller.config.period)
        self.ticks += 1
        status = Status(
            time,
            self.ticks,
            controller.mode,
            controller.moving,
            controller.reason,
            controller.stops,
            controller.sequence,
            decided.joints,
            state,
            lateness,
        )
        self._record(status, decided.send)
        return status

    def _recover(self) -> None:
        """Unlocks the arm, which may take seconds; it stands still meanwhile."""
        try:
            self.arm.recover()
        except ArmError as error:
            self.controller.refuse(str(error))

    def _record(self, status: Status, sent: bool) -> None:
        if self._recorder is None or self._failing or not np.isfinite(status.state.joints).all():
            return
        state = status.state
        try:
            self._recorder.append(
                [status.time, status.lateness, *state.joints, *state.velocities],
                [*status.joints, status.mode, status.stops, status.sequence, sent],
            )
        except ClosedFormError as error:  # a full disk must not stop the arm at once, but it must stop
            self._failing = True
            self.controller.halt(f"the record cannot be written: {error}")

    def close(self) -> None:
        """Stops the arm, disconnects it and completes the record."""
        try:
            self.arm.stop()
        finally:
            try:
                self.arm.disconnect()
            finally:
                if self._recorder is not None:
                    recorder, self._recorder = self._recorder, None
                    try:
                        recorder.end(keep=self.ticks > 0)
                    finally:
                        recorder.close()
