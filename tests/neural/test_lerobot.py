"""LeRobot's checkpoints: the published names and shapes, the published arithmetic, and every normalization."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from closedform import Demos, load_policy
from closedform.editing.augmented_policy import AugmentedPolicy
from closedform.editing.edited_policy import demonstrations_for
from closedform.editing.guided_policy import GuidedPolicy
from closedform.errors import LoadError
from closedform.neural.config import UNetConfig
from closedform.neural.policy import NeuralPolicy
from closedform.neural.unet import UNet

DIMS = (8, 16, 24)
CONFIG = {
    "type": "diffusion",
    "n_obs_steps": 2,
    "horizon": 16,
    "n_action_steps": 8,
    "normalization_mapping": {"VISUAL": "MEAN_STD", "STATE": "MIN_MAX", "ACTION": "MIN_MAX"},
    "input_features": {
        "observation.state": {"type": "STATE", "shape": [2]},
        "observation.environment_state": {"type": "ENV", "shape": [3]},
    },
    "output_features": {"action": {"type": "ACTION", "shape": [2]}},
    "vision_backbone": "resnet18",
    "down_dims": list(DIMS),
    "kernel_size": 5,
    "n_groups": 4,
    "diffusion_step_embed_dim": 12,
    "use_film_scale_modulation": True,
    "noise_scheduler_type": "DDPM",
    "num_train_timesteps": 100,
    "beta_schedule": "squaredcos_cap_v2",
    "beta_start": 0.0001,
    "beta_end": 0.02,
    "prediction_type": "epsilon",
    "clip_sample": True,
    "clip_sample_range": 1.0,
    "num_inference_steps": None,
    "do_mask_loss_for_padding": False,
}
LIMITS = {"min": torch.tensor([0.0, 10.0]), "max": torch.tensor([512.0, 410.0])}


def published_shapes(config):
    """The names and shapes in model.safetensors, written down from LeRobot's file and not from ours."""
    action, dims, k = config["output_features"]["action"]["shape"][0], config["down_dims"], config["kernel_size"]
    embed = config["diffusion_step_embed_dim"]
    seen = config["n_obs_steps"] * sum(f["shape"][0] for f in config["input_features"].values())
    shapes = {}

    def layer(name, *shape):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = shape, (shape[0],)

    def convolution(name, n_in, n_out):
        layer(f"{name}.block.0", n_out, n_in, k)
        layer(f"{name}.block.1", n_out)

    def residual(name, n_in, n_out):
        convolution(f"{name}.conv1", n_in, n_out)
        layer(f"{name}.cond_encoder.1", n_out * (2 if config["use_film_scale_modulation"] else 1), embed + seen)
        convolution(f"{name}.conv2", n_out, n_out)
        if n_in != n_out:
            layer(f"{name}.residual_conv", n_out, n_in, 1)

    layer("diffusion_step_encoder.1", 4 * embed, embed)
    layer("diffusion_step_encoder.3", embed, 4 * embed)
    for i, (n_in, n_out) in enumerate(zip([action, *dims[:-1]], dims, strict=True)):
        residual(f"down_modules.{i}.0", n_in, n_out)
        residual(f"down_modules.{i}.1", n_out, n_out)
        if i < len(dims) - 1:
            layer(f"down_modules.{i}.2", n_out, n_out, 3)
    for i in range(2):
        residual(f"mid_modules.{i}", dims[-1], dims[-1])
    for i, (n_in, n_out) in enumerate(zip(dims[:0:-1], dims[-2::-1], strict=True)):
        residual(f"up_modules.{i}.0", 2 * n_in, n_out)
        residual(f"up_modules.{i}.1", n_out, n_out)
        shapes[f"up_modules.{i}.2.weight"], shapes[f"up_modules.{i}.2.bias"] = (n_out, n_out, 4), (n_out,)
    convolution("final_conv.0", dims[0], dims[0])
    layer("final_conv.1", action, dims[0], 1)
    return {f"diffusion.unet.{name}": shape for name, shape in shapes.items()}


