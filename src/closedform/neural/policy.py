"""NeuralPolicy: a trained diffusion network behind the same interface as all policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from safetensors.torch import save_file

from closedform.demos.episode import real_array
from closedform.device import choose_device
from closedform.diffusion.denoiser import Denoiser
from closedform.diffusion.predictor import Predictor
from closedform.diffusion.sampler import SAMPLERS, Callback
from closedform.errors import DataError, LoadError
from closedform.files import crc32
from closedform.geometry.layout import Layout
from closedform.neural.compact import compacted, expanded, n_steps
from closedform.neural.config import NeuralConfig, UNetConfig
from closedform.neural.data import Normalization, TrainingData
from closedform.neural.dit import DiT
from closedform.neural.unet import UNet
from closedform.policies.folder import (
    FORMAT_VERSION,
    as_path,
    check_seal,
    holds_only,
    is_free,
    write_content,
    write_folder,
)
from closedform.policies.folder import NEURAL as FORMAT
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed, Streams, generator
from closedform.policies.saving import read_layout
from closedform.snapshot import Snapshot
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.metric import cholesky
from closedform.weights.state import State

Precision = Literal["full", "half", "byte"]
FILES = ("config.json", "policy.safetensors", "training.safetensors")  # of a policy, and of its training
_UNFINISHED = (".policy.safetensors.new", ".config.json.new", ".training.safetensors.new")  # what a kill may leave
_ARRAYS = ("feature_offset", "feature_scale", "action_offset", "action_scale", "mean", "covariance")


class NeuralPolicy(Policy[NeuralConfig | UNetConfig]):
    """A diffusion policy whose denoiser is a network that was trained on demonstrations.

    Its plans name no demonstrations; their distance is the Mahalanobis distance of the observation to the training
    observations.

    Args:
        config: the network's parameters.
        weights: all of the network's weights as one vector.
        observation_layout, action_layout: of its demonstrations.
        normalization: the normalization used in training.
        device: the device that the network runs on.
    """

    def __init__(
        self,
        config: NeuralConfig | UNetConfig,
        weights: torch.Tensor | np.ndarray,
        observation_layout: Layout,
        action_layout: Layout,
        normalization: Normalization,
        device: str = "cpu",
    ):
        action_layout.check_commands()
        self.config = config
        self._observation_layout, self._action_layout = observation_layout, action_layout
        self.normalization = normalization
        self._features = GeometricFeatures(observation_layout)
        self._encoding = GeometricFeatures(action_layout).encoding
        self.device = torch.device(device)
        model = make_network(config, len(normalization.feature_offset), self._encoding.width)
        expected = sum(parameter.numel() for parameter in model.parameters())
        weights = torch.as_tensor(weights).detach().to(torch.float32).cpu()
        if weights.numel() != expected:
            raise LoadError(f"expected {expected} weights for this network, found {weights.numel()}")
        torch.nn.utils.vector_to_parameters(weights, model.parameters())
        self.model = model.to(self.device).eval().requires_grad_(False)
        self._whitening = np.linalg.inv(
            cholesky(normalization.covariance + 1e-9 * np.eye(len(normalization.mean)), "the training observations")
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_weights} weights, {self.config.n_diffusion_steps} noise levels)"

    def __reduce__(self) -> tuple[Any, ...]:  # to another process, which may not share this one's GPU memory
        layouts, weights = (self.observation_layout, self.action_layout), self._weights().cpu().numpy()
        return NeuralPolicy, (self.config, weights, *layouts, self.normalization, str(self.device))

    @classmethod
    def of(
        cls, config: NeuralConfig | UNetConfig, weights: torch.Tensor, data: TrainingData, device: str = "cpu"
    ) -> Self:
        """The policy of a network trained on some data."""
        return cls(config, weights, data.observation_layout, data.action_layout, data.normalization, device)

    @property
    def observation_layout(self) -> Layout:
        """The layout of observations."""
        return self._observation_layout

    @property
    def action_layout(self) -> Layout:
        """The layout of actions."""
        return self._action_layout

    @property
    def n_weights(self) -> int:
        """The number of weights of the network."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def fingerprint(self) -> dict[str, Any]:
        """The number of weights, and their checksum."""
        return {"weights": self.n_weights, "crc32": crc32([self._weights().cpu().numpy()])}

    def with_sampling(self, sampler: str, n_sampling_steps: int) -> NeuralPolicy:
        """The same network with other sampling parameters."""
        return self._with(replace(self.config, sampler=sampler, n_sampling_steps=n_sampling_steps), str(self.device))

    def to(self, device: str) -> NeuralPolicy:
        """The same network on another device; `auto` is a GPU if there is one."""
        return self._with(self.config, choose_device(device))

    def _with(self, config: NeuralConfig | UNetConfig, device: str) -> NeuralPolicy:
        layouts = (self.observation_layout, self.action_layout)
        return NeuralPolicy(config, self._weights(), *layouts, self.normalization, device)

    def warm_up(self) -> None:
        """Evaluates the network once."""
        denoiser = self.denoiser(np.zeros((1, len(self.normalization.mean))))
        denoiser(self.noise(Streams([np.random.default_rng(0)]), 1), self.config.n_diffusion_steps)

    def plan(self, observation: Any, *, seed: Seed = None) -> Plan:
        """Plans one chunk for one observation (D_o,) or window (N_o, D_o)."""
        windows = self.windows(real_array(observation, "an observation")[None])
        return self.step_together(list(windows), [self.begin()], [generator(seed)])[0][0]

    @property
    def n_together(self) -> int:
        """How many plans to make per batch: several on a CPU, many on a GPU."""
        return 512 if self.device.type == "cuda" else 25

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """Plans for several agents in one batch."""
        stacked, rng = np.stack(windows), Streams(rngs)
        actions = self.sample_with(self.denoiser(self.features_of(stacked)), 1, rng)
        return [
            (self.neural_plan(actions[i, 0], window), state)
            for i, (window, state) in enumerate(zip(stacked, states, strict=True))
        ]

    def neural_plan(self, actions: np.ndarray, window: np.ndarray) -> Plan:
        """A plan that names no demonstrations."""
        return Plan(
            actions=actions,
            frame="world",
            episodes=np.empty(0, np.int64),
            steps=np.empty(0, np.int64),
            weights=np.empty(0),
            distance=self.distance(window),
            neural_share=1.0,
        )

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a) for many observations at once."""
        windows, rng = self.check_sampling(observations, n_samples, seed)
        return self.sample_with(self.denoiser(self.features_of(windows)), n_samples, rng)

    def check_sampling(self, observations: Any, n_samples: int, seed: Seed) -> tuple[np.ndarray, Streams]:
        """Checks the arguments of `sample`; returns windows and a random stream for each."""
        windows = self.sampling_windows(observations, n_samples)
        return windows, Streams(generator(seed).spawn(len(windows)))

    def distance(self, window: np.ndarray) -> float:
        """The Mahalanobis distance of a window (N_o, D_o) to the training observations."""
        away = self._whitening @ (self.features_of(window[None])[0] - self.normalization.mean)
        return float(np.sqrt(away @ away))

    def features_of(self, windows: np.ndarray) -> np.ndarray:
        """The network's normalized features of windows (B, N_o, D_o). -> (B, D_z)."""
        return (self._features.lift(windows) - self.normalization.feature_offset) * self.normalization.feature_scale

    def denoiser(self, features: np.ndarray) -> Predictor:
        """The denoiser for features (B, D_z), on normalized chunks (B, n, N_a * D), tensors on the policy's device."""
        seen, width = self.tensor(features), self._encoding.width

        def predict(a_s: torch.Tensor, s: float) -> torch.Tensor:
            size, n_samples = a_s.shape[:2]
            level = torch.full((size * n_samples,), int(s), device=self.device)
            with torch.no_grad():
                noise = self.model(
                    a_s.reshape(size * n_samples, -1, width), level, seen.repeat_interleave(n_samples, dim=0)
                )
            return noise.reshape(a_s.shape)

        kind, bound = ("epsilon", 1.0)
        if isinstance(self.config, UNetConfig):
            kind, bound = self.config.prediction, self.config.bound
        return Predictor(self.config.make_process(), predict, kind, bound)

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a float32 tensor on the network's device."""
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)

    def noise(self, rng: Streams, n_samples: int) -> torch.Tensor:
        """The initial noise, (B, n, N_a * D)."""
        return self.tensor(
            rng.standard_normal((len(rng), n_samples, self.config.n_action_steps * self._encoding.width))
        )

    def sample_with(
        self, denoiser: Denoiser, n_samples: int, rng: Streams, callback: Callback | None = None
    ) -> np.ndarray:
        """Samples with a denoiser on this policy's normalized chunks (B, n, N_a * D).

        Returns:
            (B, n, N_a, D_a), in robot units, without past actions.
        """
        config, norm, noise = self.config, self.normalization, self.noise(rng, n_samples)
        sampler, process = SAMPLERS[config.sampler], config.make_process()
        chunks = sampler(denoiser, process, noise, n_steps=config.n_sampling_steps, rng=rng, callback=callback)
        encoded = chunks.cpu().numpy().astype(np.float64).reshape(len(rng), n_samples, config.n_action_steps, -1)
        return self._encoding.decode(encoded[:, :, -config.n_future :] / norm.action_scale + norm.action_offset)

    def normalized(self, encoded: np.ndarray) -> np.ndarray:
        """Encoded actions (..., D), normalized for the network."""
        return (encoded - self.normalization.action_offset) * self.normalization.action_scale

    def _weights(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.model.parameters())

    def save(self, folder: Any, *, precision: Precision = "full") -> None:
        """Writes config.json and policy.safetensors.

        Args:
            folder: the destination.
            precision: of the weights: full (4 bytes each), half (2), or byte (1; `closedform.neural.compact`).
        """
        write_folder(self.check_folder(folder), lambda new: self.write(new, precision=precision), keep=FILES[2:])

    def write(self, folder: Path, *, precision: Precision = "full") -> None:
        """Writes the files of the policy into an empty folder."""
        tensors = {name: torch.as_tensor(getattr(self.normalization, name)).contiguous() for name in _ARRAYS}
        tensors["weights"] = (
            self._weights().to(torch.float16 if precision == "half" else torch.float32).cpu().contiguous()
        )
        if precision == "byte":
            tensors["weights"], tensors["steps"] = map(torch.as_tensor, compacted(tensors["weights"].numpy()))
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "parameters": asdict(self.config),
            "observation_layout": self.observation_layout.to_json(),
            "action_layout": self.action_layout.to_json(),
            "crc32": _checksum({name: tensor.numpy() for name, tensor in tensors.items()}),
        }
        save_file(tensors, folder / "policy.safetensors")
        write_content(folder, content)

    @staticmethod
    def check_folder(folder: Any) -> Path:
        """The path of a folder to save a neural policy to; one with other files in it is refused."""
        folder = as_path(folder)
        if not is_free(folder, lambda old: holds_only(old, _belongs, (FORMAT,))):
            raise LoadError(f"{folder}: expected an empty folder or a neural policy to replace, found other files")
        return folder


