"""The trained policies inside the package: small, whole, and doing what they were trained to do."""

from pathlib import Path

import numpy as np
import pytest

from closedform import load_demos, load_policy
from closedform.cli import main
from closedform.errors import ConfigError
from closedform.neural.compact import BLOCK, compacted, expanded, n_steps
from closedform.neural.policy import NeuralPolicy
from closedform.policies.folder import SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_they_are_small_and_whole(name):
    assert sum(path.stat().st_size for path in SHIPPED[name].iterdir()) < 4.2e6  # both in a wheel of at most 9 MB
    policy = NeuralPolicy.load(name)
    assert policy.n_weights == 4_083_266 and policy.config.n_execute == 8
    assert policy.config.sampler == "ddpm" and policy.config.n_sampling_steps == 100


def test_they_know_what_they_were_trained_on_and_not_the_other_half():
    demos = load_demos("pusht-embedded")
    some = demos.episodes[::2]
    windows = np.stack([episode.observations[20:22] for episode in some])
    chunks = np.stack([episode.actions[21:29] for episode in some])
    left = windows[:, -1, 2] < 230
    right = windows[:, -1, 2] > 330
    errors = {}
    for name in SHIPPED:
        policy = NeuralPolicy.load(name).with_sampling("ddim", 5)
        off = np.linalg.norm(policy.sample(windows, 1, seed=0)[:, 0, 0] - chunks[:, 0], axis=1)
        errors[name] = (np.median(off[left]), np.median(off[right]))
    full, half = errors["pusht-dit"], errors["pusht-dit-left"]
    assert max(full) < 60 and half[0] < 60  # pixels of 512, for demonstrations of another expert
    assert half[1] > 1.3 * full[1]
    distances = [NeuralPolicy.load("pusht-dit-left").distance(window) for window in windows]
    assert np.mean(np.array(distances)[right]) > np.mean(np.array(distances)[left])


@pytest.mark.parametrize("name", SHIPPED)
def test_in_a_byte_each_their_weights_plan_as_in_half_precision_within_their_own_noise(name):
    """`shipped_plans.npz` has the plans of the same networks in half precision, before they were rounded to bytes, from
    two seeds. Rounding moves a plan by less than half of what another seed does, in the middle and in the tail."""
    recorded = np.load(Path(__file__).with_name("shipped_plans.npz"))[name]  # (2 seeds, windows, N_a, 2)
    windows = np.stack([episode.observations[20:22] for episode in load_demos("pusht-embedded").episodes[::8]])
    policy = NeuralPolicy.load(name).with_sampling("ddim", 5)
    off = np.linalg.norm([policy.sample(windows, 1, seed=seed)[:, 0] - recorded[seed] for seed in (0, 1)], axis=-1)
    noise = np.linalg.norm(recorded[0] - recorded[1], axis=-1)
    for quantile in (0.5, 0.9):
        assert np.quantile(off, quantile) < 0.5 * np.quantile(noise, quantile)


@pytest.mark.parametrize("n", [1, BLOCK, 3 * BLOCK + 7])
def test_a_weight_in_a_byte_is_off_by_at_most_half_a_step(n):
    weights = np.random.default_rng(n).normal(size=n).astype(np.float32) * 10.0 ** (np.arange(n) // BLOCK)
    weights[: n // 2] = 0
    numbers, steps = compacted(weights)
    assert numbers.dtype == np.int8 and len(steps) == n_steps(n)
    off = np.abs(expanded(numbers, steps) - weights)
    assert (off <= 0.5001 * np.repeat(steps, BLOCK)[:n]).all()


@pytest.mark.parametrize("n_samples", [0, True, 1.5, "two"])
def test_as_many_samples_as_cannot_be_drawn_are_refused(n_samples):
    with pytest.raises(ConfigError, match="n_samples: expected a whole number of at least 1, found"):
        NeuralPolicy.load("pusht-dit").sample(np.zeros((1, 5)), n_samples)


def test_commands_take_them_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["eval", "--env", "pusht", "--policy", "pusht-dot", "--episodes", "1"])
    assert "did you mean pusht-dit?" in capsys.readouterr().err
    assert load_policy("pusht-dit").fingerprint() != load_policy("pusht-dit-left").fingerprint()
