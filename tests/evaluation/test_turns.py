"""Turns on Push-T: which way round, when they can be judged, and what is left out of demonstrations."""

import numpy as np
import pytest

from closedform import Demos
from closedform.evaluation.turns import CENTER, Turn, clockwise_steps, find_turns


def circling(degrees, n=40, radius=40.0, block=(CENTER, CENTER)):
    """Observations of an agent that goes round the center; positive degrees are clockwise on the screen."""
    angles = np.radians(np.linspace(0, degrees, n))
    # On the screen y points down: clockwise from the right is downwards.
    agent = CENTER + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([agent, np.tile([*block, np.pi / 4], (n, 1))], axis=1)


def test_turns_are_clockwise_as_one_looks_at_the_screen():
    right_then_down = circling(90)
    assert right_then_down[-1, 1] > right_then_down[0, 1]
    turn = find_turns(right_then_down)[0]
    assert turn.clockwise and turn.step == 0 and turn.n_steps == 30
    assert turn.angle == pytest.approx(np.radians(90 * 30 / 39))
    assert not find_turns(circling(-90))[0].clockwise
    assert find_turns(circling(600))[0].angle == pytest.approx(np.radians(600 * 30 / 39))  # more than a whole turn


def test_turns_begin_near_the_head_of_a_block_at_its_end_position():
    assert not find_turns(circling(90, radius=60))
    assert not find_turns(circling(90, block=(CENTER + 31, CENTER)))
    assert find_turns(circling(90, block=(CENTER + 9, CENTER)))


def test_a_turn_that_the_episode_cuts_short_is_not_judged():
    (cut,) = find_turns(circling(5, n=10))
    assert not cut.decided
    assert find_turns(circling(30, n=10))[0].decided
    assert Turn(0, 0.0, 30).decided and not Turn(0, 0.0, 30).clockwise


def test_what_is_wanted_is_all_but_the_wrong_way_round():
    away = circling(20, n=50, radius=150)
    demos = Demos([(o, o[:, :2]) for o in (circling(120, n=60), circling(-120, n=60), away)])
    keep = np.split(clockwise_steps(demos), [60, 120])
    assert keep[0][:30].all() and not keep[1].any() and keep[2].all()
    wanted = demos.where(clockwise_steps(demos))
    assert wanted.n_steps == sum(k.sum() for k in keep) and len(wanted) == 2
