"""Contenders: all planners, built from the same demonstrations and queried with the same windows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform import ClosedFormPolicy, Demos, NearestNeighborPolicy
from timing import Call

if TYPE_CHECKING:
    from closedform.neural.policy import NeuralPolicy
    from peers.direct_jax import DirectJax

N_HELD_OUT = 10
N_OBS_STEPS = 2  # in all of the paper's tables


class CannotRunError(Exception):
    """A contender needs something that this machine lacks; the message says what."""


@dataclass(frozen=True)
class Task:
    """What contenders plan for.

    Attributes:
        demos: the demonstrations that policies are built from.
        windows: (n, N_o, D_o), of other episodes, in random order.
        parameters: of the closed-form policy, other than those of the preset `paper`.
        make_network: makes the neural policy.
    """

    demos: Demos
    windows: np.ndarray
    parameters: dict[str, Any]
    make_network: Callable[[], NeuralPolicy]
    seed: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @classmethod
    def of(cls, demos: Demos, make_network: Callable[[], NeuralPolicy], **parameters: Any) -> Task:
        """A task whose windows are from the last episodes."""
        view = np.lib.stride_tricks.sliding_window_view
        windows = [view(e.observations, N_OBS_STEPS, axis=0).swapaxes(1, 2) for e in demos[-N_HELD_OUT:]]
        shuffled = np.random.default_rng(0).permutation(np.concatenate(windows))
        return cls(demos[:-N_HELD_OUT], shuffled, parameters, make_network)

    def window(self, i: int) -> np.ndarray:
        """The window of the i-th call."""
        return self.windows[i % len(self.windows)]

    @cached_property
    def paper(self) -> ClosedFormPolicy:
        """The policy of the preset `paper`."""
        return ClosedFormPolicy(self.demos, "paper", **self.parameters)

    @cached_property
    def queries(self) -> np.ndarray:
        """(n, D_z), the windows as features."""
        return self.paper.model.kernel.features(self.windows)

    @cached_property
    def peer(self) -> DirectJax:
        """The direct JAX version on the same demonstrations and parameters."""
        from peers.direct_jax import DirectJax

        model, config = self.paper.model, self.paper.config
        features = model.index.rows()
        return DirectJax(
            features,
            model.normalized_chunks(np.arange(len(model)), model.transfer.world),
            k=self.paper.n_neighbors(model),
            h=model.kernel.h,
            tau=config.tau,
            n_perturbations=config.n_perturbations,
            n_steps=config.n_diffusion_steps,
            regularization=config.regularization,
        )

    @cached_property
    def network(self) -> NeuralPolicy:
        """The neural policy on one core."""
        import torch

        torch.set_num_threads(1)
        return self.make_network()

    @cached_property
    def compiled_network(self) -> NeuralPolicy:
        """The same network, compiled."""
        from peers.compiled_network import compiled

        return compiled(self.network, self.windows[0])


@dataclass(frozen=True)
class Contender:
    """One row of a table.

    Attributes:
        make: from a task to a function that plans for its i-th window.
        n_calls: in a full run.
        module: has to be imported before.
    """

    make: Callable[[Task], Call]
    n_calls: int
    module: str


def kernel(task: Task) -> Call:
    """The preset `paper`."""
    policy = task.paper
    return lambda i: policy.plan(task.window(i), seed=task.seed)


def default_preset(task: Task) -> Call:
    """The default preset, which uses one observation."""
    policy = ClosedFormPolicy(task.demos)
    return lambda i: policy.plan(task.window(i)[-1], seed=task.seed)


def reference(task: Task) -> Call:
    """The preset `paper` on the reference mathematics."""
    plan = kernel(task)

    def without_kernels(i: int) -> object:
        os.environ["CLOSEDFORM_DISABLE_KERNELS"] = "1"
        try:
            return plan(i)
        finally:
            del os.environ["CLOSEDFORM_DISABLE_KERNELS"]

    return without_kernels


def nearest_neighbor(task: Task) -> Call:
    """The paper's 1-NN policy."""
    shared = {key: value for key, value in task.parameters.items() if key not in ("tau", "bandwidth")}
    policy = NearestNeighborPolicy(task.demos, "paper", **shared)
    return lambda i: policy.plan(task.window(i), seed=task.seed)


def direct_jax(task: Task) -> Call:
    """The peer in JAX, which takes windows as features and returns normalized chunks."""
    peer, queries = task.peer, task.queries
    return lambda i: peer(queries[i % len(queries)], task.seed)


def neural(task: Task, sampler: str, n_steps: int, *, compiled: bool = False) -> Call:
    """The neural policy with a sampler."""
    network = task.compiled_network if compiled else task.network
    policy = network.with_sampling(sampler, n_steps)
    policy.model = network.model
    return lambda i: policy.plan(task.window(i), seed=task.seed)


def check_peer(task: Task) -> None:
    """Checks that the peer computes the same: the same seed gives the same chunk, to float32 accuracy."""
    policy, differences = task.paper, []
    for i in range(20):
        window, rng = task.windows[i : i + 1], np.random.default_rng(i)
        made = policy.planner.batch(window, 1, rng)
        differences.append(np.abs(made.chunks[0, 0] - task.peer(task.queries[i], np.random.default_rng(i))).max())
    if np.median(differences) > 1e-2:
        raise SystemExit(
            f"the direct JAX version disagrees with the kernel: {np.median(differences):.3g} in normalized units"
        )


KERNELS, NETWORK = "closedform.policies.backends.compiled_plan", "closedform.neural.policy"
CONTENDERS = {
    "kernel": Contender(kernel, 10_000, KERNELS),
    "kernel, default preset": Contender(default_preset, 10_000, KERNELS),
    "1-NN": Contender(nearest_neighbor, 10_000, KERNELS),
    "direct JAX": Contender(direct_jax, 1000, "peers.direct_jax"),
    "reference": Contender(reference, 100, KERNELS),
    "neural, 10 DDIM steps": Contender(partial(neural, sampler="ddim", n_steps=10), 100, NETWORK),
    "neural, 10 DDIM steps, compiled": Contender(
        partial(neural, sampler="ddim", n_steps=10, compiled=True), 100, "peers.compiled_network"
    ),
    "neural, 100 DDPM steps": Contender(partial(neural, sampler="ddpm", n_steps=100), 30, NETWORK),
    "neural, 100 DDPM steps, compiled": Contender(
        partial(neural, sampler="ddpm", n_steps=100, compiled=True), 30, "peers.compiled_network"
    ),
}
