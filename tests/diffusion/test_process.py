"""Properties of the noising processes."""

import math

import numpy as np
import pytest

from closedform import DDPM, ClosedFormError, Flow

PROCESSES = [Flow(), DDPM(), DDPM(schedule="linear"), DDPM(20)]


def inner_times(process, n=7):
    return process.times(n)[1:-1]


@pytest.mark.parametrize("process", PROCESSES)
def test_conversions_are_inverse_to_each_other(process):
    rng = np.random.default_rng(0)
    a_s, denoised = rng.normal(size=(2, 5, 3))
    for s in inner_times(process):
        for name in ("score", "epsilon", "velocity"):
            converted = getattr(process, name)(denoised, a_s, s)
            back = getattr(process, f"denoised_from_{name}")(converted, a_s, s)
            np.testing.assert_allclose(back, denoised, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("process", PROCESSES)
def test_score_is_minus_epsilon_over_sigma(process):
    rng = np.random.default_rng(1)
    a_s, denoised = rng.normal(size=(2, 4))
    for s in inner_times(process):
        score, epsilon = process.score(denoised, a_s, s), process.epsilon(denoised, a_s, s)
        np.testing.assert_allclose(score, -epsilon / process.noise(s), rtol=1e-12)


def test_flow_velocity_is_the_papers_where_that_is_defined():
    rng = np.random.default_rng(2)
    a_s, denoised = rng.normal(size=(2, 6))
    for s in inner_times(Flow()):
        score = Flow().score(denoised, a_s, s)
        paper = -1 / (1 - s) * (a_s + s * score)  # eq:flow_ode
        np.testing.assert_allclose(Flow().velocity(denoised, a_s, s), paper, rtol=1e-9)
    assert np.isfinite(Flow().velocity(denoised, a_s, 1.0)).all()


@pytest.mark.parametrize("process", PROCESSES)
def test_times_lead_from_noise_to_data(process):
    times = process.times(10)
    gains = [process.gain(s) for s in times]
    assert len(times) == 11
    assert gains == sorted(gains)
    assert gains[0] < 0.1 and gains[-1] == 1.0 and process.noise(times[-1]) == 0.0


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_ddpm_preserves_variance(schedule):
    process = DDPM(100, schedule)
    for s in process.times(100):
        assert math.isclose(process.gain(s) ** 2 + process.noise(s) ** 2, 1.0)


def test_wrong_numbers_of_steps_are_refused():
    with pytest.raises(ClosedFormError, match="at least 1 diffusion step, found 0"):
        Flow().times(0)
    with pytest.raises(ClosedFormError, match="at most as many steps as the 100 levels of the DDPM process, found 101"):
        DDPM().times(101)
    with pytest.raises(ClosedFormError, match="'cosine' or 'linear', found 'sine'"):
        DDPM(schedule="sine")  # pyright: ignore[reportArgumentType]
