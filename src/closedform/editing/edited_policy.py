"""EditedPolicy: a neural policy and the demonstrations that edit it."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import real_array
from closedform.diffusion.denoiser import ClosedForm, Denoiser
from closedform.editing.pruned import Pruned
from closedform.errors import ConfigError, DataError, LoadError
from closedform.geometry.layout import Layout
from closedform.neural.config import NeuralConfig, UNetConfig
from closedform.neural.policy import NeuralPolicy, read_neural
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.folder import (
    EDITED,
    FILES,
    FORMAT,
    FORMAT_VERSION,
    NEURAL,
    PARTS,
    as_path,
    check_seal,
    holds_only,
    is_free,
    read_content,
    write_content,
    write_folder,
)
from closedform.policies.plan import Plan
from closedform.policies.plan_batch import refuse_infinite, unmeasured
from closedform.policies.policy import Policy
from closedform.policies.randomness import Seed, Streams, generator
from closedform.policies.saving import read_policy, write_policy
from closedform.snapshot import Snapshot
from closedform.weights.state import State


class EditedPolicy(Policy[NeuralConfig | UNetConfig]):
    """Samples with the neural policy's process, parameters and normalization, and an edited denoiser.

    Args:
        neural: the trained policy.
        demonstrations: the closed-form policies that edit it, by role. Their windows and chunks are as long as those of
            the neural policy, and they use the world frame; `demonstrations_for` makes them.
    """

    edit: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    optional_parts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, neural: NeuralPolicy, demonstrations: dict[str, ClosedFormPolicy]):
        self.neural, self.config, self.demonstrations = neural, neural.config, demonstrations
        for name, policy in demonstrations.items():
            check_fit(neural, policy, name)

    def __repr__(self) -> str:
        given = {**self.demonstrations, **self.parameters}
        return f"{type(self).__name__}({', '.join([repr(self.neural), *(f'{k}={v}' for k, v in given.items())])})"

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        return self.neural.observation_layout

    @property
    def action_layout(self) -> Layout:
        """What the numbers of an action are."""
        return self.neural.action_layout

    @property
    def n_weights(self) -> int:
        """The number of weights of the network."""
        return self.neural.n_weights

    def to(self, device: str) -> Self:
        """The same policy on another device, both the network and the closed form."""
        moved = copy.copy(self)
        moved.neural = self.neural.to(device)
        return moved

    def fingerprint(self) -> dict[str, Any]:
        """The fingerprints of its parts, and the arguments of the edit."""
        parts = {"neural": self.neural, **self.demonstrations}
        return {**{name: part.fingerprint() for name, part in parts.items()}, self.edit: self.parameters}

    @property
    @abstractmethod
    def parameters(self) -> dict[str, float | bool]:
        """The arguments of the edit, by their names."""

    @abstractmethod
    def denoiser(self, windows: np.ndarray, rng: Streams) -> Denoiser:
        """The edited denoiser for windows (B, N_o, D_o), on the neural policy's normalized chunks (B, n, N_a * D)."""

    def warm_up(self) -> None:
        """Evaluates the network and the demonstrations once."""
        policy = next(iter(self.demonstrations.values()))
        first, rng = policy.episodes[0].observations[:1], Streams([np.random.default_rng(0)])
        self.denoiser(self.windows(first), rng)(self.neural.noise(rng, 1), self.config.n_diffusion_steps)

    def plan(self, observation: Any, *, seed: Seed = None) -> Plan:
        """Plans one chunk for one observation (D_o,) or window (N_o, D_o); its distance is the neural policy's."""
        windows = self.windows(real_array(observation, "an observation")[None])
        return self.step_together(list(windows), [self.begin()], [generator(seed)])[0][0]

    @property
    def n_together(self) -> int:
        """The same as for the network."""
        return self.neural.n_together

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """Plans for several agents in one batch."""
        stacked, rng = np.stack(windows), Streams(rngs)
        actions = refuse_infinite(self.neural.sample_with(self.denoiser(stacked, rng), 1, rng))
        return [
            (self.neural.neural_plan(actions[i, 0], window), state)
            for i, (window, state) in enumerate(zip(stacked, states, strict=True))
        ]

    def sample(self, observations: Any, n_samples: int = 1, *, seed: Seed = None) -> np.ndarray:
        """Samples chunks (B, n_samples, N_a, D_a) for many observations at once."""
        windows, rng = self.neural.check_sampling(observations, n_samples, seed)
        return refuse_infinite(self.neural.sample_with(self.denoiser(windows, rng), n_samples, rng))

    def perturbations(self, policy: ClosedFormPolicy, rng: Streams) -> np.ndarray:
        """(B, M, N_a * D) draws of N(0, tau^2 I), in the neural policy's normalized actions."""
        size = self.config.n_action_steps * policy.model.transfer.encoding.width
        shape = (policy.config.n_perturbations if policy.config.tau else 1, size)
        return policy.config.tau * np.stack([each.standard_normal(shape) for each in rng.generators])

    def closed_form(
        self, policy: ClosedFormPolicy, rows: list[np.ndarray], log_weights: list[np.ndarray], shifts: np.ndarray
    ) -> ClosedForm:
        """The closed form of the neighbors of B observations, on the neural policy's process and normalization."""
        for number, each in enumerate(log_weights):
            if not np.max(each) > -np.inf:  # also if it is NaN
                raise unmeasured(number)
        chunks = np.array([self.neural.normalized(self._chunks(policy, each)) for each in rows])
        tensor = self.neural.tensor
        kind = ClosedForm if self.neural.device.type == "cuda" else Pruned  # pruning does not pay off on a GPU
        return kind(
            process=self.config.make_process(),
            actions=tensor(chunks.reshape(*chunks.shape[:2], -1)),
            log_weights=tensor(np.array(log_weights)),
            perturbations=tensor(shifts),
        )

    def _chunks(self, policy: ClosedFormPolicy, rows: np.ndarray) -> np.ndarray:
        """Encoded chunks (k, N_a, D) of windows, with the past actions that the network's chunks begin with, if any."""
        store, n_past = policy.store, self.config.n_action_steps - self.config.n_future
        chunks = store.encoded_chunks(rows)
        if not n_past:
            return chunks
        before = [
            store.episodes[episode].actions[np.maximum(np.arange(step - n_past, step), 0)]
            for episode, step in zip(store.row_episodes[rows], store.row_steps[rows], strict=True)
        ]
        return np.concatenate([policy.model.transfer.encoding.encode(np.array(before)), chunks], axis=1)

    def save(self, folder: Any) -> None:
        """Writes config.json and a folder for each part; an existing edited policy is replaced atomically."""
        folder = as_path(folder)
        if not is_free(folder, _replaceable):
            raise LoadError(f"{folder}: expected an empty folder or an edited policy to replace, found other files")
        content = {
            "format": EDITED,
            "format_version": FORMAT_VERSION,
            "edit": self.edit,
            "parts": list(self.demonstrations),
            "parameters": self.parameters,
        }

        def write(new: Path) -> None:
            for name in ("neural", *self.demonstrations):
                (new / name).mkdir()
            self.neural.write(new / "neural")
            for name, policy in self.demonstrations.items():
                write_policy(policy, new / name)
            write_content(new, content)

        write_folder(folder, write)


