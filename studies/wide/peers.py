"""Peers: shared by the policies that this study compares with and the package does not have."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.demos.chunks import cut
from closedform.demos.demos import Demos
from closedform.demos.episode import real_array
from closedform.errors import SaveError
from closedform.files import crc32
from closedform.geometry.layout import Layout
from closedform.policies.plan import Plan
from closedform.policies.policy import ConfigT, Policy
from closedform.policies.randomness import Seed


@dataclass(frozen=True)
class Scale:
    """Normalizes numbers to mean zero and variance one; constants become zero.

    Attributes:
        mean, deviation: (D,)
    """

    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Scale:
        """The scale of rows (n, D)."""
        deviation = rows.std(0)
        return cls(rows.mean(0), np.where(deviation > 1e-6, deviation, np.inf))

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Normalizes rows (..., D)."""
        return (rows - self.mean) / self.deviation

    def back(self, rows: np.ndarray) -> np.ndarray:
        """The inverse: rows (..., D) in their original units."""
        return rows * np.where(np.isfinite(self.deviation), self.deviation, 0) + self.mean


class PeerPolicy(Policy[ConfigT]):
    """A deterministic policy fitted to demonstrations, which uses a single observation.

    Args:
        demos: the demonstrations.
        config: its parameters.
    """

    def __init__(self, demos: Demos, config: ConfigT):
        self.demos, self.config = demos, config

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        return self.demos.observation_layout

    @property
    def action_layout(self) -> Layout:
        """What the numbers of an action are."""
        return self.demos.action_layout

    def fingerprint(self) -> dict[str, Any]:
        """How many episodes and steps it was fitted to, and their checksum."""
        arrays = (array for episode in self.demos for array in (episode.observations, episode.actions))
        return {"episodes": len(self.demos), "steps": self.demos.n_steps, "crc32": crc32(arrays)}

    def warm_up(self) -> None:
        """Plans once, which trains the policy if necessary."""
        self.plan(self.demos[0].observations[0])

    def plan(self, observation: Any, *, seed: Seed = None) -> Plan:
        """Plans one chunk for one observation (D_o,), or a window of one."""
        window = self.windows(real_array(observation, "an observation")[None])[0]
        return self._plan(window[-1])

    @abstractmethod
    def _plan(self, observation: np.ndarray) -> Plan:
        """Plans for an observation (D_o,)."""

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """The plans for many observations, repeated, since they are deterministic. -> (B, n_samples, N_a, D_a)."""
        chunks = [self._plan(window[-1]).actions for window in self.windows(real_array(observations, "observations"))]
        return np.repeat(np.array(chunks)[:, None], n_samples, axis=1)

    def save(self, folder: Any) -> None:
        """Not supported: it is fitted again from demonstrations."""
        raise SaveError(f"{folder}: a {type(self).__name__} cannot be saved; fit it again instead")


def chunks_of(demos: Demos, n_action_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """All observations (n, D_o) and the chunks of actions (n, N_a, D_a) that follow, padded at the end."""
    observations, chunks = [], []
    for episode in demos:
        windows = cut(episode, 1, n_action_steps, padding=True, action_layout=demos.action_layout)
        rows = windows.steps[:, None] + np.arange(n_action_steps)
        observations.append(windows.observations[:, -1])
        chunks.append(windows.actions[rows])
    return np.concatenate(observations), np.concatenate(chunks)
