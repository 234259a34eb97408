"""DemonstrationPolicy: demonstrations and parameters, from which plans are made."""

from __future__ import annotations

import math
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np

from closedform.demos.demos import Demos, as_episode, check_episode
from closedform.demos.episode import Episode, real_array
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormWarning, ConfigError, DataError
from closedform.files import crc32
from closedform.policies.config import KernelConfig, PolicyConfig, shown
from closedform.policies.deadline import Deadline
from closedform.policies.generated import Generated, refuse_infinite, refuse_unsound
from closedform.policies.loop_memory import LoopMemory
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed, generator
from closedform.policies.saving import save_policy
from closedform.retrieval.faiss_index import Recall
from closedform.retrieval.feature_map import make_feature_map
from closedform.retrieval.large_store import LargeStore, Progress, build_store
from closedform.retrieval.limits import check_size
from closedform.retrieval.pace import breathe, gently
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.spec import StoreSpec
from closedform.retrieval.store import Store

DEFAULT_NEIGHBORS = 2000
UNDECIDED = 1e-5  # of the step between two values, by which rounding must not decide; in the middle it is the lower one
NEGLIGIBLE = 1e-8  # weights below this are left out of a plan's list of demonstrations

ConfigT = TypeVar("ConfigT", bound=PolicyConfig, covariant=True)


