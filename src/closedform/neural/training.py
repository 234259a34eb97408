"""Training: DDPM with epsilon prediction, exactly resumable, captured as one graph on a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from closedform.errors import LoadError
from closedform.files import crc32, parse_json, replacing, saving
from closedform.neural.config import NeuralConfig, TrainingConfig
from closedform.neural.data import TrainingData
from closedform.neural.dit import DiT
from closedform.policies.folder import as_path, find_folder, restore_folder

_LOSS_MEMORY = 0.99  # smoothing of the displayed loss


class Trainer:
    """A network in training.

    All weights are one vector, of which the network's parameters are views; so are the two moments of AdamW and the
    moving average, and a checkpoint is five vectors. On a GPU a whole step (batch, noise, forward, backward, optimizer,
    moving average) is compiled, captured once and replayed, since launching its kernels one by one takes ten times
    longer than running them.

    Args:
        data: the training data.
        network: the network's parameters.
        training: the parameters of the training.
        device: `cpu`, `cuda` or another torch device.
    """

    def __init__(self, data: TrainingData, network: NeuralConfig, training: TrainingConfig, device: str = "cpu"):
        self.data, self.network, self.training = data, network, training
        self.device = torch.device(device)
        with torch.random.fork_rng():
            torch.manual_seed(training.seed)
            self.model = DiT(network, data.features.shape[1], data.chunks.shape[2]).to(self.device)
        self._features = torch.as_tensor(data.features, device=self.device)
        self._chunks = torch.as_tensor(data.chunks, device=self.device)
        process = network.make_process()
        levels = range(network.n_diffusion_steps + 1)
        self._gains = torch.tensor([process.gain(s) for s in levels], device=self.device, dtype=torch.float32)
        self._noises = torch.tensor([process.noise(s) for s in levels], device=self.device, dtype=torch.float32)
        self._random = torch.Generator(self.device)
        self._random.manual_seed(training.seed)

        self.weights = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()]).requires_grad_()
        self.average = self.weights.detach().clone()
        self.loss = torch.zeros((), device=self.device)
        self._step = torch.zeros((), device=self.device, dtype=torch.float32)
        self._rate = torch.zeros((), device=self.device)
        captured = self.device.type == "cuda"
        self._optimizer = torch.optim.AdamW(
            [self.weights],
            lr=self._rate,
            betas=(0.9, 0.99),
            weight_decay=training.weight_decay,
            fused=True,
            **({"capturable": True} if captured else {}),
        )
        self._loss_of: Callable[..., Tensor] = torch.compile(self._batch_loss) if captured else self._batch_loss
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def step(self) -> int:
        """The number of gradient steps done."""
        return int(self._step.item())

    def run(self, n_steps: int) -> None:
        """Takes gradient steps, at most up to the end of the training."""
        n_steps = min(n_steps, self.training.n_steps - self.step)
        if self.device.type != "cuda":
            for _ in range(n_steps):
                self._advance()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        for _ in range(n_steps):
            self._graph.replay()
        torch.cuda.synchronize()

    def _views(self, vector: Tensor) -> dict[str, Tensor]:
        """The network's parameters as views of a vector."""
        views, start = {}, 0
        for name, parameter in self.model.named_parameters():
            views[name] = vector[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        return views

    def _batch_loss(self, weights: Tensor, features: Tensor, chunks: Tensor, level: Tensor, noise: Tensor) -> Tensor:
        gain, sigma = self._gains[level][:, None, None], self._noises[level][:, None, None]
        noisy = gain * chunks + sigma * noise
        predicted = torch.func.functional_call(self.model, self._views(weights), (noisy, level, features))
        return F.mse_loss(predicted, noise)

    def _advance(self) -> None:
        """One gradient step, using only tensor operations."""
        training, size = self.training, self.training.batch_size
        rows = torch.randint(len(self._features), (size,), device=self.device, generator=self._random)
        level = torch.randint(
            1, self.network.n_diffusion_steps + 1, (size,), device=self.device, generator=self._random
        )
        noise = torch.randn(
            (size, *self._chunks.shape[1:]), device=self.device, generator=self._random, dtype=torch.float32
        )
        features = self._features[rows]
        if training.observation_noise:
            features = features + training.observation_noise * torch.randn(
                features.shape, device=self.device, generator=self._random, dtype=torch.float32
            )
        self._step += 1
        done = self._step / training.n_steps
        rising = torch.clamp(self._step / max(training.warm_up, 1), max=1.0)
        self._rate.copy_(training.learning_rate * rising * 0.5 * (1 + torch.cos(math.pi * done)))

        loss = self._loss_of(self.weights, features, self._chunks[rows], level, noise)
        (self.weights.grad,) = torch.autograd.grad(loss, [self.weights])
        self._optimizer.step()
        with torch.no_grad():
            kept = torch.clamp((1 + self._step) / (10 + self._step), max=training.ema_decay)
            self.average.lerp_(self.weights, 1 - kept)
            followed = torch.clamp(1 - 1 / self._step, max=_LOSS_MEMORY)
            self.loss.lerp_(loss.detach(), 1 - followed)

    def _capture(self) -> None:
        """Captures one step as a graph; the warm-up steps before it are undone."""
        before, precision = self.state(), torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")  # products in TF32, sums in float32
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._advance()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._random)
        with torch.cuda.graph(graph):
            self._advance()
        torch.set_float32_matmul_precision(precision)
        self.restore(before)
        self._graph = graph

    def state(self) -> dict[str, Tensor]:
        """The full training state, as copies on the CPU."""
        moments = self._optimizer.state.get(self.weights, {})
        tensors = {
            "weights": self.weights.detach(),
            "average": self.average,
            "first_moment": moments.get("exp_avg", torch.zeros_like(self.average)),
            "second_moment": moments.get("exp_avg_sq", torch.zeros_like(self.average)),
            "step": self._step,
            "loss": self.loss,
            "random": self._random.get_state(),
        }
        return {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores a state in place, so that a captured graph stays valid."""
        with torch.no_grad():
            self.weights.copy_(state["weights"])
            self.average.copy_(state["average"])
            self._step.copy_(state["step"])
            self.loss.copy_(state["loss"])
        moments = self._optimizer.state[self.weights]
        if not moments:
            moments["step"] = torch.zeros((), device=self.device)
            moments["exp_avg"], moments["exp_avg_sq"] = torch.zeros_like(self.average), torch.zeros_like(self.average)
        moments["step"].copy_(state["step"])
        moments["exp_avg"].copy_(state["first_moment"])
        moments["exp_avg_sq"].copy_(state["second_moment"])
        self._random.set_state(state["random"])

    def save(self, folder: Path) -> None:
        """Writes a checkpoint, replacing the previous one atomically."""
        folder, state = as_path(folder), self.state()
        metadata = {"subject": json.dumps(self._subject()), "crc32": _checksum(state)}
        with saving(folder):
            restore_folder(folder)
        with replacing(folder / "training.safetensors") as new:
            save_file(state, new, metadata=metadata)

    def load(self, folder: Path) -> bool:
        """Resumes from a checkpoint; returns whether there was one."""
        path = find_folder(folder) / "training.safetensors"
        if not path.exists():
            return False
        expected = self.state()
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - no dict
                if shapes != {name: list(tensor.shape) for name, tensor in expected.items()}:
                    shapes = None
                state = {name: file.get_tensor(name) for name in expected} if shapes else {}
        except (OSError, SafetensorError, ValueError, RuntimeError) as error:
            raise LoadError(f"{path}: expected a complete checkpoint, found {error}") from error
        subject = parse_json(metadata.get("subject", "{}"), path, "a complete checkpoint")
        if isinstance(subject, dict) and isinstance(subject.get("training"), dict):
            subject["training"].pop("n_steps", None)  # older checkpoints have it
        for name, value in self._subject().items():
            found = subject.get(name) if isinstance(subject, dict) else None
            if found != value:
                raise LoadError(
                    f"{path}: expected a checkpoint of this training, found one with {name} {found} "
                    f"instead of {value}; choose another folder"
                )
        if not state or any(tensor.dtype != expected[name].dtype for name, tensor in state.items()):
            raise LoadError(f"{path}: expected a checkpoint of this training, found arrays of other shapes")
        if metadata.get("crc32") not in (None, _checksum(state)):  # older checkpoints have none
            raise LoadError(f"{path}: checksum mismatch: the file is damaged")
        try:
            self.restore(state)
        except (KeyError, RuntimeError, TypeError) as error:
            raise LoadError(f"{path}: expected a complete checkpoint, found {error!r}") from error
        return True

    def _subject(self) -> dict[str, Any]:
        """What identifies a training: two with equal values are the same, however long each is to be."""
        return {
            "network": asdict(self.network),
            "training": {name: value for name, value in asdict(self.training).items() if name != "n_steps"},
            "windows": len(self._features),
            "data": crc32([self.data.features, self.data.chunks]),
            "device": self.device.type,
        }


def _checksum(state: dict[str, Tensor]) -> str:
    return crc32([state[name].numpy() for name in sorted(state)])