def published_forward(w, x, timestep, condition, config):
    """The network's arithmetic step by step, from the tensors of a checkpoint. (B, T, D) -> (B, T, D)."""
    w = {name.removeprefix("diffusion.unet."): tensor for name, tensor in w.items()}
    half = config["diffusion_step_embed_dim"] // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
    angles = timestep[:, None] * rates[None]
    embedded = torch.cat([angles.sin(), angles.cos()], -1)

    def linear(name, v):
        return v @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def convolution(name, v, groups):
        v = F.conv1d(v, w[f"{name}.block.0.weight"], w[f"{name}.block.0.bias"], padding=config["kernel_size"] // 2)
        return F.mish(F.group_norm(v, groups, w[f"{name}.block.1.weight"], w[f"{name}.block.1.bias"]))

    def residual(name, v, c):
        out = convolution(f"{name}.conv1", v, config["n_groups"])
        film = linear(f"{name}.cond_encoder.1", F.mish(c))[..., None]
        n = out.shape[1]
        out = film[:, :n] * out + film[:, n:] if config["use_film_scale_modulation"] else out + film
        out = convolution(f"{name}.conv2", out, config["n_groups"])
        if f"{name}.residual_conv.weight" in w:
            v = F.conv1d(v, w[f"{name}.residual_conv.weight"], w[f"{name}.residual_conv.bias"])
        return out + v

    c = torch.cat(
        [linear("diffusion_step_encoder.3", F.mish(linear("diffusion_step_encoder.1", embedded))), condition], 1
    )
    v, skips, depth = x.transpose(1, 2), [], len(config["down_dims"])
    for i in range(depth):
        v = residual(f"down_modules.{i}.1", residual(f"down_modules.{i}.0", v, c), c)
        skips.append(v)
        if i < depth - 1:
            name = f"down_modules.{i}.2"
            v = F.conv1d(v, w[f"{name}.weight"], w[f"{name}.bias"], stride=2, padding=1)
    for i in range(2):
        v = residual(f"mid_modules.{i}", v, c)
    for i in range(depth - 1):
        v = residual(f"up_modules.{i}.1", residual(f"up_modules.{i}.0", torch.cat([v, skips.pop()], 1), c), c)
        name = f"up_modules.{i}.2"
        v = F.conv_transpose1d(v, w[f"{name}.weight"], w[f"{name}.bias"], stride=2, padding=1)
    v = convolution("final_conv.0", v, 8)
    return F.conv1d(v, w["final_conv.1.weight"], w["final_conv.1.bias"]).transpose(1, 2)


def random_weights(config):
    torch.manual_seed(0)
    return {name: 0.3 * torch.randn(shape) for name, shape in published_shapes(config).items()}


def write_checkpoint(folder, config=CONFIG, *, old=False, weights=None):
    """A checkpoint as LeRobot writes it: statistics in the model's file until 0.3, beside it since."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    weights = dict(random_weights(config) if weights is None else weights)
    if old:
        for side, key in (("normalize_inputs", "observation_state"), ("unnormalize_outputs", "action")):
            weights |= {f"{side}.buffer_{key}.{name}": value.clone() for name, value in LIMITS.items()}
    else:
        statistics = {f"{key}.{n}": v.clone() for key in ("observation.state", "action") for n, v in LIMITS.items()}
        save_file(statistics, folder / "policy_preprocessor_step_3_normalizer_processor.safetensors")
        save_file(statistics, folder / "policy_postprocessor_step_0_unnormalizer_processor.safetensors")
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_the_network_is_the_published_one(tmp_path, old, scale):
    config = {**CONFIG, "use_film_scale_modulation": scale}
    policy = NeuralPolicy.load(write_checkpoint(tmp_path / "p", config, old=old))
    windows = np.random.default_rng(0).uniform(100, 400, (3, 2, 5))
    noise, level = torch.randn(3, 1, 32), 41
    normalized = torch.as_tensor(windows, dtype=torch.float32).clone()
    for i, (low, high) in enumerate(zip(LIMITS["min"], LIMITS["max"], strict=True)):
        normalized[..., i] = (normalized[..., i] - low) / (high - low) * 2 - 1  # the environment's are as they are
    expected = published_forward(
        random_weights(config),
        noise.reshape(3, 16, 2),
        torch.full((3,), level - 1.0),
        normalized.reshape(3, 10),
        config,
    )
    denoiser = policy.denoiser(policy.features_of(windows))
    assert torch.allclose(denoiser.predict(noise, level).reshape(3, 16, 2), expected, rtol=1e-4, atol=1e-4)


def test_the_published_size():
    config = {**CONFIG, "down_dims": [512, 1024, 2048], "n_groups": 8, "diffusion_step_embed_dim": 128}
    with torch.device("meta"):
        network = UNet(UNetConfig(n_action_steps=16), 10, 2)
    shapes = {f"diffusion.unet.{name}": tuple(p.shape) for name, p in network.named_parameters()}
    assert shapes == {name: tuple(shape) for name, shape in published_shapes(config).items()}


def test_plans_begin_now_and_are_in_the_robots_units(tmp_path):
    policy = NeuralPolicy.load(write_checkpoint(tmp_path / "p"))
    plan = policy.plan(np.full(5, 200.0), seed=0)
    assert plan.actions.shape == (15, 2)  # its first action is past
    within = (plan.actions > np.array([0, 10]) - 1e-3) & (plan.actions < np.array([512, 410]) + 1e-3)
    assert within.all()  # clipped to what was demonstrated
    assert policy.config.n_execute == 8
    policy.save(tmp_path / "saved")
    again = load_policy(tmp_path / "saved").plan(np.full(5, 200.0), seed=0)
    assert again.actions == pytest.approx(plan.actions, abs=1e-2)


def test_it_can_be_edited(tmp_path):
    policy = NeuralPolicy.load(write_checkpoint(tmp_path / "p"))
    rng = np.random.default_rng(0)
    demos = Demos([(o := rng.uniform(100, 400, (40, 5)), o[:, :2] + 5) for _ in range(4)])
    forms = [demonstrations_for(policy, part) for part in (demos[:2], demos)]
    guided = GuidedPolicy(policy, *forms, w=1.0)
    assert np.array_equal(
        GuidedPolicy(policy, *forms, w=0.0).plan(demos[3].observations[5], seed=1).actions,
        policy.plan(demos[3].observations[5], seed=1).actions,
    )
    assert guided.plan(demos[3].observations[5], seed=1).actions.shape == (15, 2)
    # Far from its statistics only the demonstrations know, and the action before now is the one before theirs.
    away = Demos([(e.observations + 5000, e.actions) for e in demos])
    augmented = AugmentedPolicy(policy, demonstrations_for(policy, away, tau=0.0))
    row = 20
    plan = augmented.plan(away[1].observations[row - 1 : row + 1], seed=0)
    assert plan.neural_share < 1e-6
    assert plan.actions == pytest.approx(away[1].actions[row : row + 15], abs=1e-2)
    novel = augmented.demonstrations["novel"]
    step = novel.store.row_steps[row]
    assert np.array_equal(augmented._chunks(novel, np.array([row]))[0], away[0].actions[step - 1 : step + 15])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta_schedule": "linear"}, "expected beta_schedule to be squaredcos_cap_v2, found 'linear'"),
        ({"prediction_type": "v"}, "expected prediction_type to be epsilon or sample"),
        ({"horizon": 18, "n_action_steps": 8}, "n_action_steps: expected a multiple of 4, found 18"),
        ({"horizon": None}, "n_action_steps: expected a whole number"),
        ({"down_dims": [8, 16]}, "expected the weights that config.json implies, found"),
        ({"kernel_size": 3}, "size mismatch"),
        ({"normalization_mapping": {"STATE": "MEAN_STD"}}, r"expected statistics of observation\.state"),
        ({"input_features": {"observation.state": "STATE"}}, "expected LeRobot's diffusion policy"),
        ({"input_features": {"observation.environment_state": {"type": "ENV", "shape": [3]}}}, "found none"),
        ({"normalization_mapping": None}, "or no normalization_mapping"),
        ({"input_features": {"top": {"type": "VISUAL", "shape": [3, 96, 96]}}}, "found one that observes top"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(tmp_path, change, message):
    weights = random_weights(CONFIG)
    folder = write_checkpoint(tmp_path / "p", {**CONFIG, **change}, weights=weights)
    with pytest.raises(LoadError, match=message):
        load_policy(folder)


def test_a_number_that_never_changes_is_what_it_is_in_lerobot(tmp_path):
    limits = {"min": torch.tensor([7.0, 10.0]), "max": torch.tensor([7.0, 410.0])}
    folder = write_checkpoint(tmp_path / "p")
    statistics = {f"{key}.{n}": v.clone() for key in ("observation.state", "action") for n, v in limits.items()}
    for path in folder.glob("policy_*normalizer_processor.safetensors"):
        save_file(statistics, path)
    window = np.array([[[7.0, 210.0, 1, 2, 3]] * 2])
    assert NeuralPolicy.load(folder).features_of(window)[0, :5] == pytest.approx([-1, 0, 1, 2, 3], abs=1e-6)


def test_missing_and_damaged_files(tmp_path):
    folder = write_checkpoint(tmp_path / "p")
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(LoadError, match="expected a complete safetensors file"):
        load_policy(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match=r"expected model\.safetensors beside config"):
        load_policy(folder)
