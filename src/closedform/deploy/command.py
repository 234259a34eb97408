"""Command: what the controller is told; status: what it tells."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from closedform.deploy.interfaces import ArmState

MOST_WAYPOINTS = 64


class Mode(IntEnum):
    """What the controller does.

    Attributes:
        HOLD: stands still, or brakes until it does; follows waypoints as soon as it is told to.
        RUN: follows waypoints.
        HALT: stopped for a reason; stands still, or brakes until it does, until somebody resumes.
        END: stops and ends the controller's process; only asked for, never a state of the controller.
    """

    HOLD = 0
    RUN = 1
    HALT = 2
    END = 3


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
