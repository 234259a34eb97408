"""Properties of the closed-form denoiser."""

import numpy as np
import pytest
import torch

from closedform import DDPM, ClosedForm, Flow

PROCESSES = [Flow(), DDPM()]


def problem(rng, k=7, d=4, d_z=3, h=0.5):
    actions, features, query = rng.normal(size=(k, d)), rng.normal(size=(k, d_z)), rng.normal(size=d_z)
    log_weights = -np.sum((query - features) ** 2, 1) / (2 * h * h)
    return actions, log_weights


def log_density(a_s, actions, log_weights, process, s):
    """The logarithm of eq:corrupted_cond, up to a constant, in torch."""
    squared = ((a_s - process.gain(s) * actions) ** 2).sum(-1)
    return torch.logsumexp(-squared / (2 * process.noise(s) ** 2) + log_weights, 0)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_score_is_the_gradient_of_the_log_density(process, share):
    rng = np.random.default_rng(0)
    for _ in range(10):
        actions, log_weights = problem(rng)
        s = process.times(100)[round(100 * (1 - share))]
        a_s = torch.tensor(rng.normal(size=4), requires_grad=True)
        log_density(a_s, torch.tensor(actions), torch.tensor(log_weights), process, s).backward()
        sample = a_s.detach().numpy()[None]
        score = process.score(ClosedForm(process, actions, log_weights)(sample, s), sample, s)
        np.testing.assert_allclose(score[0], a_s.grad.numpy(), atol=1e-8, rtol=1e-8)  # pyright: ignore


@pytest.mark.parametrize("process", PROCESSES)
def test_smoothed_equals_the_formula_written_out(process):
    rng = np.random.default_rng(1)
    actions, log_weights = problem(rng)
    perturbations = 0.2 * rng.normal(size=(5, 4))
    samples = rng.normal(size=(3, 4))
    for s in process.times(9)[:-1]:
        gain, variance = process.gain(s), process.noise(s) ** 2
        expected = np.zeros((3, 4))
        for n, sample in enumerate(samples):
            for perturbation in perturbations:  # eq:smoothed_cond_kernel, over the gain
                logits = -np.sum((sample + perturbation - gain * actions) ** 2, 1) / (2 * variance) + log_weights
                weights = np.exp(logits - logits.max())
                expected[n] += weights / weights.sum() @ actions / len(perturbations)
        result = ClosedForm(process, actions, log_weights, perturbations)(samples, s)
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def test_smoothed_converges_to_unsmoothed():
    rng = np.random.default_rng(2)
    actions, log_weights = problem(rng)
    samples, directions = rng.normal(size=(4, 4)), rng.normal(size=(16, 4))
    plain = ClosedForm(Flow(), actions, log_weights)(samples, 0.4)
    errors = [
        np.abs(ClosedForm(Flow(), actions, log_weights, tau * directions)(samples, 0.4) - plain).max()
        for tau in (1e-1, 1e-2, 1e-3, 1e-6)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5 < errors[0]


def test_wide_bandwidth_is_unconditional():
    rng = np.random.default_rng(3)
    actions, log_weights = problem(rng, h=1e8)
    samples = rng.normal(size=(4, 4))
    for s in (0.1, 0.5, 0.9):
        np.testing.assert_allclose(
            ClosedForm(Flow(), actions, log_weights)(samples, s), ClosedForm(Flow(), actions)(samples, s), rtol=1e-9
        )


def test_permuting_demonstrations_changes_nothing():
    rng = np.random.default_rng(4)
    actions, log_weights = problem(rng, k=50)
    perturbations, samples = 0.1 * rng.normal(size=(8, 4)), rng.normal(size=(4, 4))
    order = rng.permutation(50)
    for s in (0.01, 0.5, 1.0):
        np.testing.assert_allclose(
            ClosedForm(Flow(), actions[order], log_weights[order], perturbations)(samples, s),
            ClosedForm(Flow(), actions, log_weights, perturbations)(samples, s),
            rtol=1e-9,
            atol=1e-12,
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("process", PROCESSES)
def test_finite_at_every_noise_level(dtype, process):
    rng = np.random.default_rng(5)
    actions = (1e3 + rng.normal(size=(6, 4))).astype(dtype)
    log_weights = np.array([0, -1, -1e3, -1e5, -1e30, -5], dtype)
    perturbations = (0.07 * rng.normal(size=(4, 4))).astype(dtype)
    for s in process.times(100):
        for scale in (1e-6, 1.0, 1e6):
            samples = (scale * rng.normal(size=(3, 4))).astype(dtype)
            result = ClosedForm(process, actions, log_weights, perturbations)(samples, s)
            assert result.dtype == dtype
            assert np.isfinite(result).all()
            assert (result >= actions.min(0) - 1e-3).all() and (result <= actions.max(0) + 1e-3).all()


def test_without_noise_the_nearest_demonstration_is_returned():
    actions = np.array([[0.0, 0.0], [1.0, 1.0]])
    result = ClosedForm(Flow(), actions, np.array([0.0, -50.0]))(np.array([[0.9, 0.9], [0.1, 0.2]]), 0.0)
    np.testing.assert_array_equal(result, [[1.0, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_lines_run_on_torch(dtype):
    rng = np.random.default_rng(6)
    actions, log_weights = (array.astype(dtype) for array in problem(rng))
    perturbations, samples = (rng.normal(size=(n, 4)).astype(dtype) for n in (5, 3))
    with_numpy = ClosedForm(Flow(), actions, log_weights, perturbations)(samples, 0.3)
    with_torch = ClosedForm(Flow(), *map(torch.tensor, (actions, log_weights, perturbations)))(
        torch.tensor(samples), 0.3
    )
    assert with_torch.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(with_torch.numpy(), with_numpy, rtol=1e-4 if dtype == "float32" else 1e-12)


def test_leading_axes_are_a_batch_of_observations():
    rng = np.random.default_rng(7)
    actions, log_weights = rng.normal(size=(3, 6, 4)), rng.normal(size=(3, 6))
    perturbations, samples = rng.normal(size=(3, 5, 4)), rng.normal(size=(3, 2, 4))
    together = ClosedForm(Flow(), actions, log_weights, perturbations)(samples, 0.5)
    for b in range(3):
        alone = ClosedForm(Flow(), actions[b], log_weights[b], perturbations[b])(samples[b], 0.5)
        np.testing.assert_allclose(together[b], alone, rtol=1e-12)
