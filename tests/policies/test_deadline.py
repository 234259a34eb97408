"""With a deadline, diffusion stops early at a step boundary, says so, and returns the best chunk so far.

No time is measured here: the clock is one that the test sets. Whether plans are late on a real machine is measured by
`make bench` (benchmarks/realtime.py).
"""

import math
import pickle

import numpy as np
import pytest

from closedform import ClosedFormPolicy, ClosedFormWarning, NearestNeighborPolicy
from closedform.diffusion.denoiser import ClosedForm
from closedform.diffusion.sampler import euler
from closedform.errors import ConfigError
from closedform.policies.deadline import FINISH_MARGIN, FORGETTING, Deadline, seconds_not_cut
from closedform.policies.loop_memory import LoopMemory
from closedform.retrieval.penalty import Penalty
from tests.conftest import random_demos

LONG = 60.0  # seconds; no plan here takes as long


class Clock:
    """A clock that goes on by some seconds whenever it is read, or is set."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture(scope="module")
def demos():
    return random_demos(np.random.default_rng(0), 6, 60, 3, 2)


def policy_of(demos, n_diffusion_steps=30, **parameters):
    return ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=n_diffusion_steps, **parameters)


def denoised_after(policy, plan, n_steps):
    """What the sampler of `diffusion/` had denoised after so many steps, in the robot's units."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1, policy.model.transfer.chunk_size))
    denoiser, steps = policy.denoiser(np.zeros(3), seed=rng), []
    n = policy.config.n_diffusion_steps
    euler(denoiser, policy.config.make_process(), noise, n_steps=n, callback=steps.append)
    offset, scale = policy.model.transfer.normalization(plan.choice)
    return steps[n_steps - 1].denoised[0].reshape(4, -1) / scale + offset


def test_without_a_deadline_all_steps_are_taken(both_ways, demos):
    plan = policy_of(demos).plan(np.zeros(3), seed=0)
    assert plan.complete and plan.n_steps == 30
    far = policy_of(demos, deadline=LONG).plan(np.zeros(3), seed=0)
    assert far.complete and far.n_steps == 30
    np.testing.assert_array_equal(far.actions, plan.actions)
    assert NearestNeighborPolicy(demos, n_action_steps=4).plan(np.zeros(3)).complete


def test_one_that_has_passed_leaves_one_step(both_ways, demos):
    """After the first step, from pure noise, the best chunk is the average with the observation kernel's weights."""
    with pytest.warns(ClosedFormWarning, match="plans will be late"):
        policy = policy_of(demos, deadline=1e-9)
    plan = policy.plan(np.zeros(3), seed=0)
    assert not plan.complete and plan.n_steps == 1
    np.testing.assert_allclose(plan.actions, denoised_after(policy, plan, 1), atol=1e-6)
    assert plan.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("stop_at", [-math.inf, 0.0, math.inf])
def test_compiled_code_stops_by_the_time_it_is_given(demos, stop_at):
    """The clock that it reads counts up from when the machine was started."""
    policy = policy_of(demos)
    windows = policy.windows(np.zeros((2, 3)))
    rng, options = np.random.default_rng(0), {"explain": True, "stop_at": stop_at}
    made = policy._generate_compiled(policy.model, windows, 2, rng, Penalty.none(), **options)
    assert (made.n_steps == (30 if stop_at == math.inf else 1)).all()
    assert np.isnan(made.ended).all() == (stop_at == math.inf)
    assert made.mixed.all()
    np.testing.assert_allclose(made.weights.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("n_steps", [1, 7, 29])
def test_the_steps_before_it_are_those_without_one(demos, monkeypatch, n_steps):
    """What is returned after n steps is what the sampler had denoised by then."""
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "1")
    policy = policy_of(demos, deadline=LONG)
    policy._deadline = Deadline(n_steps + 0.5, Clock(tick=1.0))  # one second for the plan to begin, one for each step
    plan = policy.plan(np.zeros(3), seed=0)
    assert plan.n_steps == n_steps + 1 - (n_steps + 1 > 30)
    assert plan.complete == (plan.n_steps == 30)
    np.testing.assert_allclose(plan.actions, denoised_after(policy, plan, plan.n_steps), atol=1e-9)


