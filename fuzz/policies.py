"""Damaged saved policies: they plan the same as when they were saved, or are refused."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormPolicy, KernelRegressionPolicy, NearestNeighborPolicy, Policy, load_policy
from closedform.errors import ClosedFormError
from closedform.policies.saving import verify
from fuzz import changes
from fuzz.worker import WrongResultError
from fuzz.worlds import make_demos

SEAL = "config_crc32"  # the checksum of a config.json, inside it
WORLD = {
    "observations": "hand position 2, block position 2, block angle",
    "actions": "hand position 2",
    "seed": 2,
    "n_episodes": 6,
    "n_steps": 20,
    "scale": 1.0,
    "repeated": False,
    "still": False,
}


class Policies:
    """A policy of every kind, saved, changed and loaded."""

    def __init__(self, folder: Path) -> None:
        """Saves the originals and records their plans."""
        warnings.simplefilter("ignore")
        self._folder, demos = folder, make_demos(WORLD)
        self._observations = np.concatenate([demos[0].observations[:2], demos[1].observations[3:5] + 0.1])
        policies: dict[str, Policy[Any]] = {
            "exact": ClosedFormPolicy(demos, n_action_steps=4),
            "nearest": NearestNeighborPolicy(demos, frames="world"),
            "regression": KernelRegressionPolicy(demos, "paper", n_neighbors=20),
            "indexed": ClosedFormPolicy(demos, n_action_steps=4, index="faiss", n_neighbors=30),
            **_neural(demos),
        }
        self._plans = {}
        for name, policy in policies.items():
            policy.save(folder / name)
            self._plans[name] = self._plan(load_policy(folder / name))

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Changes of any of a policy's files."""
        name = str(rng.choice([*self._plans, "indexed", "indexed"]))
        drawn = changes.draw_changes(rng, self._folder / name)
        if rng.random() < 0.5:  # an attacker removes the checksum
            drawn += [{"do": "json_delete", "file": c["file"], "at": [SEAL]} for c in drawn if c["do"] == "json"]
        return {"policy": name, "changes": drawn}

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Loads a changed copy and plans with it."""
        shutil.copytree(self._folder / case["policy"], folder / "policy")
        changes.apply(folder / "policy", case["changes"])
        plans = self._plan(load_policy(folder / "policy"))
        expected = self._plans[case["policy"]]
        if plans.shape == expected.shape and np.array_equal(plans, expected):
            return
        if self._is_older(case["policy"], folder / "policy"):
            return
        try:
            verify(folder / "policy")
        except ClosedFormError:
            return
        if not np.isfinite(plans).all():
            raise WrongResultError("plans that are not finite, undetected by verify")
        raise WrongResultError("plans that differ from those saved, undetected by verify")

    def _is_older(self, name: str, folder: Path) -> bool:
        """Whether a config.json lacks something, such as a checksum, so that an older version may have written it."""
        files = [path.relative_to(folder) for path in folder.rglob("config.json")]
        return any(json.loads((self._folder / name / f).read_text()).keys() - _keys(folder / f) for f in files)

    def _plan(self, policy: Policy[Any]) -> np.ndarray:
        planned = [policy.plan(observation, seed=5).actions for observation in self._observations]
        agent = policy.agent(seed=6)
        acted = [agent.act(observation) for observation in self._observations]
        return np.concatenate([np.concatenate(planned), np.stack(acted)])


def _keys(path: Path) -> set[str]:
    content = json.loads(path.read_text())
    return set(content) if isinstance(content, dict) else set()


def _neural(demos: Any) -> dict[str, Policy[Any]]:
    """A small untrained network, and edits of it."""
    import torch

    from closedform.editing.augmented_policy import AugmentedPolicy
    from closedform.editing.edited_policy import demonstrations_for
    from closedform.editing.guided_policy import GuidedPolicy
    from closedform.neural.config import NeuralConfig
    from closedform.neural.data import training_data
    from closedform.neural.dit import DiT
    from closedform.neural.policy import NeuralPolicy

    torch.set_num_threads(1)
    torch.manual_seed(0)
    small: dict[str, Any] = {
        "width": 16,
        "n_heads": 2,
        "n_blocks": 1,
        "observation_hidden": 8,
        "observation_embedding": 8,
    }
    config = NeuralConfig(**small, n_action_steps=4, n_execute=4, sampler="ddim", n_sampling_steps=3)
    data = training_data(demos, config)
    network = DiT(config, data.features.shape[1], 2)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    neural = NeuralPolicy.of(config, torch.nn.utils.parameters_to_vector(network.parameters()), data)
    every, half = (demonstrations_for(neural, part, n_perturbations=2) for part in (demos, demos[:3]))
    return {
        "neural": neural,
        "guided": GuidedPolicy(neural, half, every, w=0.5),
        "augmented": AugmentedPolicy(neural, half, None),
    }