class DemonstrationPolicy(Policy[ConfigT]):
    """A policy made of demonstrations; there is nothing to train.

    Its parameters never change. Episodes can be added and removed at any time, by any thread, and take effect at the
    next plan; plans under way finish on the episodes they began with.

    Args:
        demos: the demonstrations, `Demos` or pairs `(observations, actions)`.
        preset: `default` or `paper`, the parameters to start from.
        feature_map: a function or torch module from observation windows (n, N_o * D_o) to features (n, D_z), instead of
            the parameter `features`.
        config: all parameters at once, instead of a preset.
        progress: is told what is being done and which share of it is, where indexing takes long.
        parameters: parameters to replace, by name.
    """

    config_class: ClassVar[type[PolicyConfig]]

    def __init__(
        self,
        demos: Demos | Iterable[Episode | tuple[Any, Any]],
        preset: str = "default",
        *,
        feature_map: Callable[[Any], Any] | None = None,
        config: PolicyConfig | None = None,
        progress: Progress | None = None,
        **parameters: Any,
    ):
        if not isinstance(demos, Demos):
            demos = Demos(demos)
        elif not demos.finite:  # it was read to be looked at
            demos = Demos(demos, demos.observation_layout, demos.action_layout)
        self._build(
            lambda spec: build_store(spec, demos.episodes, np.arange(len(demos)), progress),
            len(demos),
            demos.observation_layout,
            demos.action_layout,
            self.make_config(preset, config, feature_map, parameters),
            feature_map,
        )

    @classmethod
    def make_config(
        cls,
        preset: str,
        config: PolicyConfig | None,
        feature_map: Callable[[Any], Any] | None,
        parameters: dict[str, Any],
    ) -> Any:
        """The configuration that the arguments of a policy make; those that contradict each other are refused."""
        if isinstance(feature_map, str) or not (feature_map is None or callable(feature_map)):
            raise ConfigError(f"feature_map: expected a function, found {feature_map!r}; features= takes a name")
        if config is None:
            config = cls.config_class.preset(preset, **parameters)
        elif parameters or preset != "default" or not isinstance(config, cls.config_class):
            others = [*parameters, *([f"preset {preset!r}"] if preset != "default" else [])]
            raise ConfigError(
                f"expected config to be a {cls.config_class.__name__} and no further parameters, found "
                f"{type(config).__name__} and {', '.join(others) or 'none'}"
            )
        if feature_map is not None:
            return replace(config, features="custom")
        if config.features == "custom":
            raise ConfigError("features='custom' goes with the argument feature_map, a function; found none")
        return config

    def _build(
        self,
        make_store: Callable[[StoreSpec], Store],
        next_id: int,
        observation_layout: Layout,
        action_layout: Layout,
        config: Any,
        feature_map: Callable[[Any], Any] | None,
    ) -> None:
        self.config: ConfigT = config
        spec = StoreSpec(
            observation_layout=observation_layout,
            action_layout=action_layout,
            feature_map=make_feature_map(feature_map or config.features, observation_layout, config.rotation_weight),
            n_obs_steps=config.n_obs_steps,
            n_action_steps=config.n_action_steps,
            padding=config.padding,
            frames=config.frames,
            index=config.index,
            recall=config.recall,
            n_neighbors=config.n_neighbors or DEFAULT_NEIGHBORS,
            metric=config.metric,
            bandwidth=getattr(config, "bandwidth", KernelConfig.bandwidth),
            regularization=config.regularization,
            shrinkage=config.shrinkage,
            relevance=config.relevance,
        )
        self._lock = threading.Lock()
        self._deadline = Deadline(getattr(config, "deadline", None))
        self.next_episode_id = next_id
        self._store = make_store(spec)
        self.check_size(self._store, 1, 1)
        for caution in self._cautions():
            warnings.warn(caution, ClosedFormWarning, stacklevel=3)

    def _cautions(self) -> list[str]:
        """What a user should know about parameters that do not fit the demonstrations."""
        asked, found = self.config.n_neighbors, len(self._store)
        few = asked is not None and asked > found
        return [f"n_neighbors is {asked}, but there are only {found} windows: using all"] if few else []

    @property
    def store(self) -> Store:
        """What plans read now: an immutable value, which `add` and `remove` replace."""
        return self._store

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        return self._store.spec.observation_layout

    @property
    def action_layout(self) -> Layout:
        """What the numbers of an action are."""
        return self._store.spec.action_layout

    @property
    def episode_ids(self) -> list[int]:
        """The ids of the episodes that the policy holds."""
        return self._store.episode_ids.tolist()

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes that the policy holds, in the order of `episode_ids`."""
        return self._store.episodes

    @property
    def n_windows(self) -> int:
        """How many demonstrated windows there are to choose from."""
        return len(self._store)

    @property
    def index_recall(self) -> Recall | None:
        """How much of what exact search finds is found; None where the search is exact."""
        return self._store.index.recall if isinstance(self._store, LargeStore) else None

    def fingerprint(self) -> dict[str, Any]:
        """How many episodes and steps it holds, and their checksum."""
        arrays = (array for episode in self.episodes for array in (episode.observations, episode.actions))
        return {"episodes": len(self.episodes), "steps": sum(map(len, self.episodes)), "crc32": crc32(arrays)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.episode_ids)} episodes, {self.n_windows} windows)"

    def add(self, episode: Episode | tuple[Any, Any]) -> int:
        """Adds an episode and returns its id; the next plan sees it."""
        with self._lock, gently():
            episode = as_episode(episode, self.next_episode_id)
            breathe()
            check_episode(episode, self.next_episode_id, self.observation_layout, self.action_layout)
            store = self._store.add(episode, self.next_episode_id)
            store.prepare(self.config.metric)
            self._store = store
            self.next_episode_id += 1
            return self.next_episode_id - 1

    def remove(self, episode_id: int) -> None:
        """Removes an episode; plans are then as if it had never been there."""
        if not isinstance(episode_id, Integral) or isinstance(episode_id, bool):
            raise DataError(f"expected the id of an episode, a whole number, found {episode_id!r}")
        with self._lock, gently():
            store = self._store.remove(episode_id)
            store.prepare(self.config.metric)
            self._store = store

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Plans once and throws the plan away, so that the next one is as fast as any."""
        episode = next(episode for episode in self._store.episodes if len(episode))
        self.plan(episode.observations[0], seed=0)

    def plan(self, observation: Any, *, seed: Seed = None, penalty: np.ndarray | None = None) -> Plan:
        """Plans one chunk for one observation.

        Args:
            observation: (D_o,) or a window (N_o, D_o), the newest last; a single observation is repeated.
            seed: an integer or a generator; the same seed gives the same chunk.
            penalty: (n_windows,), added to the squared distance of each window.
        """
        if penalty is None:
            return self.plan_with_store(observation, seed=seed)[0]
        extra = real_array(penalty, "penalty").astype(np.float64)

        def checked(store: Store) -> Penalty:
            if extra.shape != (len(store),) or not (np.isfinite(extra) & (extra >= 0)).all():
                raise DataError(f"penalty: expected {len(store)} numbers of 0 or more, found shape {extra.shape}")
            return Penalty.of(extra)

        return self.plan_with_store(observation, seed=seed, penalty=checked)[0]

    def start_memory(self) -> LoopMemory:
        """What an agent remembers of the demonstrations it used."""
        return LoopMemory(self.config.loop_memory, self.config.n_execute)

    def plan_remembering(self, window: np.ndarray, rng: np.random.Generator, memory: LoopMemory) -> Plan:
        """Plans with what an agent remembers, and takes note of the plan."""
        plan, store = self.plan_with_store(window, seed=rng, penalty=memory.penalty)
        planned = self._deadline.clock()
        memory.remember(plan, store)
        self._deadline.remembered(planned)
        return plan

    def plan_with_store(
        self, observation: Any, *, seed: Seed, penalty: Callable[[Store], Penalty] | None = None
    ) -> tuple[Plan, Store]:
        """`plan`, together with the store it was made from; the penalty is a function of that store."""
        began = self._deadline.clock()
        store = self._store
        windows = self.windows(real_array(observation, "an observation")[None])
        extra = Penalty.none() if penalty is None else penalty(store)
        made = self.generate(store, windows, 1, generator(seed), extra, explain=True, began=began)
        weights = made.weights[0, 0]
        used = np.flatnonzero(weights > NEGLIGIBLE)
        used = used[np.argsort(-weights[used], kind="stable")]
        rows, weights = made.rows[0, used], weights[used]
        plan = Plan(
            actions=self.to_robot(store, windows, made)[0, 0],
            frame=" / ".join(store.spec.selected_frames[frame].name for frame, _ in made.choices[0]),
            held=_names_of_held(store, made.choices[0]),
            choice=made.choices[0],
            episodes=store.episode_ids[store.row_episodes[rows]],
            steps=store.row_steps[rows],
            weights=weights / weights.sum(),
            distance=float(made.distances[0]),
            n_steps=int(made.n_steps[0, 0]) if made.n_steps.size else 0,
            complete=made.complete,
        )
        if made.ended.size and not math.isnan(made.ended[0, 0]):
            self._deadline.finished(made.ended[0, 0])
        return plan, store

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a) for many observations at once, on all cores where that pays."""
        store = self._store
        windows = self.sampling_windows(observations, n_samples)
        self.check_size(store, len(windows), int(n_samples))
        made = self.generate(store, windows, int(n_samples), generator(seed), Penalty.none(), explain=False)
        return self.to_robot(store, windows, made)

    def sampling_windows(self, observations: Any, n_samples: Any) -> np.ndarray:
        """The windows (B, N_o, D_o) to sample for, if that is what was given."""
        if not isinstance(n_samples, Integral) or isinstance(n_samples, bool) or n_samples < 1:
            raise ConfigError(f"n_samples: expected a whole number of at least 1, found {shown(n_samples)}")
        observations = real_array(observations, "observations")
        if observations.ndim not in (2, 3) or not len(observations):
            raise DataError(f"expected observations of shape (B, D_o) or (B, N_o, D_o), found {observations.shape}")
        return self.windows(observations)

    @abstractmethod
    def _generate(
        self,
        store: Store,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        penalty: Penalty,
        *,
        explain: bool,
        began: float | None = None,
    ) -> Generated:
        """Makes chunks for windows (B, N_o, D_o).

        Args:
            store: what to plan from.
            windows: the observations.
            n_samples: chunks for each.
            rng: random numbers.
            penalty: what to add to squared distances.
            explain: whether rows and weights are asked for.
            began: when the plan began, if it is subject to the deadline.
        """

    def generate(self, *arguments: Any, **options: Any) -> Generated:
        """`_generate`, refusing observations that cannot be compared with demonstrations, and chunks unlike theirs."""
        with np.errstate(over="ignore", invalid="ignore"):  # which shows as a distance that is not finite
            made = self._generate(*arguments, **options)
        return refuse_unsound(made)

    def check_size(self, store: Store, n_plans: int, n_samples: int) -> None:
        """Refuses to plan where that would take more memory than there is."""
        n_chunks = n_plans * n_samples + 2 * self.n_neighbors(store)
        self._refuse_larger(n_chunks * self.chunk_size(store), n_plans, n_samples)

    def _refuse_larger(self, n_numbers: int, n_plans: int, n_samples: int) -> None:
        what = (
            f"planning for {n_plans} observations, {shown(n_samples)} samples each, with n_action_steps = "
            f"{self.config.n_action_steps}"
        )
        check_size(n_numbers, what, "lower one of these, or n_neighbors, n_perturbations or n_diffusion_steps")

    def chunk_size(self, store: Store) -> int:
        """How many numbers an encoded chunk has."""
        return self.config.n_action_steps * store.spec.encoding.width

    def n_neighbors(self, store: Store) -> int:
        """k, of a store that may have fewer windows than were asked for."""
        return min(self.config.n_neighbors or DEFAULT_NEIGHBORS, len(store))

    def to_robot(self, store: Store, windows: np.ndarray, made: Generated) -> np.ndarray:
        """Brings normalized chunks into the robot's units. -> (B, n, N_a, D_a)."""
        spec = store.spec
        size, n_samples, _ = made.chunks.shape
        encoded = made.chunks.reshape(size, n_samples * self.config.n_action_steps, spec.encoding.width).copy()
        for choice in made.choices if size == 1 else np.unique(made.choices, axis=0):
            chosen = slice(None) if size == 1 else (made.choices == choice).all((1, 2))
            offset, scale = store.normalization(choice)
            encoded[chosen] = encoded[chosen] / scale + offset
            if not store.transfer.as_recorded(choice):
                poses = spec.body_poses(windows[chosen, -1])
                encoded[chosen] = store.transfer.out_of(encoded[chosen], poses, choice)
        actions = spec.encoding.decode(encoded).reshape(size, n_samples, self.config.n_action_steps, -1)
        for kind, columns, low, high in store.bounded_actions:
            values = actions[..., columns]
            if kind == "binary":
                actions[..., columns] = np.where(values * 2 > low + high + UNDECIDED * (high - low), high, low)
            else:  # an angle, without jumps and on the turn that was demonstrated
                values = np.unwrap(values, axis=2)
                turns = np.round((values.mean(2, keepdims=True) - (low + high) / 2) / (2 * np.pi))
                actions[..., columns] = values - 2 * np.pi * turns
        return refuse_infinite(actions)

    def save(self, folder: Any) -> None:
        """Writes the policy to a folder: config.json, policy.safetensors, and the index of a large one; see `load`."""
        save_policy(self, folder)


def _names_of_held(store: Store, choice: np.ndarray) -> str:
    names = [store.spec.body_poses.bodies[body][0] if body >= 0 else "nothing" for body in choice[:, 1]]
    return " / ".join(names) if (choice[:, 1] >= 0).any() else ""
