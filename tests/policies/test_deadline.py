"""With a deadline, diffusion stops early at a step boundary, says so, and returns the best chunk so far."""

import time

import numpy as np
import pytest

from closedform import ClosedFormPolicy, NearestNeighborPolicy
from closedform.diffusion.sampler import euler
from closedform.errors import ConfigError
from tests.conftest import random_demos, slow_on_the_reference


@pytest.fixture(scope="module")
def demos():
    return random_demos(np.random.default_rng(0), 6, 60, 3, 2)


def test_without_a_deadline_all_steps_are_taken(both_ways, demos):
    plan = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=30).plan(np.zeros(3), seed=0)
    assert plan.complete and plan.n_steps == 30
    far = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=30, deadline=60.0).plan(np.zeros(3), seed=0)
    assert far.complete and far.n_steps == 30
    np.testing.assert_array_equal(far.actions, plan.actions)
    assert NearestNeighborPolicy(demos, n_action_steps=4).plan(np.zeros(3)).complete


def test_one_that_has_passed_leaves_one_step(both_ways, demos):
    """After the first step, from pure noise, the best chunk is the average with the observation kernel's weights."""
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=30, deadline=1e-9)
    plan = policy.plan(np.zeros(3), seed=0)
    assert not plan.complete and plan.n_steps == 1
    denoiser = policy.denoiser(np.zeros(3), seed=0)
    noise = np.random.default_rng(1).standard_normal((1, denoiser.actions.shape[1]))
    first = []
    euler(denoiser, policy.config.make_process(), noise, n_steps=30, callback=lambda step: first.append(step.denoised))
    assert plan.carry is not None
    offset, scale = policy._store.normalisation(plan.carry)
    np.testing.assert_allclose(plan.actions.ravel(), first[0][0] / np.tile(scale, 4) + np.tile(offset, 4), atol=1e-6)
    assert plan.weights.sum() == pytest.approx(1)


def test_the_steps_before_it_are_those_without_one(demos, monkeypatch):
    """What is returned after n steps is what the sampler had denoised by then."""
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=10_000, deadline=0.1)
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "1")
    plan = policy.plan(np.zeros(3), seed=0)
    assert not plan.complete and 1 < plan.n_steps < 10_000
    whole = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=10_000)
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((1, whole._chunk_size(whole._store)))
    denoiser = whole.denoiser(np.zeros(3), seed=rng)
    steps = []
    euler(denoiser, whole.config.make_process(), noise, n_steps=10_000, callback=steps.append)
    assert plan.carry is not None
    offset, scale = whole._store.normalisation(plan.carry)
    expected = steps[plan.n_steps - 1].denoised[0] / np.tile(scale, 4) + np.tile(offset, 4)
    np.testing.assert_allclose(plan.actions.ravel(), expected, atol=1e-9)


@slow_on_the_reference
def test_plans_are_never_late(demos):
    """20000 steps take much longer than 5 ms; where the machine does not stop the process, plans end before that."""
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=20_000, deadline=0.005)
    agent = policy.agent(seed=0)
    took, steps = [], []
    for _ in range(60):
        start = time.perf_counter()
        plan = agent.plan(np.zeros(3))
        took.append(time.perf_counter() - start)
        steps.append(plan.n_steps)
        assert not plan.complete
    assert np.median(steps) > 100
    assert 0.003 < np.median(took) < 0.005  # and the time there is is used


def test_samples_are_not_subject_to_it(demos):
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=30, deadline=1e-9)
    free = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=30)
    np.testing.assert_array_equal(policy.sample(np.zeros((2, 3)), 2, seed=0), free.sample(np.zeros((2, 3)), 2, seed=0))


def test_nonsense_is_refused(demos):
    for wrong in (0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="deadline: expected more than 0, or None"):
            ClosedFormPolicy(demos, deadline=wrong)
