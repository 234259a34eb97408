"""Unusual observations: for any observation, a plan is finite or refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormPolicy, ClosedFormWarning, KernelRegressionPolicy, NearestNeighborPolicy, Policy
from closedform.errors import ClosedFormError
from fuzz.configs import kernels
from fuzz.worker import WrongResultError
from fuzz.worlds import make_demos

VALUES = (0.0, -0.0, 1.0, -1.0, 3.5, 1e-300, 5e-324, 1e-30, 1e30, 1e100, 1e150, 1e153, 1e154, 1e155, 1e160, 1e200)
VALUES += (1e300, 1e308, -1e155, -1e308, 1.7976931348623157e308)
STRANGE = (float("nan"), float("inf"), -float("inf"))
SIZE = {"seed": 0, "n_episodes": 4, "n_steps": 30, "scale": 1.0, "repeated": False, "still": False}
PLANAR = {"observations": "hand position 2, block position 2, block angle", "actions": "hand position 2", **SIZE}
SPATIAL = {
    "observations": "hand position 3, hand axis_angle, cup position 3, cup quaternion, - other 2",
    "actions": "hand position 3, hand axis_angle, - binary 1",
    **SIZE,
}


class Observations:
    """Plans, samples and acts with policies of several kinds."""

    def __init__(self, folder: Path) -> None:
        """Makes the policies, and compiles."""
        planar, spatial = make_demos(PLANAR), make_demos(SPATIAL)
        many = make_demos({**SPATIAL, "n_episodes": 40, "n_steps": 60})
        odd: dict[str, Any] = {"goal_weight": 1e6, "regularization": 1e-12, "bandwidth": 1e-9}
        self.policies: dict[str, Policy[Any]] = {
            "planar": ClosedFormPolicy(planar),
            "spatial": ClosedFormPolicy(spatial),
            "world": ClosedFormPolicy(spatial, frames="world", n_neighbors=7, n_obs_steps=2),
            "paper": ClosedFormPolicy(planar, "paper", n_neighbors=60),
            "odd": ClosedFormPolicy(planar, **odd),
            "identity": ClosedFormPolicy(spatial, features="identity", metric="euclidean", relevance=False),
            "many": ClosedFormPolicy(many, n_diffusion_steps=3, n_perturbations=2),
            "few_of_many": ClosedFormPolicy(many, n_neighbors=100, n_diffusion_steps=3, n_perturbations=2),
            "nearest": NearestNeighborPolicy(spatial),
            "regression": KernelRegressionPolicy(planar),
            "indexed": ClosedFormPolicy(spatial, index="faiss"),
        }
        for policy in self.policies.values():
            policy.warm_up()

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """An observation with some extreme numbers, or something else altogether."""
        name = str(rng.choice(list(self.policies)))
        width = self.policies[name].observation_layout.width
        if rng.random() < 0.15:
            odd = [
                None,
                [],
                [[]],
                "x",
                {},
                True,
                3,
                [None] * width,
                ["1"] * width,
                [1.0] * (width + 1),
                [[1.0]] * width,
            ]
            return {"policy": name, "observation": odd[int(rng.integers(len(odd)))]}
        changes = {}
        for index in rng.choice(width, int(rng.choice([1, 1, 2, 3, width])), replace=False):
            values = STRANGE if rng.random() < 0.03 else VALUES
            changes[str(index)] = values[int(rng.integers(len(values)))]
        dtype = str(rng.choice(["float64", "float64", "float64", "float32", "float16", "longdouble", "object"]))
        return {"policy": name, "changes": changes, "dtype": dtype}

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Plans, samples and acts, on the kernels and on the reference."""
        policy = self.policies[case["policy"]]
        if "changes" in case:
            observation = policy.episodes[0].observations[3].copy()  # pyright: ignore[reportAttributeAccessIssue]
            for index, value in case["changes"].items():
                observation[int(index)] = value
            with np.errstate(over="ignore"):
                observation = observation.astype(case["dtype"])
        else:
            observation = case["observation"]
        refusals: list[ClosedFormError] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", (ClosedFormWarning, RuntimeWarning))  # pyright: ignore[reportArgumentType]
            for compiled in (True, False):
                with kernels(compiled):
                    for ask in (self._plan, self._sample, self._act):
                        try:
                            actions = ask(policy, observation)
                        except ClosedFormError as error:
                            refusals.append(error)
                            continue
                        if not np.isfinite(actions).all():
                            raise WrongResultError(f"actions that are not finite from {ask.__name__[1:]}")
        if refusals:
            raise refusals[0]

    def _plan(self, policy: Policy[Any], observation: Any) -> np.ndarray:
        return policy.plan(observation, seed=0).actions

    def _sample(self, policy: Policy[Any], observation: Any) -> np.ndarray:
        return policy.sample([observation, observation], 2, seed=0)

    def _act(self, policy: Policy[Any], observation: Any) -> np.ndarray:
        agent = policy.agent(seed=0)
        return np.stack([agent.act(observation) for _ in range(3)])
