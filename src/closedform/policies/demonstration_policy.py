"""DemonstrationPolicy: demonstrations and parameters, from which plans are made."""

from __future__ import annotations

import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, TypeVar

import numpy as np

from closedform.background import in_background
from closedform.demos.chosen_layouts import choose_layouts
from closedform.demos.demos import Demos, as_episode, check_episode
from closedform.demos.episode import Episode, real_array
from closedform.demos.faults import check_new, refuse_faults
from closedform.errors import ClosedFormWarning, ConfigError, DataError
from closedform.files import crc32
from closedform.geometry.layout import Layout
from closedform.limits import check_size
from closedform.parameters import name_parameters, shown
from closedform.policies.backends.backend import Backend
from closedform.policies.config import PolicyConfig
from closedform.policies.deadline import Deadline
from closedform.policies.model_spec import DEFAULT_NEIGHBORS, Choices, model_spec
from closedform.policies.plan import Plan
from closedform.policies.planner import Planner
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed, generator
from closedform.policies.saving import save_policy
from closedform.rewrites.rewrite import Rewrites
from closedform.rewrites.targets import Targets
from closedform.store.build import build_model
from closedform.store.model import Model
from closedform.store.recall import Recall
from closedform.store.recorded_steps import Progress
from closedform.store.spec import ModelSpec
from closedform.store.store import Store
from closedform.vision.saved_perceiver import perceiver_of
from closedform.weights.penalty import Penalty
from closedform.weights.state import State
from closedform.weights.term import Term
from closedform.weights.terms import remembering

ConfigT = TypeVar("ConfigT", bound=PolicyConfig, covariant=True)


