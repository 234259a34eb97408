"""Experts for Lift, Can and Square: pick up an object and, in two of the tasks, place it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from closedform.evaluation.robomimic import Robomimic
from closedform.experts.person import HandCommand, Person, above, nearest_turn, object_pose, pointing_down, turned


def lift(environment: Robomimic, rng: np.random.Generator) -> Iterator[HandCommand]:
    """Grasps the cube across two of its faces and lifts it."""
    person = Person(environment, rng)
    cube, axes = object_pose(environment, "cube")
    sides = [pointing_down(sign * axes[:, side]) for side in (0, 1) for sign in (1, -1)]
    grasp = nearest_turn(person.axes, sides)
    at = cube + rng.uniform(-0.006, 0.006, 3)
    yield from person.approach(above(at, rng.uniform(0.05, 0.09)), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.7, care=0.5)
    yield from person.close()
    aside = np.append(rng.normal(0, 0.01, 2), 0.0)
    yield from person.wander(above(at + aside, rng.uniform(0.08, 0.14)), grasp)
    yield from person.hold(20)


def can(environment: Robomimic, rng: np.random.Generator) -> Iterator[HandCommand]:
    """Grasps the can from above, carries it to its bin and drops it there."""
    person = Person(environment, rng)
    at = object_pose(environment, "Can")[0] + (*rng.uniform(-0.006, 0.006, 2), rng.uniform(-0.005, 0.02))
    grasp = turned(pointing_down(np.array([0.0, 1.0])), rng.normal(0, 0.15))
    yield from person.approach(above(at, rng.uniform(0.08, 0.14)), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.8, care=0.5)
    yield from person.close()
    high = max(at[2] + rng.uniform(0.12, 0.2), 1.0)
    yield from person.move((*at[:2], high), grasp, within=0.03, patience=5)
    bin_middle = environment.place("can_bin")
    over = np.array([*(bin_middle[:2] + rng.normal(0, 0.015, 2)), high])
    yield from person.wander(over, grasp, speed=1.3, within=0.02)
    yield from person.move((*over[:2], bin_middle[2] + rng.uniform(0.1, 0.14)), grasp, within=0.02)
    yield from person.open()
    yield from person.move((*over[:2], high), grasp)
    yield from person.hold(20)


def square(environment: Robomimic, rng: np.random.Generator) -> Iterator[HandCommand]:
    """Grasps the nut at its handle, turns it to fit the peg, and lowers it over the peg."""
    person = Person(environment, rng)
    yield from person.hold(int(rng.integers(6, 12)))  # the nut is falling onto the table
    nut, nut_axes = object_pose(environment, "SquareNut")
    handle = environment.site("SquareNut_handle_site")
    along = (handle - nut) / np.linalg.norm(handle - nut)
    across = np.cross((0, 0, 1), along)
    grasp = nearest_turn(person.axes, [pointing_down(across), pointing_down(-across)])
    at = handle + along * rng.uniform(0.003, 0.013)
    yield from person.approach(above(at, rng.uniform(0.06, 0.1)), grasp, within=0.015)
    yield from person.move(at, grasp, speed=0.7, care=0.6, within=0.006)
    yield from person.close()
    yield from person.move(above(at, 0.14 + rng.uniform(0, 0.04)), grasp, within=0.02, patience=8)

    nut, nut_axes = object_pose(environment, "SquareNut")
    yaw = np.arctan2(nut_axes[1, 0], nut_axes[0, 0])
    fit = turned(person.axes, np.round(yaw / (np.pi / 2)) * (np.pi / 2) - yaw)
    peg = environment.place("peg")
    in_hand = person.axes.T @ (nut - person.here)  # the nut's position in the hand's frame
    over = peg - fit @ in_hand
    top = 0.99 + rng.uniform(0, 0.02) - (fit @ in_hand)[2]
    yield from person.wander((*over[:2], top), fit, speed=1.2, within=0.006)
    for _ in range(int(rng.integers(1, 3))):  # look again and correct
        nut, nut_axes = object_pose(environment, "SquareNut")
        yaw = np.arctan2(nut_axes[1, 0], nut_axes[0, 0])
        fit = turned(person.axes, np.round(yaw / (np.pi / 2)) * (np.pi / 2) - yaw)
        correction = np.append((peg - nut)[:2], 0)
        yield from person.move(person.position + correction, fit, speed=0.7, care=0.8, within=0.004)
    lowered = (*person.position[:2], person.position[2] - rng.uniform(0.1, 0.115))
    yield from person.move(lowered, fit, speed=0.8, care=0.8, patience=6)
    yield from person.open()
    yield from person.move(above(person.position, 0.1), fit)
    yield from person.hold(20)
