"""Random parameters, layouts and demonstrations: plans are finite, demonstrated, and the same on both paths."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormWarning, Demos
from closedform.errors import ClosedFormError
from closedform.geometry.layout import ROTATIONS
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.randomness import generator
from closedform.policies.saving import POLICIES
from fuzz.worker import WrongResultError
from fuzz.worlds import draw_world, make_demos, make_numbers

TOLERANCE = 1e-4  # between kernel and reference, in normalized actions: what the README promises
OUTSIDE = 1e-4  # of the demonstrated range, by which a mixture may exceed it: weights are in single precision
ODD = (None, True, "", "x", "²", "world,world", "hand,,", [], {}, -1, 0, 1.5, 2**31, 2**63, 2**64, 10**30, 10**400)
ODD += (float("nan"), float("inf"), -float("inf"), 1e-320, 1e308, -1e308, -1e-9)
N_OBSERVED = 5


def _scale(low: float, high: float) -> Callable[[np.random.Generator], float]:
    return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _one_of(*choices: Any) -> Callable[[np.random.Generator], Any]:
    return lambda rng: choices[int(rng.integers(len(choices)))]


VALID: dict[str, Callable[[np.random.Generator], Any]] = {
    "n_obs_steps": _one_of(1, 1, 2, 3),
    "n_action_steps": _one_of(1, 2, 5, 12),
    "n_execute": _one_of(1, 1, 1, 4),
    "padding": _one_of(True, False),
    "features": _one_of("identity", "scaled", "geometric"),
    "rotation_weight": _scale(1e-6, 1e6),
    "metric": _one_of("euclidean", "global_mahalanobis", "local_mahalanobis"),
    "n_neighbors": _one_of(None, 1, 2, 7, 50),
    "regularization": _scale(1e-12, 1e12),
    "shrinkage": _one_of(None, 0.0, 0.3, 1.0),
    "relevance": _one_of(True, False),
    "selection": _one_of(True, False),
    "frames": _one_of("auto", "world", "world", "hand", "block.position", "hand,world"),
    "position_frames": _one_of(True, False),
    "missing_rotations": _one_of("identity", "none"),
    "goals": _one_of("observed", "shared"),
    "loop_memory": _one_of(0.0, 1.0, 1e6),
    "hold_at_end": _one_of(True, False),
    "loop_delay": _one_of(True, False),
    "continuation": _one_of(0.0, 2.0, 1e6),
    "targets": _one_of("auto", "auto", "off"),
    "goal_weight": _one_of(0.0, 0.3, 10.0, 1e6),
    "relation_weight": _one_of(0.0, 6.4, 6.4, 1e6),
    "index": _one_of("auto", "exact", "faiss"),
    "recall": _one_of(1e-3, 0.5, 1.0),
    "bandwidth": _scale(1e-9, 1e9),
    "tau": _one_of(0.0, 1e-3, 0.1, 1.0, 1e6),
    "n_perturbations": _one_of(1, 2, 32),
    "n_diffusion_steps": _one_of(1, 2, 10, 100),
    "process": _one_of("flow", "flow", "flow", "ddpm_cosine", "ddpm_linear"),
    "sampler": _one_of("euler", "ddpm", "ddim"),
    "pruning_error": _one_of(0.0, 1e-6, 1e-4, 1e-4),
    "deadline": _one_of(None, None, 1e-9, 1e6),
}


class Configs:
    """Makes policies of all three classes and plans with them."""

    def __init__(self, folder: Path) -> None:
        """Compiles in advance, since that takes longer than a case may."""
        world = {"observations": "hand position 2", "actions": "hand position 2", "seed": 0, "n_episodes": 2}
        world |= {"n_steps": 20, "scale": 1.0, "repeated": False, "still": False}
        for index in ("exact", "faiss"):
            case = {"policy": "ClosedFormPolicy", "preset": "default", "parameters": {"index": index}, "world": world}
            self.check(case, folder)

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Some parameters with other values, in a quarter of cases with an invalid one."""
        policy = str(rng.choice(["ClosedFormPolicy", "ClosedFormPolicy", *POLICIES]))
        known = [field.name for field in fields(POLICIES[policy].config_class)]
        chosen = rng.choice(known, int(rng.integers(len(known) + 1)), replace=False).tolist()
        parameters = {name: VALID[name](rng) if name in VALID else None for name in chosen}
        if rng.random() < 0.25:
            parameters[str(rng.choice(known))] = ODD[int(rng.integers(len(ODD)))]
        preset = str(rng.choice(["default", "paper"]))
        return {"policy": policy, "preset": preset, "parameters": parameters, "world": draw_world(rng)}

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Plans and samples near to and far from the demonstrations, on the kernels and on the reference."""
        demos = make_demos(case["world"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClosedFormWarning)
            policy = POLICIES[case["policy"]](demos, case["preset"], **case["parameters"])
        rng = np.random.default_rng(case["world"]["seed"])
        seen = demos.all_observations()
        observations = make_numbers(rng, demos.observation_layout, N_OBSERVED, case["world"])
        observations[0], observations[1] = seen[0], seen[-1]
        refusals = []
        for compiled in (True, False):
            with kernels(compiled):
                try:
                    check_actions(policy, demos, policy.sample(observations, 2, seed=1))
                    check_actions(policy, demos, policy.plan(observations[2], seed=2).actions)
                except ClosedFormError as error:
                    refusals.append(error)
        if len(refusals) == 1:
            raise WrongResultError(f"only one of kernel and reference refuses: {refusals[0]}")
        if refusals:
            raise refusals[0]
        if getattr(policy.config, "deadline", None) is None:
            _compare(policy, observations)


@contextmanager
def kernels(compiled: bool) -> Iterator[None]:
    """Plans on the kernels, or on the reference mathematics."""
    before = os.environ.get("CLOSEDFORM_DISABLE_KERNELS", "")
    os.environ["CLOSEDFORM_DISABLE_KERNELS"] = "0" if compiled else "1"
    try:
        yield
    finally:
        os.environ["CLOSEDFORM_DISABLE_KERNELS"] = before


def check_actions(policy: DemonstrationPolicy[Any], demos: Demos, actions: np.ndarray) -> None:
    """Refuses actions that are not finite or, if no frame transfers them, outside the demonstrated range."""
    if not np.isfinite(actions).all():
        raise WrongResultError("actions that are not finite")
    if policy.config.frames != "world":
        return
    for entry, columns in policy.action_layout.slices():
        values, demonstrated = actions[..., columns], demos.all_actions()[:, columns]
        if entry.kind == "vector":  # after the end of an episode nothing moves anymore
            demonstrated = np.append(demonstrated, np.zeros((1, entry.size)), 0)
        low, high = demonstrated.min(0), demonstrated.max(0)
        room = OUTSIDE * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high)) + 1e-12
        outside = np.maximum(low - values, values - high)
        if entry.kind not in ROTATIONS and (outside > room).any():
            raise WrongResultError(f"actions outside the demonstrated range: {entry.kind} by {outside.max():.2g}")


def _compare(policy: DemonstrationPolicy[Any], observations: np.ndarray) -> None:
    """Compares before binary entries are rounded, since numbers at their threshold may fall to either side."""
    made = []
    for compiled in (True, False):
        with kernels(compiled):
            windows, rng = policy.windows(observations), generator(3)
            made.append(policy.planner.batch(windows, 2, rng, explain=True))
    if _decided_by_rounding(policy, made[1].distances.max()):
        return
    if not np.array_equal(made[0].choices, made[1].choices):
        raise WrongResultError("kernel and reference differ: frames")
    difference = float(np.abs(made[0].chunks - made[1].chunks).max())
    if not difference <= max(TOLERANCE, getattr(policy.config, "pruning_error", 0.0)):
        raise WrongResultError(f"kernel and reference differ: by {difference:.2g} in normalized actions")


def _decided_by_rounding(policy: DemonstrationPolicy[Any], distance: float) -> bool:
    """Whether rounding errors of squared distances affect weights noticeably.

    They do far from all demonstrations, and in a metric whose covariance is nearly singular but for `regularization`; a
    goal's weight multiplies both.
    """
    config = policy.config
    h = getattr(config, "bandwidth", np.inf) / np.sqrt(policy.model.kernel.scale.size)
    condition = 1.0 if config.metric == "euclidean" else max(1.0, 1 / config.regularization)
    return 1e-15 * condition * max(1.0, config.goal_weight) * distance**2 / (2 * h * h) > 1e-7
