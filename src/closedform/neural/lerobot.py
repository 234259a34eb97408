"""LeRobot's DiffusionPolicy checkpoints on state observations, without installing lerobot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from closedform.errors import LoadError
from closedform.files import name_of
from closedform.geometry.layout import Layout
from closedform.neural.config import UNetConfig
from closedform.neural.data import Normalization
from closedform.neural.policy import NeuralPolicy, count_weights, make_network
from closedform.snapshot import Snapshot

_STATE, _ENVIRONMENT, _ACTION = "observation.state", "observation.environment_state", "action"
_PREFIX = "diffusion.unet."
_NETWORK = ("down_dims", "kernel_size", "n_groups", "diffusion_step_embed_dim", "use_film_scale_modulation")
_MAX_FEATURES = 4096  # numbers in an observation window
_CORRELATION = 0.99  # assumed between consecutive observations, of which a checkpoint keeps no statistics


def read_lerobot(snapshot: Snapshot, content: dict[str, Any]) -> NeuralPolicy:
    """Reads a checkpoint, given the content of its config.json.

    Observations are `observation.state` followed by `observation.environment_state`, if there is one, with a plain
    layout. The policy can act, be edited and be saved like any other.

    A checkpoint only has per-number ranges or moments, from which an approximate mean and covariance are derived;
    to augment the policy, pass its training demonstrations as well (`AugmentedPolicy(familiar=...)`).
    """
    folder = snapshot.folder
    try:
        images = [name for name, feature in content["input_features"].items() if feature["type"] == "VISUAL"]
        known = _STATE in content["input_features"] and isinstance(content["normalization_mapping"], dict)
    except (AttributeError, KeyError, TypeError) as error:
        raise LoadError(f"{folder / 'config.json'}: expected LeRobot's diffusion policy, found {error!r}") from error
    if images or not known:
        found = f"one that observes {', '.join(images)}" if images else f"none of {_STATE}, or no normalization_mapping"
        raise LoadError(f"{folder}: expected a policy on state observations, found {found}")
    _check(folder, content, "beta_schedule", ("squaredcos_cap_v2",))
    _check(folder, content, "prediction_type", ("epsilon", "sample"))
    _check(folder, content, "noise_scheduler_type", ("DDPM", "DDIM"))
    try:
        names = [name for name in (_STATE, _ENVIRONMENT) if name in content["input_features"]]
        widths = {name: _width(content["input_features"][name]) for name in names}
        widths[_ACTION] = _width(content["output_features"][_ACTION])
        config = UNetConfig(
            n_obs_steps=content["n_obs_steps"],
            n_action_steps=content["horizon"],
            n_execute=content["n_action_steps"],
            n_past=content["n_obs_steps"] - 1,  # chunks begin at the first observation of a window
            n_diffusion_steps=content["num_train_timesteps"],
            n_sampling_steps=content.get("num_inference_steps") or content["num_train_timesteps"],
            sampler="ddpm" if content["noise_scheduler_type"] == "DDPM" else "ddim",
            prediction="epsilon" if content["prediction_type"] == "epsilon" else "denoised",
            bound=float(content["clip_sample_range"]) if content["clip_sample"] else None,
            **{name: content[name] for name in _NETWORK},
        )
        n_features = config.n_obs_steps * sum(widths[name] for name in names)
        if n_features > _MAX_FEATURES:
            raise ValueError(f"{n_features} numbers in an observation window, of at most {_MAX_FEATURES}")
        n_expected = count_weights(config, n_features, widths[_ACTION])
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise LoadError(f"{folder / 'config.json'}: expected LeRobot's diffusion policy, found {error!r}") from error
    tensors = _tensors(snapshot)
    weights = {name.removeprefix(_PREFIX): value for name, value in tensors.items() if name.startswith(_PREFIX)}
    n_found = sum(value.numel() for value in weights.values())
    if n_expected > 4 * n_found:  # the network would be far larger than the file
        raise LoadError(f"{folder}: expected the {n_expected} weights that config.json implies, found {n_found}")
    try:
        model = make_network(config, n_features, widths[_ACTION])
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        said = str(error).splitlines()
        raise LoadError(
            f"{folder}: expected the weights that config.json implies, found: {said[-1].strip()}"
        ) from error
    seen = [_scaling(folder, content, tensors, name, widths[name]) for name in names]
    offset, scale, mean, deviation = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    action_offset, action_scale, *_ = _scaling(folder, content, tensors, _ACTION, widths[_ACTION])
    steps = config.n_obs_steps
    numbers = offset, scale, mean, deviation, action_offset, action_scale
    if not all(np.isfinite(part).all() for part in (*numbers, *(p.numpy() for p in model.state_dict().values()))):
        raise LoadError(f"{folder}: expected finite weights and statistics, found non-finite ones")
    variance = np.diag((deviation * scale) ** 2)
    return NeuralPolicy(
        config,
        torch.nn.utils.parameters_to_vector(model.parameters()),
        Layout.plain(sum(widths[name] for name in names)),
        Layout.plain(widths[_ACTION]),
        Normalization(
            feature_offset=np.tile(offset, steps),
            feature_scale=np.tile(scale, steps),
            action_offset=action_offset,
            action_scale=action_scale,
            mean=np.tile((mean - offset) * scale, steps),
            covariance=np.kron(_CORRELATION + (1 - _CORRELATION) * np.eye(steps), variance),
        ),
    )


def _check(folder: Path, content: dict[str, Any], name: str, allowed: tuple[str, ...]) -> None:
    if content.get(name) not in allowed:
        raise LoadError(
            f"{folder / 'config.json'}: expected {name} to be {' or '.join(allowed)}, found {content.get(name)!r}"
        )


def _width(feature: dict[str, Any]) -> int:
    """The width of an input or output."""
    width = feature["shape"][0]
    if type(width) is not int or not 1 <= width <= _MAX_FEATURES:
        raise ValueError(f"a shape of {str(width)[:30]} instead of 1 to {_MAX_FEATURES} numbers")
    return width


def _tensors(snapshot: Snapshot) -> dict[str, torch.Tensor]:
    """The weights and the statistics, which newer versions of LeRobot store in separate files."""
    names = [name for name in snapshot.files if name.endswith("normalizer_processor.safetensors")]
    if "model.safetensors" not in snapshot.files:
        raise LoadError(f"{snapshot.folder}: expected model.safetensors beside config.json, found none")
    found: dict[str, torch.Tensor] = {}
    for name in ["model.safetensors", *sorted(names)]:
        file, path = snapshot.files[name], snapshot.folder / name
        try:
            found |= load_file(name_of(file, path))
        except (OSError, SafetensorError, ValueError, KeyError, RuntimeError) as error:
            raise LoadError(f"{path}: expected a complete safetensors file, found {error}") from error
    return found


def _scaling(
    folder: Path, content: dict[str, Any], tensors: dict[str, torch.Tensor], name: str, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offset, scale, mean and standard deviation of an input or output; the network sees (x - offset) * scale."""
    kind = {_ACTION: "ACTION", _ENVIRONMENT: "ENV", _STATE: "STATE"}[name]
    mode = str(content["normalization_mapping"].get(kind, "IDENTITY")).upper()
    buffers = (
        f"{name}.",
        f"{'unnormalize_outputs' if name == _ACTION else 'normalize_inputs'}.buffer_{name.replace('.', '_')}.",
    )

    def statistic(which: str) -> np.ndarray | None:
        for buffer in buffers:
            found = tensors.get(buffer + which)
            if found is not None and found.numel() != width:
                raise LoadError(f"{folder}: expected {width} numbers for {which} of {name}, found {found.numel()}")
            if found is not None:
                return found.double().numpy().reshape(width)
        return None

    low, high, mean, deviation = (statistic(which) for which in ("min", "max", "mean", "std"))
    if mode == "IDENTITY":
        offset, scale = np.zeros(width), np.ones(width)
    elif mode == "MIN_MAX" and low is not None and high is not None:
        scale = 2 / (high - low + 1e-8)  # so that a constant number becomes -1, as in LeRobot
        offset = low + 1 / scale
    elif mode == "MEAN_STD" and mean is not None and deviation is not None:
        offset, scale = mean, 1 / (deviation + 1e-8)
    else:
        raise LoadError(f"{folder}: expected statistics of {name} for its normalization {mode}, found none")
    mean = offset if mean is None else mean
    return offset, scale, mean, 1 / (np.sqrt(3) * scale) if deviation is None else deviation  # of a uniform one
