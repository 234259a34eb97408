"""Control process: the controller and the arm in a process of their own, on the wall clock."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from closedform.errors import ArmError, ClosedFormError
from closedform.robot.clocks import WallClock
from closedform.robot.command import (
    COMMAND_SIZE,
    STATUS_SIZE,
    Command,
    Mode,
    Status,
    pack_command,
    pack_status,
    unpack_command,
    unpack_status,
    without_waypoints,
)
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.control_loop import ControlLoop
from closedform.robot.controller import Controller
from closedform.robot.interfaces import Arm, Clock
from closedform.robot.kinematics import Kinematics
from closedform.robot.mailbox import Mailbox
from closedform.robot.realtime import become_realtime

_STARTED = 60.0  # seconds that connecting to an arm may take
_ENDED = 10.0  # seconds that halting and completing the record may take


class ControlSpec(NamedTuple):
    """What a control process is made of; every part can be sent to another process.

    Attributes:
        make_arm: makes the arm, there.
        kinematics, config, workspace: of the controller.
        folder: for the record of ticks; None keeps none.
        realtime: whether to ask for real-time scheduling.
    """

    make_arm: Callable[[], Arm]
    kinematics: Kinematics
    config: ControlConfig
    workspace: Workspace
    folder: Path | None = None
    realtime: bool = True


class ControlProcess:
    """A controller in a process of its own: whatever happens to this one, the arm comes to a smooth halt.

    The process owns the arm. It reads commands from shared memory and writes its status there; nobody waits for
    anybody (see `Mailbox`). If this process is stopped, hangs or is killed, no fresh plans arrive, and the controller
    halts the arm. If this process is gone, the other one completes its record and ends.

    Args:
        spec: the arm, how it is controlled, and where ticks are recorded.

    Attributes:
        note: what to know about the scheduling, in one line, or "".
    """

    def __init__(self, spec: ControlSpec):
        self._commands, self._statuses = Mailbox(COMMAND_SIZE), Mailbox(STATUS_SIZE)
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        names = (self._commands.name, self._statuses.name)
        self._process = context.Process(  # a daemon is told to end (SIGTERM) when this process ends: it halts the arm
            target=_run, args=(spec, names, theirs, os.getpid()), name="closedform-control", daemon=True
        )
        self._pipe, self._ended = ours, ""
        try:
            self._process.start()
            theirs.close()
            self.note = self._first_word()
        except BaseException:
            self._clean_up()
            raise

    def _first_word(self) -> str:
        if not self._pipe.poll(_STARTED):
            raise ArmError(f"the arm: expected to be connected within {_STARTED:g} s, found no answer")
        try:
            kind, text = self._pipe.recv_bytes().decode().split(":", 1)
        except EOFError:
            raise ArmError("the control process ended before it had connected to the arm") from None
        if kind != "ready":
            raise ArmError(text)
        return text

    @property
    def pid(self) -> int | None:
        """The number of the process."""
        return self._process.pid

    def send(self, command: Command) -> None:
        """Gives it the newest command."""
        self._commands.write(pack_command(command))

    def status(self) -> Status:
        """Its newest status; raises `ArmError` where the process ended."""
        if not self._process.is_alive():
            with contextlib.suppress(EOFError, OSError):
                while self._pipe.poll():
                    self._ended = self._pipe.recv_bytes().decode().split(":", 1)[1]
            raise ArmError(self._ended or "the control process ended")
        found = self._statuses.read()
        assert found is not None  # the first status is written before the process says that it is ready
        return unpack_status(found[1])

    def close(self) -> None:
        """Halts the arm, smoothly, and ends the process, which completes its record."""
        if self._process.is_alive():
            sequence = 0 if (last := self._statuses.read()) is None else unpack_status(last[1]).sequence
            self.send(without_waypoints(Mode.END, sequence + 1, WallClock().now(), reason="the run ended"))
            self._process.join(_ENDED)
        self._clean_up()

    def _clean_up(self) -> None:
        if self._process.pid is not None:
            self._process.join(1.0)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self._pipe.close()
        self._commands.close()
        self._statuses.close()


def _run(spec: ControlSpec, names: tuple[str, str], pipe: Connection, parent: int) -> None:
    """What the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner halts the arm, and then ends this process
    commands, statuses = Mailbox(COMMAND_SIZE, names[0]), Mailbox(STATUS_SIZE, names[1])
    try:
        loop, note = _start(spec)
    except ClosedFormError as error:
        pipe.send_bytes(f"failed:{error}".encode())
        return
    try:
        clock = WallClock()
        statuses.write(pack_status(loop.tick(clock.now(), None)))
        pipe.send_bytes(f"ready:{note}".encode())
        terminated = _on_termination(loop.controller)
        drive(loop, clock, commands, statuses, lambda: terminated() or os.getppid() != parent)
    except ClosedFormError as error:
        _tell(pipe, str(error))
    finally:
        try:
            loop.close()
        except ClosedFormError as error:
            _tell(pipe, str(error))
        commands.close()
        statuses.close()


def _on_termination(controller: Controller) -> Callable[[], bool]:
    """Halts the arm when the system asks the process to end (SIGTERM); tells whether it did."""
    asked = []

    def halt(*_: object) -> None:
        asked.append(True)
        controller.halt("the control process was told to end")

    signal.signal(signal.SIGTERM, halt)
    return lambda: bool(asked)


def _start(spec: ControlSpec) -> tuple[ControlLoop, str]:
    controller = Controller(spec.kinematics, spec.config, spec.workspace)
    arm = spec.make_arm()
    arm.connect()
    try:
        problem = controller.start_problem(arm.state())
        if problem is not None:
            raise ArmError(f"the arm is not started: {problem}")
        loop = ControlLoop(arm, controller, spec.folder)  # its thread writes to disk, at ordinary priority
    except BaseException:
        arm.disconnect()
        raise
    return loop, (become_realtime() or "") if spec.realtime else ""


def drive(loop: ControlLoop, clock: Clock, commands: Mailbox, statuses: Mailbox, orphaned: Callable[[], bool]) -> None:
    """Ticks until it is told to end, or nobody is left to tell it, and the arm stands still.

    A tick that is late is not made up for: the next one is due a period after the present one was due, or now.
    """
    period = loop.controller.config.period
    due = clock.now()
    while True:
        due = max(due + period, clock.now())
        clock.sleep_until(due)
        message = commands.read()
        command = None if message is None else unpack_command(message[1])
        now = clock.now()
        status = loop.tick(now, command, now - due)
        statuses.write(pack_status(status))
        ending = command is not None and command.mode == Mode.END
        if not status.moving and (ending or (loop.ticks % 20 == 0 and orphaned())):
            return


def _tell(pipe: Connection, text: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens
        pipe.send_bytes(f"ended:{text}".encode())
