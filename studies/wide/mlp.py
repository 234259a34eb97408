"""MLPPolicy: plain behavior cloning, a network that predicts action chunks from an observation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import MissingExtraError
from closedform.policies.plan import Plan
from studies.wide.peers import PeerPolicy, Scale, chunks_of


@dataclass(frozen=True)
class MLPConfig:
    """Parameters of behavior cloning; chunks are executed as by the package's default."""

    n_obs_steps: int = 1
    n_action_steps: int = 12
    n_execute: int = 4
    width: int = 256
    n_layers: int = 2
    n_steps: int = 10_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    seed: int = 0


class MLPPolicy(PeerPolicy[MLPConfig]):
    """Two hidden layers, mean squared error of normalized chunks, AdamW with a cosine schedule, no ensemble.

    Actions are clipped to the demonstrated range. The network is trained at the first plan, in less than a minute on
    one core, so that existing results need no training.
    """

    def __init__(self, demos: Demos, config: MLPConfig | None = None):
        super().__init__(demos, config or MLPConfig())
        self._fit: _Fit | None = None

    @property
    def n_weights(self) -> int:
        """The number of weights of the network."""
        return sum(weights.size + biases.size for weights, biases in self._fitted().layers)

    def _plan(self, observation: np.ndarray) -> Plan:
        fit = self._fitted()
        hidden = fit.observations(observation)
        for weights, biases in fit.layers[:-1]:
            hidden = np.maximum(hidden @ weights.T + biases, 0)
        weights, biases = fit.layers[-1]
        chunk = fit.chunks.back(hidden @ weights.T + biases).reshape(self.config.n_action_steps, -1)
        chunk = np.clip(chunk, fit.low, fit.high)
        nothing = np.empty(0, np.int64)
        return Plan(chunk, "world", nothing, nothing, np.empty(0), distance=0.0, neural_share=1.0)

    def _fitted(self) -> _Fit:
        if self._fit is None:
            observations, chunks = chunks_of(self.demos, self.config.n_action_steps)
            targets = chunks.reshape(len(chunks), -1)
            scales = Scale.of(observations), Scale.of(targets)
            layers = train(scales[0](observations), scales[1](targets), self.config)
            self._fit = _Fit(layers, *scales, chunks.min((0, 1)), chunks.max((0, 1)))
        return self._fit


class _Fit(NamedTuple):
    """The trained network: layers (weights, biases), scales of observations and chunks, bounds of actions (D_a,)."""

    layers: list[tuple[np.ndarray, np.ndarray]]
    observations: Scale
    chunks: Scale
    low: np.ndarray
    high: np.ndarray


def train(inputs: np.ndarray, targets: np.ndarray, config: MLPConfig) -> list[tuple[np.ndarray, np.ndarray]]:
    """Fits the network to rows (n, D) and (n, N_a * D_a) and returns weights and biases of its layers."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "neural", "behavior cloning") from error
    random = torch.Generator().manual_seed(config.seed)
    widths = [inputs.shape[1], *[config.width] * config.n_layers, targets.shape[1]]
    layers: list[Any] = []
    for before, after in pairwise(widths):
        linear = torch.nn.Linear(before, after)
        with torch.no_grad():
            linear.weight.copy_(torch.randn(after, before, generator=random) * (2 / before) ** 0.5)
            linear.bias.zero_()
        layers += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
    x, y = (torch.as_tensor(np.asarray(rows, np.float32)) for rows in (inputs, targets))
    optimizer = torch.optim.AdamW(network.parameters(), config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.n_steps)
    for _ in range(config.n_steps):
        rows = torch.randint(len(x), (config.batch_size,), generator=random)
        loss = torch.nn.functional.mse_loss(network(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    linears = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return [
        (layer.weight.detach().numpy().astype(float), layer.bias.detach().numpy().astype(float)) for layer in linears
    ]
