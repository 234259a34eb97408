"""Guidance and augmentation: exact at both ends, and the paper's formula in between."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closedform import DDPM, ClosedForm, ddpm
from closedform.editing.augmented import Augmented, log_kernel
from closedform.editing.guided import Guided
from closedform.errors import ConfigError, DataError

PROCESS = DDPM(50)


def closed_form(rng, k=12, d=4, m=0):
    perturbations = 0.1 * rng.normal(size=(m, d)) if m else None
    return ClosedForm(PROCESS, rng.normal(size=(k, d)), rng.normal(size=k), perturbations)


def neural(rng, d=4):
    matrix = rng.normal(size=(d, d)) / d
    return lambda a_s, s: np.tanh(a_s @ matrix)


def sampled(denoiser, d=4):
    return ddpm(denoiser, PROCESS, np.random.default_rng(5).normal(size=(6, d)), n_steps=50, rng=7)


def test_without_guidance_it_is_the_neural_policy_to_the_last_bit():
    rng = np.random.default_rng(0)
    network, one, two = neural(rng), closed_form(rng), closed_form(rng)
    assert np.array_equal(sampled(Guided(network, one, two, w=0.0)), sampled(network))
    assert np.array_equal(sampled(Guided(network, one, two, w=3.0, off_below=50)), sampled(network))
    assert not np.array_equal(sampled(Guided(network, one, two, w=3.0, off_below=10)), sampled(network))


def test_identical_data_guide_nowhere():
    rng = np.random.default_rng(1)
    network, form = neural(rng), closed_form(rng, m=4)
    same = ClosedForm(PROCESS, *(np.array(part) for part in (form.actions, form.log_weights, form.perturbations)))
    assert np.array_equal(sampled(Guided(network, same, form, w=2.0)), sampled(network))


@given(st.floats(0, 5), st.integers(1, 49), st.integers(0, 1000))
def test_guided_scores_are_the_papers(w, s, seed):
    rng = np.random.default_rng(seed)
    network, one, two = neural(rng), closed_form(rng), closed_form(rng)
    a_s = rng.normal(size=(3, 4))
    score = [PROCESS.score(denoiser(a_s, s), a_s, s) for denoiser in (network, one, two)]
    guided = PROCESS.score(Guided(network, one, two, w=w)(a_s, s), a_s, s)
    assert guided == pytest.approx(score[0] + w * (score[1] - score[2]), rel=1e-6, abs=1e-6)


def test_guidance_moves_samples_to_what_meets_the_condition():
    left, right = np.full((5, 2), -1.0), np.full((5, 2), 1.0)
    both = ClosedForm(PROCESS, np.concatenate([left, right]))
    network = both  # a network that learned both ways
    noise = np.random.default_rng(0).normal(size=(200, 2))
    free = ddpm(network, PROCESS, noise, n_steps=50, rng=0)
    guided = Guided(network, ClosedForm(PROCESS, right), both, w=2.0, off_below=5)
    steered = ddpm(guided, PROCESS, noise, n_steps=50, rng=0)
    assert 0.3 < np.mean(free[:, 0] > 0) < 0.7 and np.mean(steered[:, 0] > 0) > 0.95


def test_without_demonstrations_it_is_exactly_the_neural_reverse_step():
    rng = np.random.default_rng(2)
    network = neural(rng)
    nothing = ClosedForm(PROCESS, np.empty((0, 4)), np.empty(0))
    assert np.array_equal(sampled(Augmented(network, nothing)), sampled(network))


def test_without_a_network_it_is_exactly_the_closed_form():
    form = closed_form(np.random.default_rng(3), m=5)
    assert np.array_equal(sampled(Augmented(None, form)), sampled(form))


def test_a_network_out_of_its_data_or_deep_inside_leaves_the_other_no_share():
    rng = np.random.default_rng(4)
    network, form = neural(rng), closed_form(rng, m=5)
    a_s = rng.normal(size=(3, 4))
    assert Augmented(network, form, -1e6)(a_s, 30) == pytest.approx(form(a_s, 30))
    assert Augmented(network, form, 1e6)(a_s, 30) == pytest.approx(network(a_s, 30))


@given(st.integers(1, 49), st.integers(0, 1000), st.integers(0, 3), st.floats(-5, 5), st.booleans())
def test_the_augmented_kernel_is_the_papers(s, seed, m, neural_log_weight, perturbed):
    rng = np.random.default_rng(seed)
    network, form = neural(rng), closed_form(rng, k=5, m=m)
    a_s = rng.normal(size=(2, 4))
    gain, sigma = PROCESS.gain(s), PROCESS.noise(s)
    expected = np.zeros_like(a_s)
    for n, sample in enumerate(a_s):
        own = network(a_s, s)[n]
        shifts = np.zeros((1, 4)) if form.perturbations is None else form.perturbations
        for shift in shifts:
            logits = [-np.sum((sample + shift - gain * a) ** 2) / (2 * sigma**2) for a in form.actions]
            logits = [*(np.array(logits) + form.log_weights), neural_log_weight]
            seen = sample + shift if perturbed else sample
            logits[-1] -= np.sum((seen - gain * own) ** 2) / (2 * sigma**2)
            shares = np.exp(np.array(logits) - np.max(logits))
            shares /= shares.sum()
            expected[n] += shares @ np.stack([*form.actions, own]) / len(shifts)
    watched: list[np.ndarray] = []
    augmented = Augmented(network, form, neural_log_weight, perturbed, watched.append)
    assert augmented(a_s, s) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert watched[0].sum(-1) == pytest.approx(1)


def test_log_kernels_are_gaussian_densities_up_to_one_constant():
    rng = np.random.default_rng(6)
    root = rng.normal(size=(3, 3))
    covariance, mean, z = root @ root.T + np.eye(3), rng.normal(size=3), rng.normal(size=3)
    for c in (0.8, 3.0):
        wide = c * covariance
        expected = -0.5 * (z - mean) @ np.linalg.inv(wide) @ (z - mean) - 0.5 * np.log(np.linalg.det(wide))
        assert log_kernel(z, mean, covariance, c) == pytest.approx(expected)


def test_bad_input():
    rng = np.random.default_rng(7)
    with pytest.raises(ConfigError, match=r"w: expected 0 to 1e6, found -1\.0"):
        Guided(neural(rng), closed_form(rng), closed_form(rng), w=-1.0)
    with pytest.raises(ConfigError, match="off_below: expected a time of 0 or more"):
        Guided(neural(rng), closed_form(rng), closed_form(rng), w=1.0, off_below=-2.0)
    with pytest.raises(ConfigError, match="c: expected a positive number"):
        log_kernel(np.zeros(2), np.zeros(2), np.eye(2), c=0.0)
    with pytest.raises(DataError, match="positive definite"):
        log_kernel(np.zeros(2), np.zeros(2), np.diag([1.0, -1.0]))
    with pytest.raises(DataError, match="expected a mean and a covariance of 2 numbers"):
        log_kernel(np.zeros(2), np.zeros(3), np.eye(3))