class DemonstrationPolicy(Policy[ConfigT]):
    """A policy made of demonstrations; there is nothing to train.

    Its parameters never change. Episodes can be added and removed at any time, by any thread, and take effect at the
    next plan; plans under way finish on the episodes they began with.

    Args:
        demos: the demonstrations, `Demos` or pairs `(observations, actions)`; layouts are inferred from the numbers if
            none is declared, and a warning says what was inferred.
        preset: `default` or `paper`, the parameters to start from.
        feature_map: a function or torch module from observation windows (n, N_o * D_o) to features (n, D_z), instead of
            the parameter `features`.
        config: all parameters at once, instead of a preset.
        terms: additional distance terms, besides `loop_memory` and `goal_weight`; see `Term`.
        progress: called with a description and the fraction done, if indexing takes long.
        episode_ids: the ids of the episodes, rising; counted from 0 by default.
        parameters: parameters to replace, by name.
    """

    config_class: ClassVar[type[PolicyConfig]]
    found_symmetry: bool = False
    """Whether its layout declares a symmetry that was found in the demonstrations it was made from."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if hasattr(cls, "config_class"):
            name_parameters(cls, DemonstrationPolicy.__doc__)

    def __init__(
        self,
        demos: Demos | Iterable[Episode | tuple[Any, Any]],
        preset: str = "default",
        *,
        feature_map: Callable[[Any], Any] | None = None,
        config: PolicyConfig | None = None,
        terms: Sequence[Term] = (),
        progress: Progress | None = None,
        episode_ids: Sequence[int] | None = None,
        **parameters: Any,
    ):
        if not isinstance(demos, Demos):
            demos = Demos(demos)
        elif not demos.finite:  # read for inspection only
            layouts = (demos.observation_layout, demos.action_layout) if demos.declared else ()
            demos = Demos(demos, *layouts, rate=demos.rate, tasks=demos.tasks)
        demos.check_one_task()
        refuse_faults(demos)
        self.perceiver, self.observation_names = perceiver_of(demos), demos.column_names[0]
        chosen = choose_layouts(demos)
        demos = chosen.demos
        if chosen.told:
            warnings.warn(chosen.told, ClosedFormWarning, stacklevel=2)
        made = self.make_config(preset, config, feature_map, parameters, demos)
        choices = Choices.of(demos, made)
        self.found_symmetry, demos = choices.demos is not demos, choices.demos
        ids = np.arange(len(demos)) if episode_ids is None else np.array(episode_ids, np.int64)
        self._build(
            lambda spec: build_model(spec, demos.episodes, ids, progress),
            int(ids[-1]) + 1,
            demos.observation_layout,
            demos.action_layout,
            made,
            feature_map,
            terms,
            choices.rewrites,
        )

    @classmethod
    def make_config(
        cls,
        preset: str,
        config: PolicyConfig | None,
        feature_map: Callable[[Any], Any] | None,
        parameters: Mapping[str, Any],
        demos: Demos | None = None,
    ) -> Any:
        """The configuration from a policy's arguments, which must not contradict each other."""
        if config is None:
            config = cls.config_class.preset(preset, demos, **parameters)
        elif parameters or preset != "default" or not isinstance(config, cls.config_class):
            others = [*parameters, *([f"preset {preset!r}"] if preset != "default" else [])]
            raise ConfigError(
                f"expected config to be a {cls.config_class.__name__} and no further parameters, found "
                f"{type(config).__name__} and {', '.join(others) or 'none'}"
            )
        return config.with_feature_map(feature_map)

    def _build(
        self,
        make_model: Callable[[ModelSpec], Model],
        next_id: int,
        observation_layout: Layout,
        action_layout: Layout,
        config: Any,
        feature_map: Callable[[Any], Any] | None,
        terms: Sequence[Term] = (),
        rewrites: Rewrites = Rewrites(),  # noqa: B008 - a frozen value
    ) -> None:
        self.config: ConfigT = config
        self._observation_layout, self._action_layout = observation_layout, action_layout
        spec = model_spec(config, observation_layout, action_layout, feature_map, terms, rewrites)
        self._lock = threading.Lock()
        self._deadline = Deadline(getattr(config, "deadline", None))
        self.next_episode_id = next_id
        self.terms = tuple(terms)
        self._backend = self._make_backend()
        self._use(make_model(spec))
        self.check_size(self.model, 1, 1)
        for caution in self._cautions():
            warnings.warn(caution, ClosedFormWarning, stacklevel=3)

    def _cautions(self) -> list[str]:
        """Warnings about parameters that do not fit the demonstrations."""
        asked, found = self.config.n_neighbors, len(self.model)
        few = asked is not None and asked > found and asked != self.config.preset("paper").n_neighbors  # a preset's
        return [f"n_neighbors is {asked}, but there are only {found} windows: using all"] if few else []

    def _use(self, model: Model) -> None:
        """Plans from a model from now on."""
        self._planner = self.planner_of(model)

    @property
    def model(self) -> Model:
        """The current model: an immutable value, which `add` and `remove` replace."""
        return self._planner.model

    @property
    def store(self) -> Store:
        """The current demonstrated windows."""
        return self.model.store

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        return self._observation_layout

    @property
    def action_layout(self) -> Layout:
        """What the numbers of an action are."""
        return self._action_layout

    @property
    def targets(self) -> Targets | None:
        """The conversion of actions into the targets that are planned; None if actions are planned as they are."""
        return self.model.spec.rewrites.find(Targets)

    @property
    def episode_ids(self) -> list[int]:
        """The ids of the episodes that the policy holds."""
        return self.store.recorded_ids.tolist()

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes that the policy holds, in the order of `episode_ids`."""
        return self.store.recorded

    @property
    def n_windows(self) -> int:
        """How many demonstrated windows there are to choose from."""
        return self.store.n_shown

    @property
    def index_recall(self) -> Recall | None:
        """The recall relative to exact search; None if the search is exact."""
        return self.model.recall

    def fingerprint(self) -> dict[str, Any]:
        """How many episodes and steps it holds, and their checksum."""
        arrays = (array for episode in self.episodes for array in (episode.observations, episode.actions))
        return {"episodes": len(self.episodes), "steps": sum(map(len, self.episodes)), "crc32": crc32(arrays)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.episode_ids)} episodes, {self.n_windows} windows)"

    def add(self, episode: Episode | tuple[Any, Any]) -> int:
        """Adds an episode and returns its id; the next plan sees it.

        Symmetry, targets and horizons stay as they were found when the policy was made.
        """
        with self._lock:
            episode_id, layouts = self.next_episode_id, (self.observation_layout, self.action_layout)
            episode = as_episode(episode, episode_id)
            check_episode(episode, episode_id, *layouts)

            def grown() -> Model:
                check_new(episode, episode_id, self.episodes, layouts)
                return self.model.add(episode, episode_id).prepared()

            self._use(in_background(grown))
            self.next_episode_id += 1
            return episode_id

    def remove(self, episode_id: int) -> None:
        """Removes an episode; plans are then as if it had never been added."""
        if not isinstance(episode_id, Integral) or isinstance(episode_id, bool):
            raise DataError(f"expected the id of an episode, a whole number, found {episode_id!r}")
        with self._lock:
            self._use(in_background(lambda: self.model.remove(episode_id).prepared()))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Plans once and discards the plan, so that the next one is as fast as any."""
        episode = next(episode for episode in self.episodes if len(episode))
        self.plan(episode.observations[0], seed=0)

    @property
    def planner(self) -> Planner:
        """What plans from the current model."""
        return self._planner

    def planner_of(self, model: Model) -> Planner:
        """What plans from another model, such as one without an episode."""
        n_neighbors = self.config.n_neighbors or DEFAULT_NEIGHBORS
        terms = remembering(self.config, self.config.n_execute, model.kernel.terms)
        return Planner(model, self._backend, n_neighbors, terms, self._deadline)

    @abstractmethod
    def _make_backend(self) -> Backend:
        """What does the work of planning."""

    def plan(self, observation: Any, *, seed: Seed = None, penalty: np.ndarray | None = None) -> Plan:
        """Plans one chunk for one observation.

        Args:
            observation: (D_o,) or a window (N_o, D_o), the newest last; a single observation is repeated. Or a
                dictionary with images, if the demonstrations were perceived.
            seed: an integer or a generator; the same seed gives the same chunk.
            penalty: (n_windows,), added to the squared distance of each window.
        """
        planner = self._planner
        window = self.windows(real_array(self.perceived(observation), "an observation")[None])[0]
        state, store = planner.begin(), planner.model.store
        if penalty is not None:
            extra = real_array(penalty, "penalty").astype(np.float64)
            if extra.shape != (len(store),) or not (np.isfinite(extra) & (extra >= 0)).all():
                raise DataError(f"penalty: expected {len(store)} numbers of 0 or more, found shape {extra.shape}")
            state = replace(state, store=store, once=Penalty.of(extra))
        return planner.step(window, state, generator(seed))[0]

    def begin(self) -> State:
        """The state of an agent before its first plan of an episode."""
        return self._planner.begin()

    def acted(self, state: State, action: np.ndarray) -> State:
        """The state after an action, which moved the controller's target."""
        rewrites = self.model.spec.rewrites
        return replace(state, rewrites=rewrites.acted(state.rewrites, action)) if rewrites.parts else state

    def step(self, window: np.ndarray, state: State, rng: np.random.Generator) -> tuple[Plan, State]:
        """Plans for a checked window (N_o, D_o); returns the plan and the state after it."""
        return self._planner.step(window, state, rng)

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """Plans for several agents at once, each exactly as if it planned alone."""
        return self._planner.step_together(windows, states, rngs)

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a) for many observations at once, on all cores if that pays off."""
        planner = self._planner
        windows = self.sampling_windows(observations, n_samples)
        self.check_size(planner.model, len(windows), int(n_samples))
        return planner.sample(windows, int(n_samples), generator(seed))

    def check_size(self, model: Model, n_plans: int, n_samples: int) -> None:
        """Refuses to plan if it would take too much memory."""
        n_chunks = n_plans * n_samples + 2 * self.n_neighbors(model)
        self._refuse_larger(n_chunks * model.transfer.chunk_size, n_plans, n_samples)

    def _refuse_larger(self, n_numbers: int, n_plans: int, n_samples: int) -> None:
        what = (
            f"planning for {n_plans} observations, {shown(n_samples)} samples each, with n_action_steps = "
            f"{self.config.n_action_steps}"
        )
        check_size(n_numbers, what, "lower one of these, or n_neighbors, n_perturbations or n_diffusion_steps")

    def n_neighbors(self, model: Model) -> int:
        """k, at most the number of the model's windows."""
        return min(self.config.n_neighbors or DEFAULT_NEIGHBORS, len(model))

    def save(self, folder: Any) -> None:
        """Writes the policy to a folder: config.json, policy.safetensors, and the index of a large one; see `load`."""
        save_policy(self, folder)
