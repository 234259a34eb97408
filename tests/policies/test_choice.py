"""Policies by name, parameters by name=value, parameter files."""

import json

import numpy as np
import pytest

from closedform import (
    ClosedFormConfig,
    ClosedFormPolicy,
    ClosedFormWarning,
    KernelRegressionPolicy,
    NearestNeighborPolicy,
    VINNPolicy,
)
from closedform.errors import ConfigError, LoadError
from closedform.policies.choice import make_policy, parse_settings, read_config, write_config
from tests.conftest import planar_demos

pytestmark = pytest.mark.filterwarnings("ignore::closedform.ClosedFormWarning")


@pytest.fixture(scope="module")
def demos():
    return planar_demos(np.random.default_rng(0))


@pytest.mark.parametrize(
    ("choice", "kind", "n_obs_steps"),
    [
        ("default", ClosedFormPolicy, 1),
        ("paper", ClosedFormPolicy, 2),
        ("1nn", NearestNeighborPolicy, 2),
        ("regression", KernelRegressionPolicy, 2),
        ("vinn", VINNPolicy, 1),
    ],
)
def test_names(demos, choice, kind, n_obs_steps):
    policy = make_policy(choice, demos, ["n_neighbors=20", "frames=world"])
    assert type(policy) is kind and policy.config.n_obs_steps == n_obs_steps and policy.config.n_neighbors == 20


def test_values_have_the_types_of_their_parameters():
    settings = ["n_neighbors=None", "tau=1e-2", "padding=False", "n_obs_steps=3", "metric=euclidean"]
    found = parse_settings(ClosedFormConfig, settings)
    assert found == {"n_neighbors": None, "tau": 0.01, "padding": False, "n_obs_steps": 3, "metric": "euclidean"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("padding=maybe", "padding: expected true or false, found 'maybe'"),
        ("n_obs_steps=1.5", "n_obs_steps: expected a whole number, found '1.5'"),
        ("tau=None", "tau: expected a number, found 'None'"),
        ("=3", "unknown parameter ''"),
        ("bandwith=3", "unknown parameter 'bandwith': did you mean bandwidth\\?"),
        ("x=3", "unknown parameter 'x': expected one of n_obs_steps, "),
    ],
)
def test_bad_values(setting, message):
    with pytest.raises(ConfigError, match=message):
        parse_settings(ClosedFormConfig, [setting])


def test_a_parameter_file_gives_the_policy_it_describes(demos, tmp_path):
    config = ClosedFormConfig(tau=0.02, n_action_steps=6)
    write_config(config, ClosedFormPolicy, tmp_path / "tuned.json", error=0.1)
    policy = make_policy(str(tmp_path / "tuned.json"), demos)
    assert policy.config == config
    changed = make_policy(str(tmp_path / "tuned.json"), demos, ["tau=0.5"])
    assert changed.config.tau == 0.5 and changed.config.n_action_steps == 6


def test_a_saved_policy_has_its_own_demonstrations(demos, tmp_path):
    ClosedFormPolicy(demos).save(tmp_path / "policy")
    assert repr(make_policy(str(tmp_path / "policy"), None)) == "ClosedFormPolicy(6 episodes, 180 windows)"
    with pytest.raises(ConfigError, match="expected neither, found demonstrations"):
        make_policy(str(tmp_path / "policy"), demos)
    with pytest.raises(ConfigError, match="expected neither, found tau=1"):
        make_policy(str(tmp_path / "policy"), None, ["tau=1"])
    with pytest.raises(ConfigError, match="needs demonstrations"):
        make_policy("default", None)


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"format": "other"}), json.dumps({"format_version": 1})])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(LoadError, match="expected a parameter file"):
        read_config(tmp_path / "config.json")


def test_unknown_parameters_in_a_file_are_named(demos, tmp_path):
    write_config(ClosedFormConfig(), ClosedFormPolicy, tmp_path / "tuned.json")
    content = json.loads((tmp_path / "tuned.json").read_text())
    content["parameters"]["wisdom"] = 3
    (tmp_path / "tuned.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="no parameter 'wisdom'"):
        make_policy(str(tmp_path / "tuned.json"), demos)


def test_too_many_neighbors_are_said(demos):
    with pytest.warns(ClosedFormWarning, match="only 108 windows"):
        make_policy("paper", demos, ["n_neighbors=109"])
