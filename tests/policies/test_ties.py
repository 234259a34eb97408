"""Where demonstrations are evenly split, rounding does not decide: kernels and reference choose the same value."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, KernelRegressionPolicy, Layout

ACTIONS = Layout.of((None, "binary", 4))


def split_demos(rng, n_episodes, n_steps):
    observations = rng.normal(size=(n_episodes, n_steps, 2))
    actions = np.where(rng.random((n_episodes, n_steps, 4)) < 0.5, -1.0, 1.0)
    return Demos(list(zip(observations, actions, strict=True)), Layout.plain(2), ACTIONS)


def sampled_both_ways(policy, observations, monkeypatch, **options):
    samples = []
    for disable in ("0", "1"):
        monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", disable)
        samples.append(policy.sample(observations, **options))
    return samples


@pytest.mark.parametrize(
    "parameters",
    [
        # each perturbation chooses one demonstration, so that shares are twelfths
        {"tau": 1e4, "n_perturbations": 12, "n_diffusion_steps": 5},
        # all demonstrations count the same
        {"tau": 0.0, "bandwidth": 1e8, "n_diffusion_steps": 1},
    ],
)
def test_evenly_split_binaries_are_decided_alike(monkeypatch, parameters):
    ties = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        policy = ClosedFormPolicy(split_demos(rng, 6, 20), n_action_steps=4, **parameters)
        observations = rng.normal(size=(4, 2))
        compiled, reference = sampled_both_ways(policy, observations, monkeypatch, n_samples=3, seed=seed)
        np.testing.assert_array_equal(compiled, reference)
        windows = policy.windows(observations)
        made = policy.planner.batch(windows, 3, np.random.default_rng(seed))
        ties += np.count_nonzero(np.abs(made.chunks) < 1e-5)
    assert ties > 10  # there was something to decide


def test_in_the_middle_it_is_the_lower_value(both_ways):
    observations = np.zeros((10, 2))
    demos = Demos([(observations, np.full((10, 4), value)) for value in (3.0, 7.0)], Layout.plain(2), ACTIONS)
    np.testing.assert_array_equal(KernelRegressionPolicy(demos, n_action_steps=2).plan(np.zeros(2)).actions, 3.0)
    more = Demos([*demos, (observations, np.full((10, 4), 7.0))], Layout.plain(2), ACTIONS)
    np.testing.assert_array_equal(KernelRegressionPolicy(more, n_action_steps=2).plan(np.zeros(2)).actions, 7.0)
