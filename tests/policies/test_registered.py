"""Registered policies and formats: what is saved under a name is read by whoever registered it."""

import json

import numpy as np
import pytest

from closedform import ClosedFormPolicy, NearestNeighborPolicy, Policy, load_policy
from closedform.errors import LoadError
from closedform.policies import folder
from closedform.policies.saving import POLICIES, READERS, register_policy, register_reader
from tests.evaluation.toy import reach_demos


class Mirrored(NearestNeighborPolicy):
    """A policy from outside of the package."""


def test_a_class_from_outside_is_loaded_once_it_is_registered(tmp_path, monkeypatch):
    monkeypatch.setattr("closedform.policies.saving.POLICIES", POLICIES.copy())
    policy = Mirrored(reach_demos(3))
    policy.save(tmp_path / "policy")
    with pytest.raises(LoadError, match="Mirrored"):
        load_policy(tmp_path / "policy")
    register_policy(Mirrored)
    again = Mirrored.load(tmp_path / "policy")
    observation = reach_demos(1)[0].observations[0]
    assert type(again) is Mirrored
    assert np.array_equal(again.plan(observation, seed=0).actions, policy.plan(observation, seed=0).actions)


def test_every_format_that_a_folder_can_have_has_a_reader():
    assert set(READERS) == {folder.NEURAL, folder.LEROBOT, folder.EDITED}
    assert set(POLICIES) == {"ClosedFormPolicy", "NearestNeighborPolicy", "KernelRegressionPolicy", "VINNPolicy"}


def test_a_reader_gets_the_folder_and_its_configuration(tmp_path, monkeypatch):
    monkeypatch.setattr("closedform.policies.saving.READERS", READERS.copy())
    policy = ClosedFormPolicy(reach_demos(3))

    @register_reader(folder.NEURAL)
    def read(snapshot, content) -> Policy:
        assert snapshot.folder == tmp_path and content["width"] == 7
        return policy

    content = {"format": folder.NEURAL, "format_version": folder.FORMAT_VERSION, "width": 7}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert load_policy(tmp_path) is policy
