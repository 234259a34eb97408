"""The trained policies inside the package: small, whole, and doing what they were trained to do."""

import numpy as np
import pytest

from closedform import load_demos, load_policy
from closedform.cli import main
from closedform.errors import ConfigError
from closedform.neural.policy import NeuralPolicy
from closedform.policies.folder import SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_they_are_small_and_whole(name):
    assert sum(path.stat().st_size for path in SHIPPED[name].iterdir()) < 9e6
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


@pytest.mark.parametrize("n_samples", [0, True, 1.5, "two"])
def test_as_many_samples_as_cannot_be_drawn_are_refused(n_samples):
    with pytest.raises(ConfigError, match="n_samples: expected a whole number of at least 1, found"):
        NeuralPolicy.load("pusht-dit").sample(np.zeros((1, 5)), n_samples)


def test_commands_take_them_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["eval", "--env", "pusht", "--policy", "pusht-dot", "--episodes", "1"])
    assert "pusht-dit, pusht-dit-left" in capsys.readouterr().err
    assert load_policy("pusht-dit").fingerprint() != load_policy("pusht-dit-left").fingerprint()
