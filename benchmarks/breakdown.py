"""Where one plan's time goes: the compiled parts of a plan, called one by one as the fused kernel calls them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numba
import numpy as np

from closedform import ClosedFormPolicy
from closedform.diffusion.sampler import SAMPLERS
from closedform.kernels import diffuse as diffusion
from closedform.kernels.search import metric_distances, nearest_rows
from closedform.kernels.transfer import choose_transfer, transfer_chunk
from closedform.policies.backends import compiled_plan as fused
from closedform.policies.backends.diffusion import HEADROOM
from timing import median_seconds

EMPTIED: dict[str, dict[str, tuple[int, ...]]] = {  # arguments with which a part of the diffusion has nothing to do
    "measure_from": {"candidates": (0,)},
    "could_matter": {"log_weights": (0,)},
    "shifts_of": {"perturbations": (0, -1)},
    "logits_of": {"n_active": ()},
    "reach_needed": {"norms": (0,), "directions": (-1, 0)},
    "average": {"n_active": ()},
}
DIFFUSION_PARTS = {
    "measure_from": "chunks less the center",
    "could_matter": "bounds on all candidates",
    "shifts_of": "products with perturbations",
    "logits_of": "logits of the active ones",
    "reach_needed": "proof that none is missing",
    "average": "exponentials and averages",
}

jit_anew: Any = numba.njit(error_model="numpy")  # not cached on disk, where it would outlive the kernels it calls


class Recorder:
    """Wraps a compiled function and records the arguments of its calls."""

    def __init__(self, function: Any):
        self.function, self.overloads = function, function.overloads
        self.names = list(inspect.signature(function.py_func).parameters)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function."""
        self.calls.append(dict(zip(self.names, arguments, strict=True)))
        return self.function(*arguments)


@jit_anew
def transfer_near(rows, neighbors, log_weights, reach, transfers, choice, rotation, chunks):
    """Writes the chunks of the neighbors within `reach` nats of the best, as the fused kernel does."""
    for i in range(neighbors.size):
        if -log_weights[i] <= reach:
            transfer_chunk(rows, neighbors[i], transfers, choice, rotation, chunks[i])


def parts_of(policy: ClosedFormPolicy, window: np.ndarray) -> tuple[dict[str, Callable[[], object]], dict[str, Any]]:
    """The parts of one plan, as functions that repeat them, and the calls that its diffusion makes."""
    policy.plan(window, seed=0)  # loads what is compiled, before it is wrapped
    recorder = Recorder(fused.fill)
    with mock.patch.object(fused, "fill", recorder):
        policy.plan(window, seed=0)
    call = recorder.calls[0]
    stored, metric, transfers = call["rows"], call["metric"], call["transfers"]
    sampling, draws, observed, k = call["sampling"], call["draws"], call["observed"], call["k"]
    query = (observed.lifted[0] - observed.offset) * observed.scale
    distances, rows, squared = np.empty(stored.n_rows), np.empty(stored.n_rows, np.int64), np.empty(k)
    nearest_rows(stored.columns, stored.n_rows, query, k, distances, rows)
    near = rows[:k].copy()
    metric_distances(stored.columns, query, near, metric, squared)
    log_weights = -metric.precision * (squared - squared.min())
    perturbations, choice = draws.perturbations[0], call["batch"].choices[0]
    size, rotation = draws.noise.shape[2], np.empty((transfers.dimension,) * 2)
    reach = 0.6 * (perturbations**2).sum(1).max() / sampling.steps[:, 1].min() ** 2 + size + sampling.cut
    chunks = np.empty((k, size))
    transfer_near(stored, near, log_weights, math.inf, transfers, choice, rotation, chunks)
    of_diffusion = {
        "neighbor_log_weights": log_weights,
        "chunks": chunks,
        "reach": np.empty(1),
        "sampling": sampling._replace(stop_at=math.inf),
        "perturbations": perturbations,
        "directions": np.ascontiguousarray(perturbations.T),
        "fresh": draws.fresh[0, :, 0],
        "sample": np.empty(size),
        "shares": np.zeros(k),
        "taken": np.empty(1, np.int64),
        "ended": np.empty(1),
        "mixed": np.empty(1, bool),
    }

    def transfer() -> None:
        choose_transfer(stored, near, squared, observed.poses[0], transfers, rotation, choice)
        transfer_near(stored, near, log_weights, reach, transfers, choice, rotation, chunks)

    def diffuse(function: Callable[..., bool] = diffusion.diffuse) -> None:
        of_diffusion["reach"][0] = reach
        done = False
        while not done:
            of_diffusion["sample"][:] = draws.noise[0, 0]
            done = function(*of_diffusion.values())

    seed = np.random.default_rng(0)
    parts = {
        "plan": lambda: policy.plan(window, seed=seed),
        "compiled": lambda: fused.fill(*call.values()),
        "search": lambda: nearest_rows(stored.columns, stored.n_rows, query, k, distances, rows),
        "metric": lambda: metric_distances(stored.columns, query, near, metric, squared),
        "transfer": transfer,
        "diffusion": diffuse,
    }
    recorders: dict[str, Any] = {name: Recorder(getattr(diffusion, name)) for name in DIFFUSION_PARTS}
    with mock.patch.multiple(diffusion, **recorders):
        diffuse(diffusion.diffuse.py_func)
    return parts, recorders


