"""Expert for ToolHang: inserts the hook frame into its stand and hangs the tool on the hook."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from closedform.evaluation.robomimic import Robomimic
from closedform.experts.person import HandCommand, Person, object_pose
from closedform.geometry.so3 import matrix_of_axis_angle

_GRIP = -0.034  # meters along the frame's rod from its corner to the middle of its grip
_TIP = -0.221  # likewise, to the tip
_ARM = -0.09125  # meters from the frame's corner to the end of the hook's arm
_HOLE = (-0.0931, 0.0, 0.0)  # the middle of the tool's larger hole, in the tool's frame
_MOUNT = (0.0, 0.045, 0.155)  # the mouth of the stand's mount, in the frame of its base
_INSERTED = 0.148  # meters that the tip goes into the mount
_LEAN = 0.61  # radians by which the hand leans along the rod when it grasps the frame
_TOOL_LEAN = 0.35  # likewise, along the handle when it grasps the tool
_TILT = 0.44  # radians of the tool's handle below the horizontal when its hole goes over the hook
_STILL, _STILL_TURN = 0.0005, 0.003  # meters and radians that a hand at rest moves in a step
_HALF_TURN = np.diag([-1.0, -1.0, 1.0])
# The axes of a hand that points down and closes across the tool.
_DOWN_ACROSS = np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])

_Pose = tuple[np.ndarray, np.ndarray]


def tool_hang(environment: Robomimic, rng: np.random.Generator) -> Iterator[HandCommand]:
    """Grasps the frame, sets it upright and lowers it into the mount; then puts the tool's hole over the hook."""
    person = Person(environment, rng)
    yield from person.hold(int(rng.integers(4, 9)))  # frame and tool are falling onto the table
    yield from _plant_frame(person)
    yield from _hang_tool(person)


def _plant_frame(person: Person) -> Iterator[HandCommand]:
    """Grasps the frame at its grip, sets it upright over the mount, lowers it and lets go."""
    rng, environment = person.rng, person.environment
    corner, frame = object_pose(environment, "frame")
    grasp = frame @ _leaning(_LEAN + rng.normal(0, 0.04))
    at = corner + frame @ (0, -0.004, _GRIP + rng.uniform(-0.006, 0.006))
    yield from person.approach(at - grasp[:, 2] * rng.uniform(0.07, 0.1), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.7, care=0.6, within=0.006)
    yield from person.close()
    yield from person.move((*at[:2], rng.uniform(1.1, 1.14)), speed=1.2, within=0.03, patience=5)

    base, stand = object_pose(environment, "base")
    mouth = base + stand @ _MOUNT
    upright = stand @ _HALF_TURN
    over = (mouth - upright @ (0, 0, _TIP - rng.uniform(0.025, 0.035)), upright)
    yield from person.wander(*_carried(person, "frame", over), within=0.01)
    for height in (0.022, 0.014):  # look again and correct
        yield from _settle(person)
        over = (mouth - upright @ (0, 0, _TIP - height), upright)
        yield from person.move(*_carried(person, "frame", over, 0.5), speed=0.7, care=0.9, patience=0)
    yield from _settle(person)
    down = person.position - upright @ (0, 0, height + _INSERTED)
    yield from person.move(down, speed=0.7, care=0.9, patience=10)
    yield from person.open()
    away = person.position - person.axes[:, 2] * rng.uniform(0.08, 0.1)
    yield from person.move(away, speed=0.8, care=0.5, within=0.02)


def _hang_tool(person: Person) -> Iterator[HandCommand]:
    """Grasps the tool at its grip, lowers its hole over the hook's upright end, tilts it under the arm and lets go."""
    rng, environment = person.rng, person.environment
    middle, tool = object_pose(environment, "tool")
    lean = _TOOL_LEAN + rng.normal(0, 0.04)
    grasp = tool @ matrix_of_axis_angle(np.array([0.0, -lean, 0.0])) @ _DOWN_ACROSS
    at = middle + tool[:, 0] * rng.uniform(-0.01, 0.02)
    yield from person.move((*person.position[:2], rng.uniform(1.2, 1.24)), within=0.04, patience=4)
    yield from person.wander((*at[:2], rng.uniform(1.06, 1.12)), grasp, speed=1.3, within=0.04)
    yield from person.approach(at - grasp[:, 2] * rng.uniform(0.06, 0.09), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.7, care=0.6, within=0.006)
    yield from person.close()
    yield from person.move((*at[:2], rng.uniform(1.14, 1.18)), speed=1.2, within=0.03, patience=5)

    tilt = _TILT + rng.normal(0, 0.03)
    over = _hung(environment, tilt, (0.003, rng.uniform(0.035, 0.045)))
    yield from person.wander(*_carried(person, "tool", over), within=0.01)
    for height in (0.03, 0.025):  # look again and correct
        yield from _settle(person)
        over = _hung(environment, tilt, (0.003, height))
        yield from person.move(*_carried(person, "tool", over, 0.5), speed=0.7, care=0.9, patience=0)
    yield from _settle(person)
    for further, place in ((0.0, (0.004, 0.005)), (0.26, (0.005, 0.002)), (0.52, (0.01, -0.001))):
        hung = _hung(environment, tilt + further, place)
        yield from person.move(*_carried(person, "tool", hung, 0.5), speed=0.6, care=0.9, within=0.004, patience=8)
    yield from person.open()
    yield from person.move(person.position - person.axes[:, 2] * 0.1, speed=0.8)
    yield from person.hold(20)


def _leaning(angle: float) -> np.ndarray:
    """The axes, in the frame's coordinates, of a hand that grasps the rod and leans by an angle toward the tip."""
    sin, cos = np.sin(angle), np.cos(angle)
    return np.array([[1.0, 0.0, 0.0], [0.0, -sin, cos], [0.0, -cos, -sin]])


def _hung(environment: Robomimic, tilt: float, place: tuple[float, float]) -> _Pose:
    """The pose of the tool with its hole around the hook.

    Args:
        environment: the scene.
        tilt: of the handle below the horizontal, in radians.
        place: of the center of the hole, in meters inward from the end of the hook's arm and above it.
    """
    corner, frame = object_pose(environment, "frame")
    axes = frame @ _HALF_TURN @ matrix_of_axis_angle(np.array([0.0, tilt, 0.0]))
    return corner + frame @ (_ARM + place[0], 0.0, place[1]) - axes @ _HOLE, axes


def _settle(person: Person) -> Iterator[HandCommand]:
    """Stays until the hand has come to rest."""
    still = 0
    for _ in range(30):
        axes, hand = person.environment.arms[person.hand].pose
        yield from person.hold(1, care=0.9)
        turned, moved = person.environment.arms[person.hand].pose
        at_rest = np.linalg.norm(moved - hand) < _STILL and np.linalg.norm(turned - axes) < _STILL_TURN
        still = still + 1 if at_rest else 0
        if still == 3:
            break


def _carried(person: Person, name: str, goal: _Pose, allowance: float = 0.0) -> _Pose:
    """The target of the hand that brings its grasped object to a goal.

    Args:
        person: the operator of the hand.
        name: of the object.
        goal: the goal pose of the object.
        allowance: the fraction of the hand's current sag below its target to add to the next target.
    """
    hand_axes, hand = person.environment.arms[person.hand].pose
    position, axes = object_pose(person.environment, name)
    turn = goal[1] @ axes.T
    return goal[0] + turn @ (hand - position) + allowance * (person.position - hand), turn @ hand_axes
