"""Saved networks: nothing is made before its size is known, and a damaged or hostile folder is refused in one line."""

import json
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from closedform import ClosedFormError, load_policy
from closedform.editing.edited_policy import demonstrations_for
from closedform.editing.guided_policy import GuidedPolicy
from closedform.errors import ConfigError, LoadError, SaveError
from closedform.neural import policy as policy_module
from closedform.neural.config import NeuralConfig, TrainingConfig, UNetConfig
from closedform.neural.data import training_data
from closedform.neural.policy import NeuralPolicy, count_weights, make_network
from closedform.neural.training import Trainer
from closedform.policies.saving import verify
from tests.conftest import random_demos
from tests.neural.test_lerobot import CONFIG as LEROBOT
from tests.policies.test_saved_folders import full_disk, strip

SMALL = NeuralConfig(
    width=8, n_blocks=1, n_heads=2, n_obs_steps=1, n_action_steps=4, n_execute=4, n_diffusion_steps=5,
    n_sampling_steps=5, observation_hidden=8, observation_embedding=8,
)  # fmt: skip
DEMOS = random_demos(np.random.default_rng(0), 3, 30, 3, 2)


def neural(seed=0):
    torch.manual_seed(seed)
    return NeuralPolicy.of(SMALL, 0.1 * torch.randn(count_weights(SMALL, 3, 2)), training_data(DEMOS, SMALL))


def edited(seed=0):
    policy = neural(seed)
    return GuidedPolicy(policy, demonstrations_for(policy, DEMOS[:2]), demonstrations_for(policy, DEMOS), w=0.5)


def actions(policy):
    return policy.sample(np.linspace(-1, 1, 6).reshape(2, 3), 1, seed=0)


@settings(max_examples=25)
@given(st.data())
def test_the_number_of_weights_is_told_without_making_the_network(data):
    def number(low, high):
        return data.draw(st.integers(low, high))

    n_heads, sizes = number(1, 4), (number(1, 9), number(1, 9))
    transformer = NeuralConfig(
        width=2 * n_heads * number(1, 4), n_heads=n_heads, n_blocks=number(1, 3), observation_hidden=number(1, 20),
        observation_embedding=2 * number(1, 9),
    )  # fmt: skip
    unet = UNetConfig(
        n_action_steps=16, n_execute=1, kernel_size=2 * number(0, 3) + 1, diffusion_step_embed_dim=2 * number(2, 9),
        down_dims=tuple(8 * number(1, 4) for _ in range(number(1, 3))),
        use_film_scale_modulation=data.draw(st.booleans()),
    )  # fmt: skip
    for config in (transformer, unet):
        weights = make_network(config, *sizes).parameters()
        assert count_weights(config, *sizes) == sum(weight.numel() for weight in weights)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_blocks": 10**9},
        {"width": 10**9, "n_heads": 1},
        {"n_diffusion_steps": 10**9},
        {"n_obs_steps": 10**400},
        {"n_action_steps": 2**63},
        {"observation_hidden": 10**18},
        {"observation_embedding": 9},
        {"n_sampling_steps": 10**9},
    ],
)
def test_a_network_beyond_all_bounds_is_refused(parameters):
    with pytest.raises(ConfigError, match=rf"{next(iter(parameters))}: expected"):
        NeuralConfig(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {"down_dims": (10**9,)},
        {"down_dims": (8,) * 100},
        {"down_dims": (-8, 8)},
        {"down_dims": "16"},
        {"down_dims": 16},
        {"kernel_size": 10**9},
        {"kernel_size": 4},
        {"n_groups": 10**9},
        {"diffusion_step_embed_dim": 10**18},
        {"diffusion_step_embed_dim": 2},
        {"bound": float("nan")},
        {"bound": "1"},
        {"prediction": ["epsilon"]},
        {"use_film_scale_modulation": "no"},
    ],
)
def test_a_convolutional_network_beyond_all_bounds_is_refused(parameters):
    with pytest.raises(ConfigError, match=rf"{next(iter(parameters))}: expected"):
        UNetConfig(**{"n_action_steps": 16, "n_execute": 1, **parameters})


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"n_blocks": 200}},
        {"parameters": {"width": 65_536}},
        {"parameters": {"observation_hidden": 65_536}},
        {"parameters": {"n_blocks": 10**9}},
        {"parameters": {"width": float("inf")}},
        {"parameters": {"sampler": []}},
        {"observation_layout": [{"kind": "other", "size": 10**18, "body": None}]},
        {"action_layout": [{"kind": "other", "size": 2**63, "body": None}]},
        {"action_layout": None},
        {"crc32": 0},
    ],
)
def test_nothing_is_made_for_a_configuration_that_does_not_fit_its_weights(tmp_path, monkeypatch, change):
    neural().save(tmp_path / "policy")
    strip(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    content = json.loads(path.read_text())
    for name, value in change.items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(content))
    monkeypatch.setattr(policy_module, "make_network", lambda *_: pytest.fail("a network was made"))
    with pytest.raises(LoadError) as refused:
        load_policy(tmp_path / "policy")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", [neural, edited])
