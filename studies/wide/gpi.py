"""GPIPolicy: Geometry-aware Policy Imitation (Li et al., arXiv 2510.08787), from its abstract and project page.

A demonstration is a curve, and its distance field d_i(x) is the distance of a state to the nearest point of the curve.
It gives two flows: progression, the demonstrator's action at that point, and attraction, down the gradient of the
distance in the actuated part of the state,

    pi_i(x) = lambda_1 u_i(x) - lambda_2 grad d_i(x),

and the nearest few demonstrations are combined with weights that decrease with distance.

Its composition equations and hyperparameters were not available. 5 demonstrations, 8 actions taken from the curve
before the next plan, and lambdas of 1 are the values in the readme of a public implementation for Push-T, whose code
was not read. Our own choices: states are scaled to unit variance; weights are a softmax of -beta d_i with beta = 10,
not tuned; attraction closes the gap within the 8 actions. If actions are targets of the actuated state, going to the
demonstrated target combines both flows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from closedform.demos.demos import Demos
from closedform.policies.plan import Plan
from studies.wide.peers import PeerPolicy, Scale, chunks_of


@dataclass(frozen=True)
class Displacements:
    """Actions that move a part of the state.

    Attributes:
        observed: columns of the observation, the actuated part.
        commanded: columns of the action that displace them, in the same order.
        gain: how far one unit moves them in a step, in the observation's units.
    """

    observed: list[int]
    commanded: list[int]
    gain: float


@dataclass(frozen=True)
class GPIConfig:
    """Parameters of GPI."""

    n_obs_steps: int = 1
    n_action_steps: int = 8
    n_execute: int = 8
    n_demonstrations: int = 5
    beta: float = 10.0
    progression: float = 1.0
    attraction: float = 1.0
    displacements: Displacements | None = None


class GPIPolicy(PeerPolicy[GPIConfig]):
    """A flow field of demonstrations.

    Args:
        demos: the demonstrations.
        displacements: what actions displace; None if they are targets.
    """

    def __init__(self, demos: Demos, displacements: Displacements | None = None):
        super().__init__(demos, GPIConfig(displacements=displacements))
        self._states, self._chunks = chunks_of(demos, self.config.n_action_steps)
        self._scale = Scale.of(self._states)
        self._points = self._scale(self._states)
        self._starts = np.cumsum([0, *(len(episode) for episode in demos)])

    def _plan(self, observation: np.ndarray) -> Plan:
        config = self.config
        distances = np.linalg.norm(self._points - self._scale(observation), axis=1)
        rows = np.array([start + int(np.argmin(distances[start:end])) for start, end in pairwise(self._starts)])
        episodes = np.argsort(distances[rows], kind="stable")[: config.n_demonstrations]
        rows = rows[episodes]
        weights = np.exp(-config.beta * (distances[rows] - distances[rows[0]]))
        weights /= weights.sum()
        flows = config.progression * self._chunks[rows]
        moved = config.displacements
        if moved is not None:
            gaps = self._states[rows][:, moved.observed] - observation[moved.observed]
            flows[:, :, moved.commanded] += config.attraction * gaps[:, None] / (moved.gain * config.n_action_steps)
        return Plan(
            actions=np.einsum("i,ija->ja", weights, flows),
            frame="world",
            episodes=episodes,
            steps=rows - self._starts[episodes],
            weights=weights,
            distance=float(distances[rows[0]]),
        )
