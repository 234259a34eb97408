"""Predictors: the same knowledge under three names gives the same samples."""

import numpy as np
import pytest

from closedform import DDPM, ClosedForm, Flow, ddim
from closedform.diffusion.predictor import Predictor
from closedform.errors import ConfigError


@pytest.mark.parametrize("process", [Flow(), DDPM(50), DDPM(50, "linear")])
@pytest.mark.parametrize("kind", ["epsilon", "denoised", "velocity"])
def test_whatever_is_predicted_the_samples_are_the_same(process, kind):
    rng = np.random.default_rng(0)
    exact = ClosedForm(process, rng.normal(size=(20, 6)))

    def predict(a_s, s):
        denoised = exact(a_s, s)
        return denoised if kind == "denoised" else getattr(process, kind)(denoised, a_s, s)

    start = 0.9 if isinstance(process, Flow) else 40.0
    a_s = rng.normal(size=(5, 6))
    assert Predictor(process, predict, kind)(a_s, start) == pytest.approx(exact(a_s, start), abs=1e-9)
    if kind == "denoised":
        noise = rng.normal(size=(5, 6))
        sampled = ddim(Predictor(process, predict, kind), process, noise, n_steps=20)
        assert sampled == pytest.approx(ddim(exact, process, noise, n_steps=20))


def test_clean_chunks_are_bounded():
    process = DDPM(50)
    assert np.abs(Predictor(process, lambda a, s: a * 0 + 9.0, "epsilon", bound=1.0)(np.ones((2, 3)), 49.0)).max() == 1


def test_bad_input():
    with pytest.raises(ConfigError, match="expected epsilon, denoised or velocity, found 'score'"):
        Predictor(Flow(), lambda a, s: a, "score")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="expected a positive number or None"):
        Predictor(Flow(), lambda a, s: a, bound=-1.0)