def demonstrations_for(neural: NeuralPolicy, demos: Demos, **parameters: Any) -> ClosedFormPolicy:
    """A closed-form policy to edit a neural one with, with the paper's parameters.

    Args:
        neural: the policy to be edited, whose windows it takes.
        demos: the demonstrations.
        parameters: those of `ClosedFormPolicy`, in place of the paper's.
    """
    plain = [Layout.plain(layout.width) for layout in (demos.observation_layout, demos.action_layout)]
    if plain == [neural.observation_layout, neural.action_layout]:  # a network that takes numbers as they are
        demos = Demos(demos.episodes, plain[0], plain[1], demos.rate)
    for what in ("observation_layout", "action_layout"):
        _check_layouts(getattr(neural, what), getattr(demos, what), "the demonstrations", what)
    config = neural.config
    fitted: dict[str, Any] = {
        "n_obs_steps": config.n_obs_steps,
        "n_action_steps": config.n_future,
        "n_execute": config.n_execute,
        "features": "geometric",
        "n_neighbors": None,
        "bandwidth": 0.09 * math.sqrt(len(neural.normalization.mean)),  # the paper's table for editing has h
        **parameters,
    }
    return ClosedFormPolicy(demos, "paper", **fitted)


def nearest_rows(policy: ClosedFormPolicy, windows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The features (B, D_z) of windows (B, N_o, D_o), and the nearest rows (k,) of each."""
    model = policy.model
    with np.errstate(over="ignore", invalid="ignore"):  # features or distances are then not finite
        queries = model.kernel.features(windows)
        return queries, [model.nearest(query, policy.n_neighbors(model)) for query in queries]


def check_fit(neural: NeuralPolicy, policy: ClosedFormPolicy, name: str) -> None:
    """Refuses demonstrations that do not fit a neural policy."""
    for what in ("observation_layout", "action_layout"):
        _check_layouts(getattr(neural, what), getattr(policy, what), name, what)
    for what, theirs in (("n_obs_steps", neural.config.n_obs_steps), ("n_action_steps", neural.config.n_future)):
        ours = getattr(policy.config, what)
        if theirs != ours:
            raise ConfigError(f"{what}: expected {theirs} as the neural policy has, found {ours} in {name}")
    if not policy.model.kernel.scale.all():
        raise ConfigError(
            f"drop_redundant: expected False in {name}, as the neural policy sees every number, found True"
        )
    if policy.targets is not None:
        raise ConfigError(f"targets: expected 'off' in {name}, as the neural policy acts, found 'auto'")
    if policy.config.frames != "world":
        found = policy.config.frames
        raise ConfigError(f"frames: expected 'world' in {name}, as the neural policy acts, found {found!r}")


def _check_layouts(expected: Layout, found: Layout, name: str, what: str) -> None:
    """Refuses a layout that differs from the neural policy's."""
    if expected != found:
        words = [
            ", ".join(f"{e.body or '-'} {e.kind} {e.size}" for e in layout.entries) for layout in (expected, found)
        ]
        raise DataError(
            f"expected {name} to have the {what.replace('_', ' ')} of the neural policy ({words[0]}), found {words[1]}"
        )


def read_edited(snapshot: Snapshot, content: dict[str, Any], kinds: dict[str, type[Any]]) -> EditedPolicy:
    """Reads a policy written by `EditedPolicy.save`, given its config.json and the classes by name of the edit."""
    path, kind = snapshot.folder / "config.json", kinds.get(str(content.get("edit")))
    parameters, parts = content.get("parameters"), content.get("parts")
    if kind is None or not isinstance(parameters, dict) or not isinstance(parts, list):
        raise LoadError(f"{path}: expected an edit of version {FORMAT_VERSION}, found another")
    known = [*kind.parts, *kind.optional_parts]
    if any(part not in known or parts.count(part) > 1 for part in parts) or not {*kind.parts} <= {*parts}:
        raise LoadError(f"{path}: expected the parts {', '.join(kind.parts)}, found {str(parts)[:200]}")
    neural = read_neural(*_part(snapshot, "neural", NEURAL))
    forms: dict[str, Any] = {name: read_policy(*_part(snapshot, name, FORMAT)) for name in parts}
    for name, form in forms.items():
        if not isinstance(form, ClosedFormPolicy):
            raise LoadError(f"{snapshot.folder / name}: expected a ClosedFormPolicy, found a {type(form).__name__}")
    try:
        policy = kind(neural, **forms, **parameters)
    except (TypeError, ArithmeticError, np.linalg.LinAlgError) as error:
        raise LoadError(f"{path}: expected the parameters of the edit, found {error}") from error
    check_seal(snapshot, content)
    return policy


def _part(snapshot: Snapshot, name: str, kind: str) -> tuple[Snapshot, dict[str, Any]]:
    """A part of an edited policy, which must be of one format: edited policies do not nest."""
    part = snapshot.parts.get(name)
    if part is None:
        raise LoadError(f"{snapshot.folder / name}: expected a saved policy, found none")
    content = read_content(part)
    if content["format"] != kind:
        raise LoadError(f"{part.folder}: expected a part of format {kind!r}, found {content['format']!r}")
    return part, content


def _replaceable(folder: Path) -> bool:
    """Whether a folder is empty or holds only an edited policy."""
    if not holds_only(folder, {"config.json", *PARTS}.__contains__, (EDITED,)):
        return False
    inside = [path.name for part in PARTS if (folder / part).is_dir() for path in (folder / part).iterdir()]
    return all(name in FILES for name in inside)
