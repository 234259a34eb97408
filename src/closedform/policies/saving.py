"""Saving and loading policies: a folder with config.json and policy.safetensors, which cannot execute code."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from safetensors.numpy import save_file

from closedform.demos.demos import Demos
from closedform.demos.formats.common import known_names
from closedform.errors import ClosedFormError, ClosedFormWarning, ConfigError, LoadError, MissingExtraError
from closedform.files import crc32
from closedform.geometry.layout import Layout
from closedform.policies.folder import (
    EDITED,
    FILES,
    FORMAT,
    LEROBOT,
    NEURAL,
    PERCEIVER,
    POLICY_VERSION,
    PROCESSORS,
    SEAL,
    as_path,
    check_seal,
    holds_only,
    is_free,
    read_content,
    read_folder,
    whole_number,
    write_content,
    write_folder,
)
from closedform.rewrites.copies import Symmetry
from closedform.rewrites.rewrite import Rewrites
from closedform.rewrites.targets import Targets
from closedform.snapshot import Snapshot
from closedform.store.build import build_model
from closedform.store.model import Model
from closedform.store.recorded_steps import RecordedSteps
from closedform.store.saved_index import SavedIndex
from closedform.store.spec import ModelSpec
from closedform.vision.perceiver import Perceiver
from closedform.vision.saved_perceiver import read_perceiver, write_perceiver
from closedform.weights.term import Term

if TYPE_CHECKING:
    from closedform.policies.demonstration_policy import DemonstrationPolicy
    from closedform.policies.policy import Policy

ARRAYS = ("observations", "actions", "lengths", "episode_ids")
_KNOWN = {*FILES, *PROCESSORS, PERCEIVER}
_MAX_ENTRIES = 3000  # of a layout
CHECKED = "all checksums match"
_CHECKED_NUMBERS = "checksums of all numbers match; its parameters were saved by an older version without a checksum"
POLICIES: dict[str, type[DemonstrationPolicy[Any]]] = {}  # by their names in config.json
READERS: dict[str, Callable[[Snapshot, dict[str, Any]], Policy[Any]]] = {}  # of the other formats

PolicyT = TypeVar("PolicyT", bound="type[DemonstrationPolicy[Any]]")
ReaderT = TypeVar("ReaderT", bound="Callable[[Snapshot, dict[str, Any]], Policy[Any]]")


def register_policy(policy_class: PolicyT) -> PolicyT:
    """Registers a class of policies for loading, under its name."""
    POLICIES[policy_class.__name__] = policy_class
    return policy_class


def register_reader(name: str) -> Callable[[ReaderT], ReaderT]:
    """Registers a function that reads a format, given the opened folder and the content of its config.json."""

    def register(reader: ReaderT) -> ReaderT:
        READERS[name] = reader
        return reader

    return register


def save_policy(policy: DemonstrationPolicy[Any], folder: str | Path) -> None:
    """Writes a policy to a folder; see `write_folder`."""
    folder = as_path(folder)
    if not is_free(folder, lambda old: holds_only(old, _KNOWN.__contains__, (FORMAT, NEURAL))):
        raise LoadError(
            f"{folder}: expected an empty folder or a saved policy to replace, found other files; choose another"
        )

    def write(new: Path) -> None:
        write_policy(policy, new)
        if policy.perceiver is not None:
            (new / PERCEIVER).mkdir()
            write_perceiver(policy.perceiver, new / PERCEIVER)

    write_folder(folder, write)


def write_policy(policy: DemonstrationPolicy[Any], folder: Path) -> None:
    """Writes the files of a policy into an empty folder."""
    model, store = policy.model, policy.store
    recorded = (
        store.episodes if store.originals is None else store.originals
    )  # with removed ones, if their rows stay in the index
    lengths = np.array([len(episode) for episode in recorded])
    arrays = {
        "observations": _joined([episode.observations for episode in recorded]),
        "actions": _joined([episode.actions for episode in recorded]),
        "lengths": lengths,
        "episode_ids": np.ascontiguousarray(store.episode_ids[:: store.n_copies]),
    }
    content = {
        "type": "closedform",  # by which LeRobot finds its plugin
        "format": FORMAT,
        "format_version": POLICY_VERSION,
        "policy": type(policy).__name__,
        "parameters": asdict(policy.config),
        "observation_layout": policy.observation_layout.to_json(),
        "action_layout": policy.action_layout.to_json(),
        "n_episodes": len(lengths),
        "n_steps": int(lengths.sum()),
        "next_episode_id": policy.next_episode_id,
        "crc32": crc32(arrays.values()),
    }
    if policy.observation_names is not None:
        content["observation_names"] = list(policy.observation_names)
    content |= {rewrite.name: rewrite.to_json() for rewrite in model.spec.rewrites.parts}
    if policy.terms:
        content["terms"] = [type(term).__name__ for term in policy.terms]
    save_file(arrays, folder / "policy.safetensors")
    index = model.storage.write(model, folder, content["crc32"])
    if index is not None:
        content["index"] = index
    write_content(folder, content)


def load_policy(
    folder: str | Path, *, feature_map: Callable[[Any], Any] | None = None, terms: Sequence[Term] = ()
) -> Policy[Any]:
    """Loads a policy of any class written by `save`; docs/saved_policies.md says which damage is detected when.

    Args:
        folder: the folder it was saved to, the name of a policy that comes with the package, or the folder of a
            checkpoint of LeRobot's DiffusionPolicy on state observations.
        feature_map: the custom feature map, if it had one; functions are not saved.
        terms: its terms, if it had some; these are not saved either.
    """

    def read(snapshot: Snapshot) -> Policy[Any]:
        content = read_content(snapshot)
        if content["format"] == FORMAT:
            return read_policy(snapshot, content, feature_map, terms)
        return READERS[content["format"]](snapshot, content)

    return read_folder(folder, read)


class Described(NamedTuple):
    """What the content of a config.json says about a policy, apart from its demonstrations."""

    policy_class: type[DemonstrationPolicy[Any]]
    layouts: tuple[Layout, Layout]
    parameters: Any
    n_episodes: int
    n_steps: int
    next_id: int
    rewrites: Rewrites


def describe(
    path: Path | str,
    content: dict[str, Any],
    feature_map: Callable[[Any], Any] | None = None,
    terms: Sequence[Term] = (),
) -> Described:
    """Reads the content of a config.json; a `LoadError` that names its path if it is not one."""
    try:
        policy_class = POLICIES[content["policy"]]
        layouts = read_layout(content["observation_layout"]), read_layout(content["action_layout"])
        saved_parameters = {**content["parameters"]}
        n_episodes, n_steps = (whole_number(content, key, 1) for key in ("n_episodes", "n_steps"))
        next_id = whole_number(content, "next_episode_id", 1)
        if saved_parameters.get("features") == "custom":
            if feature_map is None:
                raise ConfigError("the policy was saved with a custom feature map: pass it again as feature_map")
            del saved_parameters["features"]
        parameters = policy_class.make_config("default", None, feature_map, saved_parameters)
        missing = [each.name for each in fields(parameters) if each.name not in content["parameters"]]
        if missing:
            raise ConfigError(f"expected every parameter, found none of {', '.join(missing)}")
        _check_terms(content.get("terms", []), terms)
        targets = Targets.from_json(content["targets"], *layouts) if "targets" in content else None
        used = layouts if parameters.symmetry else (layouts[0].asymmetric, layouts[1].asymmetric)
        symmetry = Symmetry.from_json(content.get("symmetry"), *used)
    except ConfigError as error:
        raise LoadError(f"{path}: {error}") from error
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise LoadError(f"{path}: expected a configuration of format {POLICY_VERSION}, {error!r}") from error
    rewrites = Rewrites(tuple(part for part in (symmetry, targets) if part is not None))
    return Described(policy_class, layouts, parameters, n_episodes, n_steps, next_id, rewrites)


def read_policy(
    snapshot: Snapshot,
    content: dict[str, Any],
    feature_map: Callable[[Any], Any] | None = None,
    terms: Sequence[Term] = (),
) -> DemonstrationPolicy[Any]:
    """Reads a policy written by `save_policy`, given the content of its config.json."""
    folder, arrays = snapshot.folder, _read_arrays(snapshot)
    large = isinstance(content.get("index"), dict)
    described = describe(folder / "config.json", content, feature_map, terms)
    policy_class, layouts, parameters, n_episodes, n_steps, next_id, rewrites = described
    expected = {
        "observations": (n_steps, layouts[0].width),
        "actions": (n_steps, layouts[1].width),
        "lengths": (n_episodes,),
        "episode_ids": (n_episodes,),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise LoadError(
                f"{folder / 'policy.safetensors'}: expected {name} of shape {shape} according to config.json, "
                f"found {arrays[name].shape}"
            )
        if arrays[name].dtype.kind != ("f" if arrays[name].ndim == 2 else "i"):
            raise LoadError(f"{folder / 'policy.safetensors'}: expected numbers as {name}, found {arrays[name].dtype}")
    if not large:
        _check_sum(folder, arrays, content)
    check_seal(snapshot, content)
    lengths, episode_ids = np.array(arrays["lengths"]), np.array(arrays["episode_ids"])
    if np.any(lengths < 0) or sum(lengths.tolist()) != n_steps or np.any(np.diff(episode_ids) <= 0):
        raise LoadError(
            f"{folder / 'policy.safetensors'}: expected episode lengths that add up to {n_steps} and rising ids"
        )
    if episode_ids[0] < 0 or next_id <= episode_ids[-1]:
        raise LoadError(f"{folder}: expected ids from 0 on, and next_episode_id above all of them")

    def make_model(spec: ModelSpec) -> Model:
        removed: tuple[int, ...] = ()
        if large:
            if SavedIndex.FILES[2] in snapshot.files:
                return RecordedSteps.open(spec, snapshot, content["index"])
            if not snapshot.unchanged():
                raise LoadError(f"{folder}: expected {SavedIndex.FILES[2]}, found the folder being replaced")
            warnings.warn(
                f"{folder}: {SavedIndex.FILES[2]} is missing, as after an upload to a hub: the index is built again; "
                "save the policy to keep it",
                ClosedFormWarning,
                stacklevel=2,
            )
            _check_sum(folder, arrays, content)
            removed = SavedIndex.parse(snapshot, content["index"]).removed
        ends = np.cumsum(lengths)
        pairs = [
            (arrays["observations"][end - length : end], arrays["actions"][end - length : end])
            for end, length in zip(ends, lengths, strict=True)
        ]
        kept = np.setdiff1d(np.arange(n_episodes), removed)
        return build_model(spec, Demos([pairs[i] for i in kept], *layouts).episodes, episode_ids[kept])

    try:
        policy = object.__new__(policy_class)
        policy._build(make_model, next_id, layouts[0], layouts[1], parameters, feature_map, terms, rewrites)
    except (MissingExtraError, LoadError):
        raise
    except ClosedFormError as error:
        raise LoadError(f"{folder}: {error}") from error
    policy.perceiver = _read_perceiver(snapshot, layouts[0])
    policy.observation_names = known_names(folder / "config.json", content.get("observation_names"), layouts[0].width)
    return policy


def _read_perceiver(snapshot: Snapshot, layout: Layout) -> Perceiver | None:
    """The perceiver of a policy that takes images, which has to make its observations."""
    if PERCEIVER not in snapshot.parts:
        return None
    perceiver = read_perceiver(snapshot.parts[PERCEIVER])
    if perceiver.layout.width != layout.width:
        raise LoadError(
            f"{snapshot.folder / PERCEIVER}: expected a perceiver of {layout.width} numbers, as the policy observes, "
            f"found one of {perceiver.layout.width}"
        )
    return perceiver


def _check_terms(saved: Any, given: Sequence[Term]) -> None:
    """Refuses terms whose class names differ from those that a policy was saved with."""
    names = [type(term).__name__ for term in given]
    if saved != names:
        raise ConfigError(
            f"the policy was saved with {_list(saved)}, found {_list(names)}: pass objects of these classes as terms"
        )


def _list(names: Any) -> str:
    return f"the terms {', '.join(map(str, names))[:200]}" if names else "no terms"


def read_layout(entries: Any) -> Layout:
    """The layout in config.json; raises `ConfigError`, `TypeError` or `ValueError` if it is invalid."""
    if not isinstance(entries, list) or len(entries) > _MAX_ENTRIES:
        raise TypeError(f"a layout that is not a list of at most {_MAX_ENTRIES} entries")
    layout = Layout.from_json(entries)
    if layout.width >= 2**31:
        raise ValueError("a layout of more than 2^31 numbers")
    return layout


def verify(folder: str | Path) -> str:
    """Verifies the checksums of a saved policy, reading every byte, and says what they cover.

    `load_policy` does so itself, unless the policy is indexed and its files are larger than
    `SavedIndex.WHOLE_UP_TO`: then it verifies only small parts, and memory-maps the rest.
    """
    return read_folder(folder, _verify)


def _verify(snapshot: Snapshot) -> str:
    content = read_content(snapshot)
    if content["format"] == LEROBOT:
        return "LeRobot checkpoints have no checksums: a changed number goes unnoticed"
    if content["format"] in (NEURAL, EDITED):  # loading verifies them
        said = {name: _verify(part) for name, part in snapshot.parts.items() if name != PERCEIVER}
        sealed = SEAL in content and all(text == CHECKED for text in said.values())
        return CHECKED if sealed else _CHECKED_NUMBERS
    arrays = _read_arrays(snapshot)
    _check_sum(snapshot.folder, arrays, content)
    check_seal(snapshot, content)
    if PERCEIVER in snapshot.parts:
        read_perceiver(snapshot.parts[PERCEIVER])
    facts = content.get("index")
    if not isinstance(facts, dict):
        return CHECKED if SEAL in content else _CHECKED_NUMBERS
    saved = SavedIndex.parse(snapshot, facts)
    saved.check_whole(snapshot, arrays)
    if not saved.has_checksums:
        return "checksums of the demonstrations match; an older version saved the index without any: save it again"
    if saved.is_small(snapshot):
        return CHECKED
    return f"{CHECKED}; loading verifies only its small parts, since its files exceed {SavedIndex.WHOLE_UP_TO} bytes"


def _check_sum(folder: Path, arrays: dict[str, np.ndarray], content: dict[str, Any]) -> None:
    if crc32(arrays[name] for name in ARRAYS) != content.get("crc32"):
        raise LoadError(f"{folder}: checksum mismatch: the files are damaged")


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(arrays))


def _read_arrays(snapshot: Snapshot) -> dict[str, np.ndarray]:
    arrays = snapshot.arrays("policy.safetensors")
    if set(arrays) != set(ARRAYS):
        found = ", ".join(sorted(arrays))[:200]
        path = snapshot.folder / "policy.safetensors"
        raise LoadError(f"{path}: expected the arrays {', '.join(sorted(ARRAYS))}, found {found}")
    return arrays