def test_a_flipped_bit_in_any_file_is_refused_or_changes_nothing(tmp_path, make):
    policy = make()
    policy.save(tmp_path / "policy")
    assert verify(tmp_path / "policy") == "all checksums match"
    expected, n_refused, n_flipped = actions(policy), 0, 0
    for path in sorted(path for path in (tmp_path / "policy").rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for at in np.unique(np.linspace(0, len(whole) - 1, 12).astype(int)):
            content = bytearray(whole)
            content[at] ^= 1 << (at % 8)
            path.write_bytes(content)
            n_flipped += 1
            try:
                assert np.array_equal(actions(load_policy(tmp_path / "policy")), expected), (path, at)
            except ClosedFormError:
                n_refused += 1
            path.write_bytes(whole)
    assert n_refused >= 0.9 * n_flipped


@pytest.mark.parametrize("make", [neural, edited])
def test_on_a_full_disk_the_old_policy_stays(tmp_path, make):
    old = make()
    old.save(tmp_path / "policy")
    with full_disk(1000), pytest.raises(SaveError, match=r"policy: expected to write it, .*nothing was changed"):
        make(1).save(tmp_path / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(old))


def test_a_checkpoint_survives_a_full_disk_a_saved_policy_and_a_crash_and_is_checked(tmp_path):
    data = training_data(DEMOS, SMALL)

    def trainer():
        return Trainer(data, SMALL, TrainingConfig(n_steps=9, batch_size=4))

    trained = trainer()
    trained.run(2)
    trained.save(tmp_path / "policy")
    trained.run(2)
    with full_disk(1000), pytest.raises(SaveError, match=r"training\.safetensors: expected to write it"):
        trained.save(tmp_path / "policy")
    neural().save(tmp_path / "policy")
    assert {path.name for path in (tmp_path / "policy").iterdir()} == set(policy_module.FILES)
    (tmp_path / "policy").rename(tmp_path / ".policy.old")  # where a crash between two renames leaves it
    resumed = trainer()
    assert resumed.load(tmp_path / "policy") and resumed.step == 2
    resumed.save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy") and [path.name for path in tmp_path.iterdir()] == ["policy"]
    path = tmp_path / "policy" / "training.safetensors"
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(LoadError, match="checksum mismatch"):
        trainer().load(tmp_path / "policy")


def test_edited_policies_do_not_nest_and_miss_no_part(tmp_path):
    edited().save(tmp_path / "policy")
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "policy", whole)

    def again():
        shutil.rmtree(tmp_path / "policy")
        shutil.copytree(whole, tmp_path / "policy")
        return tmp_path / "policy"

    shutil.rmtree(tmp_path / "policy" / "neural")
    (tmp_path / "policy" / "neural").symlink_to(tmp_path / "policy", target_is_directory=True)
    with pytest.raises(LoadError, match="expected a part of format 'closedform-neural', found 'closedform-edited'"):
        load_policy(tmp_path / "policy")
    (tmp_path / "policy" / "neural").unlink()
    with pytest.raises(LoadError, match="neural: expected a saved policy, found none"):
        load_policy(tmp_path / "policy")
    folder = again()
    shutil.rmtree(folder / "conditional")
    shutil.copytree(folder / "neural", folder / "conditional")
    with pytest.raises(LoadError, match="expected a part of format 'closedform-policy'"):
        load_policy(folder)
    content = json.loads((again() / "config.json").read_text())
    for change in (
        {"parts": [["conditional"], "unconditional"]},
        {"parts": ["conditional", "unconditional", "../whole/conditional"]},
        {"parts": ["conditional", "unconditional", "conditional"]},
        {"parts": "conditional"},
        {"parameters": {"w": float("nan")}},
        {"parameters": {"w": 10**400}},
        {"parameters": {"neural": 1}},
        {"edit": ["guide"]},
    ):
        (folder / "config.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(ClosedFormError) as refused:
            load_policy(folder)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"down_dims": [10**9]},
        {"down_dims": [65_536] * 3},
        {"kernel_size": 10**18},
        {"n_obs_steps": 10**400},
        {"n_obs_steps": float("inf")},
        {"num_train_timesteps": 10**9},
        {"clip_sample_range": 10**400},
        {"input_features": {"observation.state": {"type": "STATE", "shape": [10**18]}}},
        {"input_features": {"observation.state": {"type": "STATE", "shape": [float("inf")]}}},
        {"input_features": {"observation.state": {"type": "STATE", "shape": []}}},
        {"output_features": {"action": {"type": "ACTION", "shape": {"0": 2}}}},
        {"output_features": []},
    ],
)
def test_nothing_is_made_for_a_hostile_checkpoint_of_lerobot(tmp_path, monkeypatch, change):
    (tmp_path / "config.json").write_text(json.dumps({**LEROBOT, **change}))
    save_file({"diffusion.unet.weights": torch.zeros(3)}, tmp_path / "model.safetensors")
    monkeypatch.setattr("closedform.neural.lerobot.make_network", lambda *_: pytest.fail("a network was made"))
    with pytest.raises(LoadError) as refused:
        load_policy(tmp_path)
    assert "\n" not in str(refused.value)
