"""Command: what the controller is told; status: what it tells."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from closedform.robot.interfaces import ArmState

MOST_WAYPOINTS = 64


class Mode(IntEnum):
    """What the controller does.

    Attributes:
        HOLD: stands still, or brakes until it does; follows waypoints as soon as it is told to.
        RUN: follows waypoints.
        HALT: stopped for a reason; stands still, or brakes until it does, until somebody resumes.
        RECOVER: stands still, and unlocks an arm that stopped by itself; only asked for.
        END: stops and ends the controller's process; only asked for.
    """

    HOLD = 0
    RUN = 1
    HALT = 2
    END = 3
    RECOVER = 4


class Command(NamedTuple):
    """What the controller is told; the newest one counts.

    Attributes:
        sequence: counts the commands.
        issued: when the plan was made, in seconds of the controller's clock.
        mode: what to do.
        times: (n,) when to be at each waypoint, ascending.
        points: (n, 3) waypoints in meters along x, y and up of the workplane.
        alarm: what worries the policy or perception, or ""; an alarm that lasts halts the arm.
        resumes: the number of stops that the sender knows of; a command that does not know of the newest stop does not
            end it.
        reason: why to halt, for the record.
    """

    sequence: int
    issued: float
    mode: Mode
    times: np.ndarray
    points: np.ndarray
    alarm: str = ""
    resumes: int = 0
    reason: str = ""


def without_waypoints(mode: Mode, sequence: int, issued: float, *, resumes: int = 0, reason: str = "") -> Command:
    """A command to hold, halt or end."""
    return Command(sequence, issued, mode, np.zeros(0), np.zeros((0, 3)), "", resumes, reason)


class Status(NamedTuple):
    """What the controller says after each tick.

    Attributes:
        time: of the tick.
        ticks: how many there were.
        mode: what it does.
        moving: whether its commands still move the arm.
        reason: why it halted, or "".
        stops: how many times it halted.
        sequence: of the command it follows; 0 before the first.
        joints: (6,) commanded.
        state: of the arm, as measured.
        lateness: seconds after the tick was due.
    """

    time: float
    ticks: int
    mode: Mode
    moving: bool
    reason: str
    stops: int
    sequence: int
    joints: np.ndarray
    state: ArmState
    lateness: float = 0.0


_TEXT = 240  # bytes of a text in a message
_COMMAND = struct.Struct(f"=QdIIQ{_TEXT}s{_TEXT}s")
_STATUS = struct.Struct(f"=dQI?QQdd{_TEXT}s{_TEXT}s18d")
COMMAND_SIZE = _COMMAND.size + MOST_WAYPOINTS * 4 * 8
STATUS_SIZE = _STATUS.size


def pack_command(command: Command) -> bytes:
    """A command as a message."""
    times, points = (np.asarray(numbers, np.float64)[:MOST_WAYPOINTS] for numbers in (command.times, command.points))
    head = _COMMAND.pack(
        command.sequence,
        command.issued,
        command.mode,
        len(times),
        command.resumes,
        _packed(command.alarm),
        _packed(command.reason),
    )
    return head + times.tobytes() + points.tobytes()


def unpack_command(message: bytes) -> Command:
    """The command that `pack_command` packed."""
    sequence, issued, mode, n, resumes, alarm, reason = _COMMAND.unpack_from(message)
    numbers = np.frombuffer(message, np.float64, 4 * n, _COMMAND.size)
    points = numbers[n:].reshape(n, 3)
    return Command(sequence, issued, Mode(mode), numbers[:n], points, _text(alarm), resumes, _text(reason))


def pack_status(status: Status) -> bytes:
    """A status as a message."""
    return _STATUS.pack(
        status.time,
        status.ticks,
        status.mode,
        status.moving,
        status.stops,
        status.sequence,
        status.lateness,
        status.state.time,
        _packed(status.reason),
        _packed(status.state.stopped or ""),
        *status.joints,
        *status.state.joints,
        *status.state.velocities,
    )


def unpack_status(message: bytes) -> Status:
    """The status that `pack_status` packed."""
    time, ticks, mode, moving, stops, sequence, lateness, measured, reason, stopped, *numbers = _STATUS.unpack(message)
    joints, angles, velocities = np.array(numbers).reshape(3, 6)
    state = ArmState(measured, angles, velocities, _text(stopped) or None)
    return Status(time, ticks, Mode(mode), moving, _text(reason), stops, sequence, joints, state, lateness)


def _packed(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:_TEXT]


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "ignore")