def test_time_to_finish_is_learned_and_held_back():
    clock = Clock()
    deadline = Deadline(1.0, clock)
    assert deadline.stop_at(5.0) == 6.0
    clock.now = 10.2
    deadline.finished(10.0)
    deadline.remembered(10.1)
    held_back = FINISH_MARGIN * (0.2 + 0.1)
    assert deadline.stop_at(20.0) == pytest.approx(21.0 - held_back)
    for _ in range(10):  # plans that took no time to finish
        deadline.finished(clock.now)
        deadline.remembered(clock.now)
    assert deadline.reserve == pytest.approx(held_back * FORGETTING**10)
    deadline.finished(clock.now - 7.0)
    assert deadline.reserve == 0.5  # never more than half
    assert Deadline(None, clock).stop_at(5.0) == Deadline(1.0, clock).stop_at(None) == math.inf


def test_a_plan_is_ready_when_its_time_is_over(demos, monkeypatch):
    """A step takes 10 ms, bringing a plan into the robot's units 200 ms and remembering it 100 ms; it may take 1 s."""
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "1")
    clock = Clock()
    policy = policy_of(demos, n_diffusion_steps=200, deadline=LONG)
    agent = policy.agent(seed=0)
    policy._deadline = Deadline(1.0, clock)

    def taking(seconds, function):
        def slow(*arguments):
            clock.now += seconds
            return function(*arguments)

        return slow

    monkeypatch.setattr(ClosedForm, "__call__", taking(0.01, ClosedForm.__call__))
    monkeypatch.setattr(ClosedFormPolicy, "to_robot", taking(0.2, ClosedFormPolicy.to_robot))
    monkeypatch.setattr(LoopMemory, "remember", taking(0.1, LoopMemory.remember))
    took, steps = [], []
    for _ in range(5):
        start = clock.now
        plan = agent.plan(np.zeros(3))
        took.append(clock.now - start)
        steps.append(plan.n_steps)
        assert not plan.complete
    assert took[0] == pytest.approx(1.3) and steps[0] == 100  # nothing was known yet
    assert max(took[1:]) <= 1.0 and min(steps[1:]) >= 50  # and the time there is is used


def test_it_survives_being_copied_to_another_process(demos):
    policy = policy_of(demos, deadline=LONG)
    policy._deadline.finished(policy._deadline.clock() - 0.25)
    copy = pickle.loads(pickle.dumps(policy))
    assert copy._deadline.reserve == policy._deadline.reserve > 0.25


def test_samples_are_not_subject_to_it(demos):
    with pytest.warns(ClosedFormWarning):
        policy = policy_of(demos, deadline=1e-9)
    free = policy_of(demos)
    np.testing.assert_array_equal(policy.sample(np.zeros((2, 3)), 2, seed=0), free.sample(np.zeros((2, 3)), 2, seed=0))


def test_what_it_does_not_cover_is_said_when_the_policy_is_made(demos):
    """Counted, not measured: it is said for the same policies on every machine."""
    said = "deadline is 0.5 ms, but search, metric, frames and the first diffusion step always run in full and take"
    with pytest.warns(ClosedFormWarning, match=said):
        ClosedFormPolicy(demos, n_action_steps=1000, deadline=5e-4)
    ClosedFormPolicy(demos, n_action_steps=4, deadline=0.01)


@pytest.mark.parametrize("more", ["n_searched", "n_features", "n_neighbors", "chunk_size", "n_tried"])
def test_more_work_is_expected_to_take_longer(more):
    work = {
        "n_searched": 20_000,
        "n_features": 10,
        "n_neighbors": 2000,
        "chunk_size": 100,
        "n_tried": 30,
        "n_perturbations": 32,
    }
    expected = seconds_not_cut(**work, compiled=True)
    assert seconds_not_cut(**{**work, more: 10 * work[more]}, compiled=True) > expected
    assert seconds_not_cut(**work, compiled=False) > expected


def test_nonsense_is_refused(demos):
    for wrong in (0, -1.0, float("nan"), float("inf"), 10**400):
        with pytest.raises(ConfigError, match="deadline: expected"):
            ClosedFormPolicy(demos, deadline=wrong)
