"""Policy: the base class of everything that plans actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from closedform.demos.demos import check_rotations
from closedform.demos.episode import real_array
from closedform.device import check_device
from closedform.errors import ConfigError, DataError
from closedform.finite import all_finite
from closedform.geometry.layout import Layout
from closedform.parameters import shown
from closedform.policies.agent import Agent
from closedform.policies.named_observation import read_named
from closedform.policies.other_names import PolicyNames
from closedform.policies.plan import Plan
from closedform.policies.randomness import Seed
from closedform.policies.saving import load_policy
from closedform.weights.state import State

if TYPE_CHECKING:
    from closedform.vision.perceiver import Perceiver
    from closedform.weights.terms.action_prefix import ActionPrefix


class ActingConfig(Protocol):
    """The parameters that every policy has."""

    @property
    def n_obs_steps(self) -> int:
        """N_o, observations in a window."""
        ...

    @property
    def n_action_steps(self) -> int:
        """N_a, actions in a chunk."""
        ...

    @property
    def n_execute(self) -> int:
        """H, actions of a chunk that are executed before the next plan."""
        ...


ConfigT = TypeVar("ConfigT", bound=ActingConfig, covariant=True)


class Policy(PolicyNames, ABC, Generic[ConfigT]):
    """Plans chunks of actions for observations.

    Attributes:
        config: its parameters, which never change.
        observation_layout, action_layout: what the numbers of an observation and of an action are.
        perceiver: makes the numbers of an observation from images; None if they are observed as they are.
        observation_names: the names of these numbers in the demonstrations; None if they had none.
    """

    config: ConfigT
    perceiver: Perceiver | None = None
    observation_names: tuple[str, ...] | None = None

    @property
    @abstractmethod
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""

    @property
    @abstractmethod
    def action_layout(self) -> Layout:
        """What the numbers of an action are."""

    @abstractmethod
    def warm_up(self) -> None:
        """Plans once and discards the plan, so that the next one is as fast as any."""

    @abstractmethod
    def plan(self, observation: Any, *, seed: Seed = None) -> Plan:
        """Plans one chunk for one observation.

        Args:
            observation: (D_o,) or a window (N_o, D_o), the newest last; a single observation is repeated.
            seed: an integer or a generator; the same seed gives the same chunk.
        """

    @abstractmethod
    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks for many observations at once.

        Args:
            observations: (B, D_o), or windows (B, N_o, D_o), the newest last; single observations are repeated.
            n_samples: how many for each.
            seed: an integer or a generator; the same seed gives the same chunks.

        Returns:
            (B, n_samples, N_a, D_a), in robot units.
        """

    @property
    def n_weights(self) -> int:
        """The number of trained weights; 0 unless it is a network."""
        return 0

    def to(self, device: str) -> Self:
        """The same policy on a device: `cpu`, `cuda`, `cuda:NUMBER` or `auto`; it matters only to networks."""
        check_device(device)
        return self

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Identifies the data or weights behind it, besides its parameters."""

    @abstractmethod
    def save(self, folder: Any) -> None:
        """Writes the policy to a folder; see `load`."""

    def begin(self) -> State:
        """The state of an agent before its first plan of an episode."""
        return State()

    def step(self, window: np.ndarray, state: State, rng: np.random.Generator) -> tuple[Plan, State]:
        """Plans for an agent, which has checked the window (N_o, D_o); returns the plan and the state after it."""
        return self.plan(window, seed=rng), state

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """`step` for several agents at once; each plan is what its agent would get alone, up to rounding."""
        return [self.step(*each) for each in zip(windows, states, rngs, strict=True)]

    def acted(self, state: State, action: np.ndarray) -> State:
        """The state after an action (D_a,) that an agent executes."""
        return state

    def conditioned(self, state: State, window: np.ndarray, prefix: ActionPrefix) -> State:
        """The state from which the next plan, for a checked window (N_o, D_o), continues actions."""
        raise ConfigError(
            "left_over: expected a ClosedFormPolicy with tau of more than 0 whose actions are planned as they are, "
            f"found {type(self).__name__}"
        )

    @property
    def n_together(self) -> int:
        """How many episodes it is worth planning for at once; 1 if that saves no time."""
        return 1

    def agent(self, seed: Seed = None) -> Agent:
        """An agent to run one episode at a time, with its own randomness."""
        return Agent(self, seed)

    def perceived(self, observation: Any, perceiver: Perceiver | None = None) -> Any:
        """The numbers of an observation that is a dictionary; any other one as it is.

        Args:
            observation: with images, see `Perceiver.perceive`; without, see `read_named`.
            perceiver: that of an episode under way; by default the images are by themselves.
        """
        if not isinstance(observation, Mapping):
            return observation
        if self.perceiver is None:
            return read_named(observation, self.observation_layout, self.observation_names)
        return (perceiver or self.perceiver.fresh()).perceive(observation)

    def check_observations(self, observations: np.ndarray) -> np.ndarray:
        """Returns observations (..., D_o); an error if they are not finite or have the wrong width."""
        layout = self.observation_layout
        if observations.shape[-1] != layout.width:
            raise DataError(f"expected observations of {layout.width} numbers, found {observations.shape[-1]}")
        if not all_finite(observations):
            first = np.argwhere(~np.isfinite(observations))[0]
            where = f" of observation {first[0]}" if len(observations) > 1 else ""
            found = observations[tuple(first)]
            raise DataError(f"observations must be finite, found {found} at {layout.describe(first[-1])}{where}")
        if layout.has_unit_vectors:
            check_rotations(observations.reshape(-1, layout.width), layout, "observations")
        return observations

    def windows(self, observations: np.ndarray) -> np.ndarray:
        """Checks observations (B, D_o) or windows (B, N_o, D_o) and returns windows."""
        n_obs_steps = self.config.n_obs_steps
        if observations.ndim == 2:
            observations = np.repeat(observations[:, None], n_obs_steps, axis=1)
        if observations.ndim != 3 or observations.shape[1] != n_obs_steps:
            raise DataError(
                f"expected a single observation or a window of n_obs_steps = {n_obs_steps} of them for each plan, "
                f"found shape {observations.shape[1:]}"
            )
        return self.check_observations(observations)

    def sampling_windows(self, observations: Any, n_samples: Any) -> np.ndarray:
        """The windows (B, N_o, D_o) to sample for, after checking the arguments of `sample`."""
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ConfigError(f"n_samples: expected a whole number of at least 1, found {shown(n_samples)}")
        observations = real_array(observations, "observations")
        if observations.ndim not in (2, 3) or not len(observations):
            raise DataError(f"expected observations of shape (B, D_o) or (B, N_o, D_o), found {observations.shape}")
        return self.windows(observations)

    @classmethod
    def load(cls, folder: Any, *, feature_map: Callable[[Any], Any] | None = None) -> Self:
        """Loads a policy of this class written by `save`; a custom feature map has to be passed again."""
        policy = load_policy(folder, feature_map=feature_map)
        if not isinstance(policy, cls):
            raise ConfigError(f"{folder}: expected a {cls.__name__}, found a {type(policy).__name__}")
        return policy