def _belongs(name: str) -> bool:
    """Whether a file belongs to a neural policy or its training, or was left by a killed process."""
    return name in FILES or name.startswith(_UNFINISHED)


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    return crc32([arrays[name] for name in sorted(arrays)])


def make_network(config: NeuralConfig | UNetConfig, n_features: int, n_numbers: int) -> torch.nn.Module:
    """The network of a configuration, for given numbers of features and action numbers."""
    return UNet(config, n_features, n_numbers) if isinstance(config, UNetConfig) else DiT(config, n_features, n_numbers)


def count_weights(config: NeuralConfig | UNetConfig, n_features: int, n_numbers: int) -> int:
    """The number of weights of a configuration's network, computed without creating it."""
    kind: Any = UNet if isinstance(config, UNetConfig) else DiT
    return kind.count(config, n_features, n_numbers)


def read_neural(snapshot: Snapshot, content: dict[str, Any], device: str = "cpu") -> NeuralPolicy:
    """Reads a policy written by `NeuralPolicy.save`, given the content of its config.json."""
    folder, path = snapshot.folder, snapshot.folder / "policy.safetensors"
    arrays = snapshot.arrays(path.name)
    try:
        config = (UNetConfig if "down_dims" in content["parameters"] else NeuralConfig)(**content["parameters"])
        layouts = [read_layout(content[key]) for key in ("observation_layout", "action_layout")]
        n_features = config.n_obs_steps * GeometricFeatures(layouts[0]).encoding.width
        n_numbers = GeometricFeatures(layouts[1]).encoding.width
        n_weights = count_weights(config, n_features, n_numbers)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise LoadError(f"{folder}: expected a complete neural policy, found {error!r}") from error
    shapes = {
        **dict.fromkeys(("feature_offset", "feature_scale", "mean"), (n_features,)),
        **dict.fromkeys(("action_offset", "action_scale"), (n_numbers,)),
        "covariance": (n_features, n_features),
        "weights": (n_weights,),
    }
    in_bytes = "steps" in arrays
    if in_bytes:
        shapes["steps"] = (n_steps(n_weights),)
    for name, shape in shapes.items():
        found = arrays[name].shape if name in arrays else "none"
        if found != shape:
            raise LoadError(f"{path}: expected {name} of shape {shape} according to config.json, found {found}")
        if (
            arrays[name].dtype.kind != ("i" if in_bytes and name == "weights" else "f")
            or not np.isfinite(arrays[name]).all()
        ):
            raise LoadError(f"{path}: expected finite numbers in {name}, found non-finite ones")
    if set(arrays) != set(shapes) or _checksum(arrays) != content.get("crc32"):
        raise LoadError(f"{folder}: checksum mismatch: the files are damaged")
    check_seal(snapshot, content)
    copies = {name: np.array(array) for name, array in arrays.items()}
    try:
        normalization = Normalization(**{name: copies[name] for name in _ARRAYS})
        if in_bytes:
            copies["weights"] = expanded(copies["weights"], copies["steps"])
        return NeuralPolicy(config, copies["weights"], layouts[0], layouts[1], normalization, device)
    except (DataError, ValueError, RuntimeError) as error:  # a network that cannot be made
        raise LoadError(f"{path}: {error}") from error
