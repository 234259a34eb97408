"""Recorded demonstrations have the environment's rate and show how to stay where the task is done."""

import numpy as np
import pytest

from closedform import Layout
from closedform.errors import DataError
from closedform.evaluation import record
from closedform.evaluation.environment import StepResult


class Line:
    """A point on a line that has to get to 1."""

    observation_layout = action_layout = Layout.plain(1)
    max_steps, rate = 40, 20.0

    def __init__(self, goes_on: bool = True):
        self.goes_on = goes_on

    def reset(self, seed):
        self.x, self.there = -0.1 * seed, False
        return np.array([self.x])

    def step(self, action):
        if self.there and not self.goes_on:
            raise RuntimeError("the episode is over")
        self.x = min(self.x + float(action[0]), 1.0)
        self.there = self.x > 1 - 1e-9
        return StepResult(np.array([self.x]), None, self.there, self.there)


def forward(observation):
    return [0.1]


def test_the_rate_is_that_of_the_environment_and_half_a_second_follows_success():
    demos = record(Line(), forward, range(3))
    assert demos.rate == 20.0
    assert [len(episode) for episode in demos] == [20, 21, 22]  # 10 + 10 steps from 0
    assert np.count_nonzero(np.isclose(demos[0].observations[:, 0], 1)) == 10
    assert [len(episode) for episode in record(Line(), forward, range(3), beyond=0)] == [10, 11, 12]


def test_what_cannot_go_on_ends_at_success_and_a_limit_ends_the_rest():
    assert [len(episode) for episode in record(Line(goes_on=False), forward, [0])] == [10]

    def finished(observation):
        if observation[0] > 1 - 1e-9:
            raise StopIteration
        return forward(observation)

    assert len(record(Line(), finished, [0])[0]) == 10
    limited = Line()
    limited.max_steps = 15
    assert len(record(limited, forward, [0])[0]) == 15


def test_failures_before_success_are_told():
    with pytest.raises(DataError, match="expected actions of 1 numbers, found shape"):
        record(Line(), lambda _: [1.0, 2.0], [0])
    with pytest.raises(DataError, match="expected an episode that accomplishes the task, found none in 2"):
        record(Line(), lambda _: [-0.1], range(2))
    assert len(record(Line(), lambda _: [-0.1], [0], successes=False)[0]) == 40
