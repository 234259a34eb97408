"""Parameters without bounds are refused before anything is allocated, whoever wrote them down."""

import resource
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from closedform import ClosedFormConfig, ClosedFormPolicy, NearestNeighborPolicy
from closedform.errors import ConfigError
from closedform.policies.choice import parse_settings
from tests.conftest import random_demos


@pytest.fixture(scope="module")
def demos():
    return random_demos(np.random.default_rng(0), 5, 400, 4, 3)


def config_with(**parameters: Any) -> ClosedFormConfig:
    return ClosedFormConfig.preset("default", **parameters)


MOST = {
    each.name: each.metadata["declared"].between[1] for each in fields(ClosedFormConfig) if each.type.startswith("int")
}


@pytest.mark.parametrize("name", MOST)
def test_counts_have_bounds(name):
    for value in (0, -1, 2**40, 2**70, 10**400, 10**5000, np.int64(2**62)):
        with pytest.raises(ConfigError, match=f"{name}: expected at (least 1|most)") as refused:
            config_with(**{name: value})
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", MOST)
def test_the_largest_is_allowed(name):
    parameters = {"n_action_steps": MOST["n_action_steps"]} if name == "n_execute" else {}
    assert getattr(config_with(**{name: MOST[name], **parameters}), name) == MOST[name]


@pytest.mark.parametrize(
    "name", ["bandwidth", "tau", "regularization", "shrinkage", "rotation_weight", "recall", "loop_memory", "deadline"]
)
def test_numbers_have_bounds(name):
    for value in (float("nan"), float("inf"), -float("inf"), 10**400, 10**5000, Fraction(10) ** 400):
        with pytest.raises(ConfigError, match=f"{name}: expected") as refused:
            config_with(**{name: value})
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "setting",
    [
        "n_obs_steps=" + "9" * 5000,
        "n_obs_steps=" + "9" * 30,
        "n_obs_steps=²",
        "n_obs_steps=1e3",
        "n_obs_steps=inf",
        "tau=²",
        "tau=" + "9" * 5000,
        "tau=1e999",
        "tau=nan",
        "padding=" + "y" * 5000,
        "x" * 5000 + "=1",
        "x" * 5000,
    ],
)
def test_settings_from_the_command_line_are_refused_in_one_short_line(setting):
    with pytest.raises(ConfigError) as refused:
        config_with(**parse_settings(ClosedFormConfig, [setting]))
    assert len(str(refused.value)) < 700 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_obs_steps": 1000, "n_action_steps": 1}, "windows of n_obs_steps = 1000 observations: expected at most"),
        ({"n_action_steps": 10_000}, "5 episodes padded for n_action_steps = 10000: expected at most"),
        (
            {"n_action_steps": 400, "n_perturbations": 10_000, "n_diffusion_steps": 10_000, "sampler": "ddpm"},
            "planning for 1 observations, 1 samples each, with n_action_steps = 400: expected at most",
        ),
    ],
)
def test_what_would_not_fit_is_refused_with_its_size(demos, parameters, message, monkeypatch):
    monkeypatch.setattr("closedform.limits.MOST_NUMBERS", 2**17)  # 1 MiB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match=f"{message} [0-9.]+ GiB of memory, found [0-9.]+ GiB; lower"):
        ClosedFormPolicy(demos, **parameters)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


@pytest.mark.parametrize("policy_class", [ClosedFormPolicy, NearestNeighborPolicy])
def test_more_samples_than_fit_are_refused(both_ways, demos, policy_class):
    policy = policy_class(demos, n_action_steps=4)
    for n_samples in (10**9, 10**15, 10**5000):
        with pytest.raises(ConfigError, match=r"planning for 2 observations, .* samples each.* found .* GiB; lower"):
            policy.sample(np.zeros((2, 4)), n_samples, seed=0)
