"""Expert for Transport: two hands uncover a hammer, clear a bin for it, and hand the hammer over."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from closedform.evaluation.robomimic import Robomimic
from closedform.experts.person import HandCommand, Person, above, object_pose, pointing_down
from closedform.geometry.so3 import matrix_of_axis_angle

_HANDOVER = np.array([0.0, -0.07, 1.06])  # where the hammer's middle is handed over
# Radians that a hand leans back toward its own base:
_OVER_BIN = -0.17  # for bins are close to the arms' bases
_GIVES, _TAKES = 0.12, 0.33  # where the hammer is handed over, to leave room for the other hand
_PUTS = 0.08  # where the hammer is put in its bin
_HEAD = 0.018  # meters from the middle of the hammer's handle to the middle of the hammer, toward its head
_ASIDE = -0.21  # x where the lid is put
_LONG = 700  # steps, more than an episode has left
_GIVING, _TAKING = 0, 1


def transport(environment: Robomimic, rng: np.random.Generator) -> Iterator[tuple[HandCommand, HandCommand]]:
    """One hand opens the bin and brings the hammer; the other clears the trash and puts the hammer in its bin."""
    return zip(_give(Person(environment, rng, _GIVING)), _take(Person(environment, rng, _TAKING)), strict=False)


def _give(person: Person) -> Iterator[HandCommand]:
    """Puts the lid aside, fetches the hammer, and holds it out until the other hand has it."""
    yield from _uncover(person)
    yield from _fetch(person)
    yield from _hold_out(person)
    yield from person.wait_until(lambda: _has_taken(person.environment), at_most=_LONG)
    yield from _let_go(person)
    yield from person.move(person.position - 0.12 * person.axes[:, 2], speed=0.9, within=0.03, patience=5)
    yield from person.wander((0.0, -0.35, 1.05), pointing_down(np.array([-1.0, 0.0])))
    yield from person.hold(_LONG)


def _take(person: Person) -> Iterator[HandCommand]:
    """Clears the trash, takes the hammer from the other hand, and puts it in the target bin."""
    yield from _clear(person)
    yield from _receive(person)
    yield from person.wait_until(lambda: _has_given(person.environment), at_most=_LONG)
    yield from _deposit(person)
    yield from person.hold(_LONG)


def _uncover(person: Person) -> Iterator[HandCommand]:
    """Takes the lid by its handle and puts it on the table beside the bin."""
    rng = person.rng
    handle, axes = object_pose(person.environment, "lid_handle")
    grasp = _leaning(pointing_down(-axes[:, 0]), _OVER_BIN)
    at = handle + np.array([0.0, rng.uniform(-0.015, 0.015), rng.uniform(-0.002, 0.006)])
    beside = at + np.append(rng.normal(0, 0.004, 2), 0.0)
    yield from person.wander(above(beside, rng.uniform(0.06, 0.09)), grasp, spread=0.015, within=0.015)
    yield from person.move(at, grasp, speed=0.8, care=0.5)
    yield from person.close(steps=8)
    high = at[2] + rng.uniform(0.05, 0.08)
    yield from person.move((*at[:2], high), grasp, within=0.03, patience=5)
    aside = np.array([_ASIDE + rng.uniform(-0.01, 0.01), at[1] + rng.normal(0, 0.008), high])
    yield from person.wander(aside, grasp, speed=1.3, spread=0.02, within=0.03)
    yield from person.move((*aside[:2], at[2] - 0.15 + rng.uniform(0.005, 0.02)), grasp, speed=1.2, within=0.015)
    yield from _let_go(person)
    yield from person.move((*aside[:2], high), grasp, speed=1.2, within=0.04, patience=5)


def _fetch(person: Person) -> Iterator[HandCommand]:
    """Grasps the hammer by the half of its handle on this hand's side, and lifts it out of the bin."""
    rng = person.rng
    hammer, axes = object_pose(person.environment, "payload")
    grasp = _leaning(pointing_down(axes[:, 0]), _OVER_BIN)
    at = hammer - _ahead(axes) * rng.uniform(0.042, 0.057) + np.array([0.0, 0.0, rng.uniform(-0.002, 0.005)])
    yield from person.approach((*at[:2], 1.0 + rng.uniform(0.0, 0.03)), grasp, speed=1.2, within=0.015)
    yield from person.move(at, grasp, speed=0.9, care=0.5, within=0.008)
    yield from person.close()
    off_wall = 0.035 - 0.015 * axes[1, 2]  # the hammer almost touches the bin's wall on this side, most with its head
    out = at + np.array([0.0, off_wall, rng.uniform(0.2, 0.23)])
    yield from person.move(out, grasp, speed=0.9, within=0.03, patience=5)


def _hold_out(person: Person) -> Iterator[HandCommand]:
    """Brings the hammer to the handover point, pointing at the other hand."""
    at = _HANDOVER + person.rng.normal(0, 0.006, 3)
    held = _leaning(pointing_down(np.array([-1.0, 0.0])), _GIVES)
    for move in (person.wander, person.move):  # looks again and corrects
        yield from move(_carrying(person, at, held), held, care=0.5, within=0.01)


