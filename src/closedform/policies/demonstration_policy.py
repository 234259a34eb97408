"""DemonstrationPolicy: demonstrations and parameters, from which plans are made."""

from __future__ import annotations

import math
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar, TypeVar, Unpack

import numpy as np

from closedform.demos.demos import Demos, as_episode, check_episode
from closedform.demos.episode import Episode, real_array
from closedform.demos.faults import check_new, refuse_faults
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormWarning, ConfigError, DataError
from closedform.files import crc32
from closedform.pixels.saved_perceiver import perceiver_of
from closedform.policies.config import PolicyConfig, shown
from closedform.policies.continuation import continuation_scale
from closedform.policies.deadline import Deadline
from closedform.policies.generated import Generated, Made, refuse_infinite, refuse_unsound
from closedform.policies.loop_memory import LoopMemory
from closedform.policies.model_spec import DEFAULT_NEIGHBORS, find_targets, model_spec, show_symmetry
from closedform.policies.parameters import ClosedFormParameters, name_parameters
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed, generator
from closedform.policies.saving import save_policy
from closedform.retrieval.build import build_model
from closedform.retrieval.goal import Goal
from closedform.retrieval.limits import check_size
from closedform.retrieval.model import Model
from closedform.retrieval.pace import breathe, gently, plan_begins
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.recall import Recall
from closedform.retrieval.recorded_steps import Progress
from closedform.retrieval.spec import ModelSpec
from closedform.retrieval.store import Store
from closedform.retrieval.symmetry import Symmetry
from closedform.retrieval.targets import Targets
from closedform.retrieval.term import Term

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
        **parameters: Unpack[ClosedFormParameters],
    ):
        if not isinstance(demos, Demos):
            demos = Demos(demos)
        elif not demos.finite:  # read for inspection only
            demos = Demos(demos, demos.observation_layout, demos.action_layout, demos.rate, demos.tasks)
        demos.check_one_task()
        refuse_faults(demos)
        self.perceiver, self.observation_names = perceiver_of(demos), demos.column_names[0]
        made = self.make_config(preset, config, feature_map, parameters, demos)
        shown = show_symmetry(demos, made)
        self.found_symmetry, demos = shown is not demos, shown
        symmetry = Symmetry.find(demos) if made.symmetry else None
        ids = np.arange(len(demos)) if episode_ids is None else np.array(episode_ids, np.int64)
        self._build(
            lambda spec: build_model(spec, demos.episodes, ids, progress),
            int(ids[-1]) + 1,
            demos.observation_layout,
            demos.action_layout,
            made,
            feature_map,
            terms,
            find_targets(demos if symmetry is None else symmetry.demos(demos), made),
            symmetry,
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
        targets: Targets | None = None,
        symmetry: Symmetry | None = None,
    ) -> None:
        self.config: ConfigT = config
        self._observation_layout, self._action_layout = observation_layout, action_layout
        spec = model_spec(config, observation_layout, action_layout, feature_map, terms, targets, symmetry)
        self._lock = threading.Lock()
        self._deadline = Deadline(getattr(config, "deadline", None))
        self.next_episode_id = next_id
        self.terms = tuple(terms)
        self._model = make_model(spec)
        self.check_size(self._model, 1, 1)
        for caution in self._cautions():
            warnings.warn(caution, ClosedFormWarning, stacklevel=3)

    def _cautions(self) -> list[str]:
        """Warnings about parameters that do not fit the demonstrations."""
        asked, found = self.config.n_neighbors, len(self._model)
        few = asked is not None and asked > found and asked != PolicyConfig.PAPER["n_neighbors"]  # a preset's
        return [f"n_neighbors is {asked}, but there are only {found} windows: using all"] if few else []

    @property
    def model(self) -> Model:
        """The current model: an immutable value, which `add` and `remove` replace."""
        return self._model

    @property
    def store(self) -> Store:
        """The current demonstrated windows."""
        return self._model.store

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
        return self._model.spec.targets

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
        return self._model.recall

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
            layouts = self.observation_layout, self.action_layout
            check_episode(episode, self.next_episode_id, *layouts)
            check_new(episode, self.next_episode_id, self.episodes, layouts)
            model = self._model.add(episode, self.next_episode_id)
            model.prepare()
            self._model = model
            self.next_episode_id += 1
            return self.next_episode_id - 1

    def remove(self, episode_id: int) -> None:
        """Removes an episode; plans are then as if it had never been added."""
        if not isinstance(episode_id, Integral) or isinstance(episode_id, bool):
            raise DataError(f"expected the id of an episode, a whole number, found {episode_id!r}")
        with self._lock, gently():
            model = self._model.remove(episode_id)
            model.prepare()
            self._model = model

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

    def plan(self, observation: Any, *, seed: Seed = None, penalty: np.ndarray | None = None) -> Plan:
        """Plans one chunk for one observation.

        Args:
            observation: (D_o,) or a window (N_o, D_o), the newest last; a single observation is repeated. Or a
                dictionary with images, if the demonstrations were perceived.
            seed: an integer or a generator; the same seed gives the same chunk.
            penalty: (n_windows,), added to the squared distance of each window.
        """
        observation = self.perceived(observation)
        if penalty is None:
            return self.plan_with_model(observation, seed=seed).plan
        extra = real_array(penalty, "penalty").astype(np.float64)

        def checked(store: Store) -> Penalty:
            if extra.shape != (len(store),) or not (np.isfinite(extra) & (extra >= 0)).all():
                raise DataError(f"penalty: expected {len(store)} numbers of 0 or more, found shape {extra.shape}")
            return Penalty.of(extra)

        return self.plan_with_model(observation, seed=seed, penalty=checked).plan

    def start_memory(self) -> LoopMemory:
        """A new agent's memory of the demonstrations it uses."""
        config, objects = self.config, any(isinstance(term, Goal) for term in self._model.kernel.terms)
        rest = config.rest and not objects
        memory = LoopMemory(
            config.loop_memory, config.n_execute, rest=rest, pace=config.pace, continuation=config.continuation
        )
        if self.targets is not None:
            memory.lead = self.targets.start()
        return memory

    def acted(self, action: np.ndarray, memory: LoopMemory) -> None:
        """Updates the controller's target after an action."""
        if self.targets is not None and memory.lead is not None:
            memory.lead = self.targets.after(memory.lead, action)

    def plan_remembering(self, window: np.ndarray, rng: np.random.Generator, memory: LoopMemory) -> Plan:
        """Plans with an agent's memory, and updates it."""
        made = self._plan(window[None], rng, memory.penalty, self._deadline.clock(), memory.lead)
        planned = self._deadline.clock()
        self._remember(made, memory)
        self._deadline.remembered(planned)
        return made.plan

    def plan_together(
        self, windows: Sequence[np.ndarray], rngs: Sequence[np.random.Generator], memories: Sequence[LoopMemory]
    ) -> list[Plan]:
        """Plans for several agents at once, each exactly as if it planned alone."""
        if len(windows) == 1:
            return [self.plan_remembering(windows[0], rngs[0], memories[0])]
        plans = self.plan_first(windows, rngs, memories)
        for _, remember in plans:
            remember()
        return [plan for plan, _ in plans]

    def plan_first(
        self, windows: Sequence[np.ndarray], rngs: Sequence[np.random.Generator], memories: Sequence[LoopMemory]
    ) -> list[tuple[Plan, Callable[[], None]]]:
        """`plan_together`; the functions returned update the memories."""
        several = self._plan_several(windows, rngs, memories)
        return [
            (made.plan, partial(self._remember, made, memory)) for made, memory in zip(several, memories, strict=True)
        ]

    def _plan_several(
        self, windows: Sequence[np.ndarray], rngs: Sequence[np.random.Generator], memories: Sequence[LoopMemory]
    ) -> list[Made]:
        clock = self._deadline.clock
        return [
            self._plan(window[None], rng, memory.penalty, clock(), memory.lead)
            for window, rng, memory in zip(windows, rngs, memories, strict=True)
        ]

    def _remember(self, made: Made, memory: LoopMemory) -> None:
        scale = continuation_scale(made.plan.distance, made.model.kernel.h)
        memory.remember(made.rows, made.plan.weights, made.model.store, scale)

    def plan_with_model(
        self, observation: Any, *, seed: Seed, penalty: Callable[[Store], Penalty] | None = None
    ) -> Made:
        """`plan`, together with the model and rows it was made from; the penalty is a function of the store."""
        began = self._deadline.clock()
        windows = self.windows(real_array(observation, "an observation")[None])
        return self._plan(windows, generator(seed), penalty, began)

    def _plan(
        self,
        windows: np.ndarray,
        rng: np.random.Generator,
        penalty: Callable[[Store], Penalty] | None,
        began: float,
        lead: np.ndarray | None = None,
    ) -> Made:
        """Plans for a checked window (1, N_o, D_o); `lead` is that of `Targets.to_actions`."""
        plan_begins()
        model = self._model
        extra = Penalty.none() if penalty is None else penalty(model.store)
        made = self.generate(model, windows, 1, rng, extra, explain=True, began=began)
        told = Made.of(made, model, self.to_robot(model, windows, made, lead)[0, 0])
        if made.ended.size and not math.isnan(made.ended[0, 0]):
            self._deadline.finished(made.ended[0, 0])
        return told

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a) for many observations at once, on all cores if that pays off."""
        model = self._model
        windows = self.sampling_windows(observations, n_samples)
        self.check_size(model, len(windows), int(n_samples))
        made = self.generate(model, windows, int(n_samples), generator(seed), Penalty.none(), explain=False)
        return self.to_robot(model, windows, made)

    @abstractmethod
    def _generate(
        self,
        model: Model,
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
            model: what to plan from.
            windows: the observations.
            n_samples: chunks for each.
            rng: random numbers.
            penalty: added to squared distances.
            explain: whether to return rows and weights.
            began: when the plan began, if it is subject to the deadline.
        """

    def generate(self, *arguments: Any, **options: Any) -> Generated:
        """`_generate`, with an error for observations and chunks that are not finite or not mixtures."""
        with np.errstate(over="ignore", invalid="ignore"):  # the distance is then not finite
            made = self._generate(*arguments, **options)
        return refuse_unsound(made)

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

    def to_robot(
        self, model: Model, windows: np.ndarray, made: Generated, lead: np.ndarray | None = None
    ) -> np.ndarray:
        """Converts normalized chunks to robot units. -> (B, n, N_a, D_a)."""
        return self.to_actions(model, windows, self.to_planned(model, windows, made), lead)

    def to_planned(self, model: Model, windows: np.ndarray, made: Generated) -> np.ndarray:
        """The same, before planned targets are converted back to displacements."""
        return refuse_infinite(model.transfer.to_robot(made.chunks, made.choices, windows[:, -1]))

    def to_actions(
        self, model: Model, windows: np.ndarray, chunks: np.ndarray, lead: np.ndarray | None = None
    ) -> np.ndarray:
        """The robot's actions for planned ones, (B, n, N_a, D_a)."""
        targets = model.spec.targets
        return chunks if targets is None else targets.to_actions(chunks, windows[:, None, -1], lead)

    def save(self, folder: Any) -> None:
        """Writes the policy to a folder: config.json, policy.safetensors, and the index of a large one; see `load`."""
        save_policy(self, folder)
