"""Tuning: finds what the demonstrations ask for, and leaves alone what they do not."""

import json
from importlib import import_module

import numpy as np
import pytest

from closedform import ClosedFormConfig, ClosedFormPolicy, Demos, load_demos, save_demos
from closedform.analysis import tune
from closedform.analysis.tune import prediction_errors
from closedform.cli import main
from closedform.errors import DataError
from closedform.policies.choice import make_policy
from tests.conftest import random_demos, slow_on_the_reference

module = import_module("closedform.analysis.tune")  # the package has the function of this name
pytestmark = pytest.mark.filterwarnings("ignore::closedform.ClosedFormWarning")


def swings(n_episodes=12, n_steps=40):
    """Whether the action goes up or down depends on where the observation came from, not on where it is."""
    episodes = []
    rng = np.random.default_rng(0)
    for _ in range(n_episodes):
        phase = rng.uniform(0, 2 * np.pi) + np.arange(n_steps) * rng.uniform(0.28, 0.32)
        episodes.append((np.sin(phase)[:, None], np.cos(phase)[:, None]))
    return Demos(episodes)


@slow_on_the_reference
def test_a_second_observation_is_found_where_it_is_needed():
    tuning = tune(swings())
    assert tuning.start.config.n_obs_steps == 1 and tuning.best.config.n_obs_steps == 2
    assert tuning.best.error < 0.5 * tuning.start.error
    assert tuning.best.config.n_execute <= tuning.best.config.n_action_steps


@slow_on_the_reference
def test_a_useless_bandwidth_is_narrowed_and_the_rest_is_kept():
    start = ClosedFormConfig(bandwidth=50.0, n_obs_steps=2, loop_memory=0.5)
    tuning = tune(swings(), start)
    assert tuning.best.config.bandwidth < 1 and tuning.best.config.loop_memory == 0.5
    assert tuning.start.config == start and start in [trial.config for trial in tuning.trials]


@slow_on_the_reference
def test_noise_moves_nothing():
    ratios = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        tuning = tune(Demos([(rng.normal(size=(40, 2)), rng.normal(size=(40, 2))) for _ in range(20)]))
        ratios.append(tuning.best.error / tuning.start.error)
    assert np.mean(ratios) > 0.96


def test_the_error_is_that_of_samples_plus_how_far_they_are_from_any_demonstration():
    # Half of the demonstrations go left and half go right: an average is near to neither.
    forks = Demos([(np.zeros((12, 1)) + 0.01 * i, np.full((12, 1), 1.0 if i % 2 else -1.0)) for i in range(16)])
    decided, averaged = (
        prediction_errors(ClosedFormPolicy(forks, bandwidth=50.0, tau=tau, n_perturbations=8)).mean()
        for tau in (0.0, 3.0)
    )
    assert decided == pytest.approx(1.0, abs=0.2)  # right half of the time, two away otherwise, on some demonstration
    assert averaged > decided + 0.4  # about one away always, and away from every demonstration too


def test_the_same_demonstrations_give_the_same_parameters(monkeypatch):
    monkeypatch.setattr(module, "GRID", {"n_obs_steps": (1, 2), "tau": (0.0, 0.07)})
    demos = random_demos(np.random.default_rng(0), 5, 30, 2, 2)
    said = []
    first = tune(demos, progress=lambda what, share: said.append((what, share)))
    assert tune(demos) == first
    assert tune(demos, workers=2) == first
    assert said[0] == ("n_obs_steps = 1", 0.0) and [share for _, share in said] == sorted(share for _, share in said)


def test_one_episode_is_not_enough():
    with pytest.raises(DataError, match="at least two episodes for leave-one-out prediction"):
        tune(random_demos(np.random.default_rng(0), 1, 30, 2, 2))


def test_the_command_writes_a_file_that_policies_are_made_of(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "GRID", {"n_obs_steps": (1, 2), "n_action_steps": (4, 500)})
    save_demos(swings(n_episodes=4), tmp_path / "demos")
    main(["tune", str(tmp_path / "demos"), "-o", str(tmp_path / "tuned.json")])
    said = capsys.readouterr().out
    assert "n_obs_steps      2   (was 1)" in said and "leave-one-out error" in said
    written = json.loads((tmp_path / "tuned.json").read_text())
    assert written["error"] < written["error_before"]
    policy = make_policy(str(tmp_path / "tuned.json"), load_demos(tmp_path / "demos"))
    assert policy.config.n_obs_steps == 2