def _clear(person: Person) -> Iterator[HandCommand]:
    """Picks up the trash and drops it in the trash bin."""
    rng, environment = person.rng, person.environment
    trash, axes = object_pose(environment, "trash")
    grasp = _leaning(pointing_down(axes[:, 0]), _OVER_BIN)
    at = trash + rng.uniform(-0.005, 0.005, 3)
    yield from person.approach((*at[:2], 0.99 + rng.uniform(0.0, 0.03)), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.9, care=0.5)
    yield from person.close()
    high = 1.0 + rng.uniform(0.0, 0.03)
    yield from person.move((*at[:2], high), grasp, within=0.03, patience=5)
    over = environment.observed()["trash_bin_pos"][:2] + rng.normal(0, 0.015, 2)
    down = _leaning(pointing_down(np.array([1.0, 0.0])), _OVER_BIN)
    yield from person.wander((*over, high), down, speed=1.2, within=0.03)
    yield from person.move((*over, 0.93 + rng.uniform(0.0, 0.03)), down, within=0.03)
    yield from _let_go(person)
    yield from person.move((*over, high), down, within=0.04, patience=5)


def _receive(person: Person) -> Iterator[HandCommand]:
    """Waits above the handover point, and grasps the half of the hammer's handle on this hand's side."""
    rng, environment = person.rng, person.environment
    grasp = _leaning(pointing_down(np.array([1.0, 0.0])), _TAKES)
    apart, back = rng.uniform(0.055, 0.07), rng.uniform(0.09, 0.11)
    yield from person.wander(_HANDOVER + np.array([0.0, apart, 0.0]) - back * grasp[:, 2], grasp, within=0.02)
    yield from person.wait_until(lambda: _is_held_out(environment), at_most=_LONG)
    for short, speed, care, within in ((0.03, 1.0, 0.0, 0.015), (0.0, 0.8, 0.6, 0.005)):
        hammer, axes = object_pose(environment, "payload")
        grasp = _leaning(pointing_down(-axes[:, 0]), _TAKES)
        at = hammer + _ahead(axes) * apart - short * grasp[:, 2]
        yield from person.move(at, grasp, speed=speed, care=care, within=within)
    yield from person.close()


def _deposit(person: Person) -> Iterator[HandCommand]:
    """Moves the hammer over the target bin and lets go of it there."""
    rng, environment = person.rng, person.environment
    side = object_pose(environment, "payload")[1][1, 2]
    goal = environment.observed()["target_bin_pos"] + np.append(rng.normal(0, 0.006, 2), 0.0)
    goal = goal - np.array([0.0, _HEAD * side, 0.0])
    held = _leaning(pointing_down(np.array([1.0, 0.0])), _PUTS)
    for height, move in ((0.22, person.wander), (0.1, person.move)):
        at = above(goal, height + rng.uniform(0.0, 0.02))
        yield from move(_carrying(person, at, held), held, speed=1.1, within=0.02)
    yield from _let_go(person)
    yield from person.move(above(person.position, 0.15), within=0.04)


def _let_go(person: Person) -> Iterator[HandCommand]:
    """Opens the gripper and waits until it is open."""
    yield from person.open(steps=3)
    yield from person.wait_until(lambda: _opening(person.environment, person.hand) > 0.07, at_most=20)


def _carrying(person: Person, at: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """The position of the hand, with axes (3, 3), that brings the grasped hammer to a position."""
    now, position = person.environment.arms[person.hand].pose
    return at - axes @ now.T @ (object_pose(person.environment, "payload")[0] - position)


def _is_held_out(environment: Robomimic) -> bool:
    """Whether the hammer is at the handover point and points at the taking arm."""
    hammer, axes = object_pose(environment, "payload")
    return bool(np.linalg.norm(hammer - _HANDOVER) < 0.03 and abs(axes[1, 2]) > 0.7)


def _has_taken(environment: Robomimic) -> bool:
    """Whether the taking hand has closed on the hammer."""
    near = np.linalg.norm(environment.arms[_TAKING].pose.position - object_pose(environment, "payload")[0]) < 0.13
    return bool(near and _opening(environment, _TAKING) < 0.035)


def _has_given(environment: Robomimic) -> bool:
    """Whether the giving hand has let go of the hammer and moved away."""
    away = environment.arms[_GIVING].pose.position[2] - object_pose(environment, "payload")[0][2] > 0.05
    return bool(away and _opening(environment, _GIVING) > 0.06)


def _opening(environment: Robomimic, hand: int) -> float:
    """The distance between the fingers of a hand, in meters."""
    fingers = environment.observed()[f"robot{hand}_gripper_qpos"]
    return float(fingers[0] - fingers[1])


def _ahead(axes: np.ndarray) -> np.ndarray:
    """The direction (3,) along the hammer's handle from the giving arm to the taking one."""
    return axes[:, 2] * np.sign(axes[1, 2])


def _leaning(axes: np.ndarray, angle: float) -> np.ndarray:
    """The axes (3, 3) of a hand that points down, tilted back toward its own base by an angle."""
    return axes @ matrix_of_axis_angle(np.array([-angle, 0.0, 0.0]))
