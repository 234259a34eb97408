"""Properties of the samplers."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from closedform import DDPM, ClosedForm, ClosedFormError, ClosedFormPolicy, Flow, Sampler, ddim, ddpm, euler
from closedform.diffusion.sampler import SAMPLERS, StepWeights
from tests.conftest import random_demos
from tests.worlds import reference_and_compiled

RUNS = [
    pytest.param(euler, Flow(), {}, id="euler-flow"),
    pytest.param(ddim, Flow(), {}, id="ddim-flow"),
    pytest.param(ddim, DDPM(), {}, id="ddim-ddpm"),
    pytest.param(ddpm, Flow(), {"rng": 0}, id="ddpm-flow"),
    pytest.param(ddpm, DDPM(), {"rng": 0}, id="ddpm-ddpm"),
    pytest.param(ddpm, DDPM(schedule="linear"), {"rng": 0}, id="ddpm-linear"),
]


@pytest.mark.parametrize(("sampler", "process", "extra"), RUNS)
def test_one_demonstration_is_returned(sampler, process, extra):
    rng = np.random.default_rng(0)
    demonstration, noise = rng.normal(size=(1, 6)), rng.normal(size=(20, 6))
    for n_steps in (1, 7, 100):
        chunks = sampler(ClosedForm(process, demonstration), process, noise, n_steps=n_steps, **extra)
        np.testing.assert_allclose(chunks, np.repeat(demonstration, 20, 0), atol=1e-12)


@pytest.mark.parametrize(("sampler", "process", "extra"), RUNS)
def test_modes_are_hit_in_proportion_to_their_weight(sampler, process, extra):
    n, shares = 4000, np.array([0.5, 0.3, 0.2])
    modes = np.array([[-0.9, 0.9], [0.9, 0.8], [0.0, -1.0]])
    noise = np.random.default_rng(1).normal(size=(n, 2))
    chunks = sampler(ClosedForm(process, modes, np.log(shares)), process, noise, n_steps=100, **extra)
    distances = np.linalg.norm(chunks[:, None] - modes, axis=2)
    assert distances.min(1).max() < 1e-6  # every sample is at a mode
    counts = np.bincount(distances.argmin(1), minlength=3)
    # A chi-squared statistic of 2 degrees of freedom exceeds 13.8 once in a thousand.
    assert np.sum((counts - n * shares) ** 2 / (n * shares)) < 13.8


def test_eulers_distribution_approaches_the_empirical_one():
    rng = np.random.default_rng(2)
    points = np.sort(rng.uniform(-1, 1, size=(12, 1)), axis=0)
    quantiles = (np.arange(6000) + 0.5) / 6000
    noise = np.array([[math.sqrt(2) * v] for v in torch.erfinv(torch.tensor(2 * quantiles - 1)).tolist()])
    target = np.repeat(points[:, 0], 500)
    distances = []
    for n_steps in (2, 5, 20, 100, 500):
        samples = np.sort(euler(ClosedForm(Flow(), points), Flow(), noise, n_steps=n_steps)[:, 0])
        distances.append(np.mean(np.abs(samples - target)))  # the Wasserstein distance in one dimension
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.003 < 0.1 < distances[0]


def test_ancestral_step_is_the_papers_score_form():
    rng = np.random.default_rng(3)
    process = DDPM()
    denoiser = ClosedForm(process, rng.normal(size=(5, 4)))
    steps = []
    ddpm(denoiser, process, rng.normal(size=(3, 4)), n_steps=100, rng=0, callback=steps.append)
    generator = np.random.default_rng(0)
    for step in steps:
        alpha_bar, alpha_bar_next = (process.alpha_bars[int(step.time) - i] for i in (0, 1))
        alpha = alpha_bar / alpha_bar_next
        score = process.score(step.denoised, step.sample, step.time)
        expected = (step.sample + (1 - alpha) * score) / math.sqrt(alpha)  # eq:ddpm2
        if step.time > 1:
            spread = math.sqrt((1 - alpha) * (1 - alpha_bar_next) / (1 - alpha_bar))
            expected = expected + spread * generator.standard_normal((3, 4))
        np.testing.assert_allclose(step.next_sample, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("sampler", "process", "extra"), RUNS)
def test_callback_sees_every_step(sampler, process, extra):
    steps = []
    noise = np.random.default_rng(4).normal(size=(2, 3))
    denoiser = ClosedForm(process, np.eye(3))
    chunks = sampler(denoiser, process, noise, n_steps=10, callback=steps.append, **extra)
    assert [step.index for step in steps] == list(range(10))
    np.testing.assert_array_equal(steps[0].sample, noise)
    np.testing.assert_array_equal(steps[-1].next_sample, chunks)
    for step, following in pairwise(steps):
        np.testing.assert_array_equal(step.next_sample, following.sample)


@pytest.mark.parametrize(("sampler", "process", "extra"), RUNS)
def test_torch_gives_the_same_chunks(sampler, process, extra):
    rng = np.random.default_rng(5)
    actions, noise = rng.normal(size=(8, 4)), rng.normal(size=(3, 4))
    with_numpy = sampler(ClosedForm(process, actions), process, noise, n_steps=20, **extra)
    with_torch = sampler(ClosedForm(process, torch.tensor(actions)), process, torch.tensor(noise), n_steps=20, **extra)
    np.testing.assert_allclose(with_torch.numpy(), with_numpy, atol=1e-8)


def test_euler_needs_the_flow():
    with pytest.raises(ClosedFormError, match="use it with the process 'flow', or use 'ddim'"):
        euler(ClosedForm(DDPM(), np.eye(2)), DDPM(), np.zeros((1, 2)), n_steps=5)


class Heun(Sampler):
    """Heun's method on the flow ODE: an Euler step, then the mean of both slopes; the last step is Euler's."""

    def steps(self, process, n_steps):
        found = []
        for s, s_next in pairwise(process.times(n_steps)):
            found.append(StepWeights(s, s_next / s, 1 - s_next / s))
            if s_next > 0:
                back = (s_next - s) / (2 * s_next)
                found.append(StepWeights(s_next, 0.5 + back, -back, recall=0.5))
        return found


def test_a_two_stage_sampler_is_one_class_for_every_backend(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "heun", Heun())
    chunks = np.random.default_rng(0).normal(size=(5, 3))
    denoiser, noise = (
        ClosedForm(Flow(), chunks, np.log([4.0, 2, 1, 1, 1])),
        np.random.default_rng(1).normal(size=(9, 3)),
    )
    exact = euler(denoiser, Flow(), noise, n_steps=4000)
    errors = [np.abs(sampler(denoiser, Flow(), noise, n_steps=20) - exact).mean() for sampler in (Heun(), euler)]
    assert errors[0] < 0.5 * errors[1]
    demos = random_demos(np.random.default_rng(0), 4, 30, 3, 2)
    policy = ClosedFormPolicy(demos, sampler="heun", n_diffusion_steps=10, n_neighbors=40, pruning_error=0.0)
    windows = policy.windows(np.random.default_rng(2).normal(size=(6, 3)))
    reference, compiled = reference_and_compiled(policy, windows, n_samples=2)
    np.testing.assert_allclose(compiled.chunks, reference.chunks, atol=1e-5)
    assert (reference.n_steps == 19).all() and (compiled.n_steps == 19).all()
