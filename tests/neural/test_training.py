"""Training: what is learned, and that nothing is lost on the way."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from closedform import Demos, save_demos
from closedform.cli import main
from closedform.device import choose_device
from closedform.errors import ConfigError, DataError, LoadError
from closedform.neural.config import NeuralConfig, TrainingConfig
from closedform.neural.data import training_data
from closedform.neural.dit import DiT
from closedform.neural.policy import FILES, NeuralPolicy
from closedform.neural.training import Trainer
from tests.conftest import planar_demos
from tests.evaluation.toy import reach_demos

SMALL = NeuralConfig(width=32, n_heads=2, n_blocks=1, observation_hidden=16, observation_embedding=16)


@pytest.fixture(scope="module")
def data():
    return training_data(reach_demos(), SMALL)


def trainer(data, **changes):
    return Trainer(data, SMALL, TrainingConfig(n_steps=40, batch_size=16, warm_up=4, **changes))


def test_the_network_has_the_papers_size():
    network = DiT(NeuralConfig(), n_features=10, n_numbers=2)
    assert sum(parameter.numel() for parameter in network.parameters()) == pytest.approx(4.07e6, rel=0.005)


def test_before_training_the_network_predicts_nothing_and_afterwards_depends_on_everything(data):
    network = DiT(SMALL, data.features.shape[1], 2)
    chunk, features = torch.randn(3, 8, 2), torch.randn(3, data.features.shape[1])
    level = torch.tensor([1, 50, 100])
    assert not network(chunk, level, features).any()  # adaLN-zero
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    out = network(chunk, level, features)
    for changed in ((chunk + 1, level, features), (chunk, level + 1, features), (chunk, level, features + 1)):
        assert not torch.allclose(network(*changed), out)
    alone = network(chunk[1:2], level[1:2], features[1:2])
    assert torch.allclose(alone, out[1:2], atol=1e-5)  # samples of a batch do not see each other


def test_windows_are_normalized_and_can_be_brought_back(data):
    demos = reach_demos()
    norm = data.normalization
    assert data.chunks.shape == (300, 8, 2) and np.abs(data.chunks).max() == pytest.approx(1)
    assert np.allclose(data.chunks[3, 0] / norm.action_scale + norm.action_offset, demos[0].actions[3], atol=1e-6)
    assert np.allclose(norm.mean, data.features.mean(0), atol=1e-5)
    some = training_data(demos, SMALL, keep=np.arange(300) < 20)
    assert len(some.features) == 20 and np.array_equal(some.features, data.features[:20])


def test_training_lowers_the_loss(data):
    made = trainer(data)
    made.run(3)
    before = float(made.loss)
    made.run(1000)
    assert made.step == 40  # no further than to the end
    assert float(made.loss) < before
    assert not torch.equal(made.average, made.weights)


def test_a_training_that_was_killed_goes_on_exactly(data, tmp_path):
    whole = trainer(data)
    whole.run(20)
    part = trainer(data)
    part.run(11)
    part.save(tmp_path)
    part.run(3)  # lost
    again = trainer(data)
    assert again.load(tmp_path) and again.step == 11
    again.run(9)
    for name, tensor in whole.state().items():
        assert torch.equal(tensor, again.state()[name]), name


def test_checkpoints_of_other_trainings_are_refused(data, tmp_path):
    made = trainer(data)
    made.save(tmp_path)
    with pytest.raises(LoadError, match="expected a checkpoint of this training"):
        trainer(data, seed=1).load(tmp_path)
    with pytest.raises(LoadError, match="found one with data"):  # as many windows, of other demonstrations
        trainer(replace(data, features=data.features + 1)).load(tmp_path)
    state = made.state()
    del state["random"]
    save_file(state, tmp_path / "training.safetensors", metadata={"subject": json.dumps(made._subject())})
    with pytest.raises(LoadError, match="expected a checkpoint of this training, found arrays of other shapes"):
        made.load(tmp_path)
    (tmp_path / "training.safetensors").write_bytes(b"damaged")
    with pytest.raises(LoadError, match="expected a complete checkpoint"):
        made.load(tmp_path)
    assert not made.load(tmp_path / "nowhere")


def test_the_policy_acts_saves_and_loads(data, tmp_path):
    made = trainer(data)
    made.run(5)
    policy = NeuralPolicy.of(SMALL, made.average, data).with_sampling("ddim", 5)
    agent = policy.agent(seed=3)
    observation = reach_demos()[0].observations[0]
    first = agent.act(observation)
    assert first.shape == (2,) and agent.last_plan is not None and not len(agent.last_plan.episodes)
    assert policy.sample(np.stack([observation] * 3), 2, seed=0).shape == (3, 2, 8, 2)
    policy.save(tmp_path / "policy")
    loaded = NeuralPolicy.load(tmp_path / "policy")
    assert np.array_equal(loaded.plan(observation, seed=1).actions, policy.plan(observation, seed=1).actions)
    expected = policy.plan(observation, seed=1).actions
    for precision in ("half", "byte"):
        policy.save(tmp_path / precision, precision=precision)
        rounded = NeuralPolicy.load(tmp_path / precision)
        assert rounded.plan(observation, seed=1).actions == pytest.approx(expected, abs=0.05)
        rounded.save(tmp_path / "again")
        assert NeuralPolicy.load(tmp_path / "again").fingerprint() == rounded.fingerprint()
    far = policy.plan(observation + 100, seed=0).distance
    assert far > 10 * policy.plan(observation, seed=0).distance


def test_damaged_policies_are_refused(data, tmp_path):
    policy = NeuralPolicy.of(SMALL, trainer(data).average, data)
    policy.save(tmp_path / "policy")
    with pytest.raises(LoadError, match="weights for this network"):
        NeuralPolicy.of(NeuralConfig(), trainer(data).average, data)
    config = (tmp_path / "policy" / "config.json").read_text()
    (tmp_path / "policy" / "config.json").write_text(config.replace('"width": 32', '"width": 64'))
    with pytest.raises(LoadError, match=r"expected weights of shape \(\d+,\) according to config.json, found \(\d+,\)"):
        NeuralPolicy.load(tmp_path / "policy")
    (tmp_path / "policy" / "config.json").write_text(config.replace('"n_obs_steps": 2', '"n_obs_steps": 3'))
    with pytest.raises(LoadError, match="expected feature_offset of shape"):
        NeuralPolicy.load(tmp_path / "policy")
    (tmp_path / "policy" / "config.json").write_text(config)
    path, whole = tmp_path / "policy" / "policy.safetensors", load_file(tmp_path / "policy" / "policy.safetensors")
    for change, message in (
        ({"action_scale": torch.ones(1)}, r"expected action_scale of shape \(2,\)"),
        ({"weights": whole["weights"] * np.nan}, "expected finite numbers in weights, found non-finite ones"),
        ({"weights": whole["weights"] + 1e-3}, "the files are damaged"),
    ):
        save_file({**whole, **change}, path)
        with pytest.raises(LoadError, match=message):
            NeuralPolicy.load(tmp_path / "policy")
    wrong = replace(data.normalization, covariance=-data.normalization.covariance)
    with pytest.raises(DataError, match="expected a positive definite covariance of the training observations"):
        NeuralPolicy.of(SMALL, trainer(data).average, replace(data, normalization=wrong))
    path.unlink()
    with pytest.raises(LoadError, match=r"expected policy\.safetensors beside"):
        NeuralPolicy.load(tmp_path / "policy")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 30}, "width: expected a multiple of twice the 10 heads"),
        ({"n_execute": 9}, r"n_execute: expected at most n_action_steps \(8\)"),
        ({"n_blocks": 0}, "n_blocks: expected a whole number of at least 1"),
        ({"sampler": "euler"}, "sampler: expected ddpm or ddim"),
        (
            {"sampler": "ddim", "n_sampling_steps": 200},
            "at most as many steps as the 100 levels of the DDPM process, found 200",
        ),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ConfigError, match=message):
        NeuralConfig(**parameters)


def test_the_command_trains_goes_on_and_gives_a_policy(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("closedform.neural.config.NeuralConfig", lambda: SMALL)
    save_demos(planar_demos(np.random.default_rng(0)), tmp_path / "demos")
    common = ["train", str(tmp_path / "demos"), "-o", str(tmp_path / "policy"), "--batch-size", "8", "--device", "cpu"]
    main([*common, "--steps", "6", "--save-every", "3"])
    said = capsys.readouterr().out
    assert "6 steps" in said and "step 3 of 6, loss " in said
    main(["info", str(tmp_path / "policy")])
    assert "NeuralPolicy of" in capsys.readouterr().out
    main([*common, "--steps", "6"])
    assert "resuming from step 6" in capsys.readouterr().out
    main([*common, "--steps", "7"])
    said = capsys.readouterr().out
    assert "resuming from step 6" in said and "7 steps" in said
    with pytest.raises(SystemExit):
        main([*common, "--steps", "7", "--seed", "1"])
    assert "expected a checkpoint of this training" in capsys.readouterr().err


def test_a_kill_while_it_was_saving_costs_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("closedform.neural.config.NeuralConfig", lambda: SMALL)
    save_demos(reach_demos(), tmp_path / "demos")
    common = ["train", str(tmp_path / "demos"), "-o", str(tmp_path / "policy"), "--batch-size", "8", "--device", "cpu"]
    (tmp_path / "policy").mkdir()
    for name in (".policy.safetensors.new", ".config.json.new", ".training.safetensors.new"):
        (tmp_path / "policy" / name).write_bytes(b"half of it")
    main([*common, "--steps", "4", "--save-every", "2"])
    assert "4 steps" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "policy").iterdir()} == set(FILES)


def test_evaluations_come_when_they_are_due(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("closedform.neural.config.NeuralConfig", lambda: SMALL)
    save_demos(reach_demos(), tmp_path / "demos")
    common = ["train", str(tmp_path / "demos"), "-o", str(tmp_path / "policy"), "--batch-size", "8", "--device", "cpu"]
    toy = ["--env", "tests.evaluation.toy:Reach", "--eval-every", "3", "--eval-episodes", "1", "--save-every", "2"]
    main([*common, *toy, "--steps", "7"])
    said = capsys.readouterr()
    assert [f"step {step}: score" in said.out + said.err for step in range(1, 8)] == [
        s in (3, 6, 7) for s in range(1, 8)
    ]


def test_what_cannot_end_well_is_said_before_training(tmp_path, capsys):
    save_demos(reach_demos(), tmp_path / "demos")
    common = ["train", str(tmp_path / "demos"), "--steps", "1", "--device", "cpu"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"mine": 1}')
    short = reach_demos()[0]
    save_demos(
        Demos([(short.observations[:1], short.actions[:1])], reach_demos().observation_layout), tmp_path / "short"
    )
    for arguments, message in (
        ([*common, "-o", str(tmp_path / "mine")], "expected an empty folder or a neural policy to replace"),
        ([*common, "-o", str(tmp_path / "new"), "--env", "nowhere"], "unknown environment 'nowhere'"),
        ([*common, "-o", str(tmp_path / "new"), "--device", "gpu"], "expected auto, cpu, cuda or cuda:NUMBER"),
        (["train", str(tmp_path / "short"), "-o", str(tmp_path / "new")], "expected at least two windows"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err
    assert (tmp_path / "mine" / "config.json").read_text() == '{"mine": 1}'


def test_a_gpu_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    with pytest.raises(ConfigError, match="expected a GPU that torch can use, found none"):
        choose_device("cuda")