def measure_parts(policy: ClosedFormPolicy, windows: np.ndarray, rounds: int) -> dict[str, Any]:
    """Microseconds of each part of a plan and of its diffusion, and the number of its exponentials.

    Parts of the diffusion take about as long as calling them from Python. So each is also called with nothing to do,
    and that time is subtracted.
    """
    plan_parts: dict[str, list[float]] = {}
    diffusion_parts: dict[str, list[float]] = {}
    computed, needed = [], []
    for window in windows:
        parts, recorders = parts_of(policy, window)
        for name, part in parts.items():
            plan_parts.setdefault(name, []).append(warm_seconds(part, rounds))
        for name, recorder in recorders.items():
            calls = [tuple(call.values()) for call in recorder.calls]
            idle = [tuple(emptied(call, EMPTIED[name]).values()) for call in recorder.calls]
            spent = [warm_seconds(lambda r=recorder, of=of: replay(r.function, of), rounds) for of in (calls, idle)]
            diffusion_parts.setdefault(name, []).append(spent[0] - spent[1] if calls else 0.0)
        averages = recorders["average"].calls
        computed.append(sum(call["n_active"] * call["largest"].size for call in averages))
        needed.append(exponentials_needed(policy, window))
    means = {name: float(np.mean(seconds)) for name, seconds in plan_parts.items()}
    inside = {DIFFUSION_PARTS[name]: float(np.mean(seconds)) for name, seconds in diffusion_parts.items()}
    inside["everything else"] = means["diffusion"] - sum(inside.values())
    named = {name: means[name] for name in ("search", "metric", "transfer", "diffusion")}
    outside = {"Python": means["plan"] - means["compiled"], **named}
    outside["everything else"] = means["compiled"] - sum(named.values())
    return {
        "plan_us": 1e6 * means["plan"],
        "parts_us": {name: 1e6 * seconds for name, seconds in outside.items()},
        "diffusion_us": {name: 1e6 * seconds for name, seconds in inside.items()},
        "exponentials_computed": float(np.mean(computed)),
        "exponentials_needed": float(np.mean(needed)),
    }


def replay(function: Callable[..., object], calls: list[tuple[Any, ...]]) -> None:
    """Repeats recorded calls."""
    for arguments in calls:
        function(*arguments)


def emptied(call: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """A call's arguments with some arrays made empty and counts set to 0."""
    empty = {}
    for name, shape in shapes.items():
        old = call[name]
        size = tuple(old.shape[d] if length < 0 else length for d, length in enumerate(shape))
        empty[name] = np.empty(size, old.dtype) if shape else 0
    return {**call, **empty}


def warm_seconds(function: Callable[[], object], n_calls: int) -> float:
    """The median time of some calls after a first one."""
    function()
    return median_seconds(n_calls, function)


def exponentials_needed(policy: ClosedFormPolicy, window: np.ndarray) -> int:
    """Terms (step, perturbation, neighbor) of a plan that the kernel may not drop, counted on the reference.

    The smoothed denoiser averages the plain one over perturbed samples, whose weights are these terms.
    """
    config = policy.config
    denoiser, process = policy.denoiser(window, seed=0), config.make_process()
    perturbations, actions = denoiser.perturbations, denoiser.actions
    plain = replace(denoiser, perturbations=None)
    least = config.pruning_error * HEADROOM / len(actions)  # exp(-cut)
    sample, count = np.random.default_rng(0).standard_normal(actions.shape[1]), 0
    for step in SAMPLERS[config.sampler].steps(process, config.n_diffusion_steps):
        weights = plain.weights(sample + perturbations, step.time)
        count += int((weights >= least * weights.max(1, keepdims=True)).sum())
        sample = step.keep * sample + step.jump * (weights.mean(0) @ actions)
    return count
