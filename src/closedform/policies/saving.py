"""Saving and loading policies: a folder with config.json and policy.safetensors, from which no code can run."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from closedform.demos.demos import Demos
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormError, ConfigError, LoadError, MissingExtraError
from closedform.files import crc32, flush, map_safetensors
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import PolicyConfig
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.nearest_neighbor import KernelRegressionPolicy, NearestNeighborPolicy
from closedform.policies.policy import Policy
from closedform.retrieval.large_store import EXACT_UP_TO, LargeStore, build_store
from closedform.retrieval.spec import StoreSpec
from closedform.retrieval.store import Store

FORMAT = "closedform-policy"
FORMAT_VERSION = 1
ARRAYS = ("observations", "actions", "lengths", "episode_ids")
FILES = {"config.json", "policy.safetensors", "summary.safetensors", "index.faiss"}
NEURAL, EDITED, LEROBOT = "closedform-neural", "closedform-edited", "lerobot"
ASSETS = Path(__file__).parent.parent / "assets"
SHIPPED = {"pusht-dit": ASSETS / "pusht_dit", "pusht-dit-left": ASSETS / "pusht_dit_left"}  # docs/models.md
POLICIES: dict[str, type[DemonstrationPolicy[Any]]] = {
    policy.__name__: policy for policy in (ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy)
}


def save_policy(policy: DemonstrationPolicy[Any], folder: str | Path) -> None:
    """Writes a policy to a folder; see `write_folder`."""
    folder = as_path(folder)
    if folder.exists() and not _replaceable(folder):
        raise LoadError(f"{folder}: expected nothing, or a saved policy to replace, found other files; choose another")
    store = policy._store
    large = store if isinstance(store, LargeStore) else None
    observations = _joined([episode.observations for episode in store.episodes])
    actions = _joined([episode.actions for episode in store.episodes])
    lengths = np.array([len(episode) for episode in store.episodes])
    arrays = {
        "observations": observations,
        "actions": actions,
        "lengths": lengths,
        "episode_ids": store.episode_ids,
    }
    config = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": type(policy).__name__,
        "parameters": asdict(policy.config),
        "observation_layout": policy.observation_layout.to_json(),
        "action_layout": policy.action_layout.to_json(),
        "n_episodes": len(lengths),
        "n_steps": int(lengths.sum()),
        "next_episode_id": policy._next_id,
        "crc32": crc32(arrays.values()),
    }

    if large is None and len(store) > EXACT_UP_TO:  # it goes on as it is, and plans the same bits
        config["parameters"]["index"] = "exact"

    def write(new: Path) -> None:
        save_file(arrays, new / "policy.safetensors")
        if large is not None:
            config["index"] = large.write(new, config["crc32"])
        (new / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")

    write_folder(folder, write)


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Has a folder filled, which appears, or replaces the old one, only when all of it is on the disk.

    A crash in the moment between moving the old folder away and the new one in leaves the old one beside it, where
    `load_policy` finds it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.new-", dir=folder.parent))
    try:
        write(new)
        for path in (*new.rglob("*"), new):
            flush(path)
            path.chmod(0o755 if path.is_dir() else 0o644)  # not for the owner alone, as temporary files are
        old = _old(folder)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        new.rename(folder)
        flush(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def load_policy(folder: str | Path, *, feature_map: Callable[[Any], Any] | None = None) -> Policy[Any]:
    """Reads a policy of any class that `save` wrote.

    Args:
        folder: the folder it was saved to, the name of a policy inside the package, or the folder of a checkpoint of
            LeRobot's DiffusionPolicy on state observations.
        feature_map: the custom feature map, where it had one; functions are not saved.
    """
    folder = as_path(SHIPPED.get(str(folder), folder))
    if not folder.exists() and _old(folder).exists():
        folder = _old(folder)
    config = _read_config(folder)
    if config["format"] == NEURAL:
        from closedform.neural.policy import read_neural

        return read_neural(folder, config)
    if config["format"] == LEROBOT:
        from closedform.neural.lerobot import read_lerobot

        return read_lerobot(folder, config)
    if config["format"] == EDITED:
        from closedform.editing.edited_policy import read_edited

        return read_edited(folder, config)
    large = isinstance(config.get("index"), dict)
    arrays = _read_arrays(folder, mapped=large)
    try:
        policy_class = POLICIES[config["policy"]]
        layouts = [Layout.from_json(config[key]) for key in ("observation_layout", "action_layout")]
        saved_parameters = {**PolicyConfig.BEFORE, **config["parameters"]}
        n_episodes, n_steps, next_id = (int(config[key]) for key in ("n_episodes", "n_steps", "next_episode_id"))
        if saved_parameters.get("features") == "custom":
            if feature_map is None:
                raise ConfigError("the policy was saved with a custom feature map: pass it again as feature_map")
            del saved_parameters["features"]
        parameters = policy_class._make_config("default", None, feature_map, saved_parameters)
    except ConfigError as error:
        raise LoadError(f"{folder / 'config.json'}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LoadError(
            f"{folder / 'config.json'}: expected a configuration of format {FORMAT_VERSION}, {error!r}"
        ) from error
    lengths, episode_ids = arrays["lengths"], arrays["episode_ids"]
    expected = {
        "observations": (n_steps, layouts[0].width),
        "actions": (n_steps, layouts[1].width),
        "lengths": (n_episodes,),
        "episode_ids": (n_episodes,),
    }
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise LoadError(
                f"{folder / 'policy.safetensors'}: expected {name} of shape {shape} as config.json says, "
                f"found {arrays[name].shape}"
            )
    if not large:
        _check_sum(folder, arrays, config)
    if not all(arrays[name].dtype.kind == "i" for name in ("lengths", "episode_ids")) or next_id <= episode_ids[-1]:
        raise LoadError(f"{folder}: expected lengths and ids to be whole numbers, and next_episode_id above all ids")
    if np.any(lengths < 0) or lengths.sum() != n_steps or np.any(np.diff(episode_ids) <= 0):
        raise LoadError(
            f"{folder / 'policy.safetensors'}: expected episode lengths that add up to {n_steps} and rising ids"
        )
    episode_ids = np.array(episode_ids)

    def make_store(spec: StoreSpec) -> Store:
        if large:
            return LargeStore.open(spec, folder, config["index"])
        ends = np.cumsum(lengths)
        pairs = [
            (arrays["observations"][end - length : end], arrays["actions"][end - length : end])
            for end, length in zip(ends, lengths, strict=True)
        ]
        return build_store(spec, Demos(pairs, layouts[0], layouts[1]).episodes, episode_ids)

    try:
        policy = object.__new__(policy_class)
        policy._build(make_store, next_id, layouts[0], layouts[1], parameters, feature_map)
    except MissingExtraError:
        raise
    except ClosedFormError as error:
        raise LoadError(f"{folder}: {error}") from error
    return policy


def verify(folder: str | Path) -> None:
    """Reads all of a saved policy of demonstrations and refuses numbers that are not those that were saved.

    `load_policy` does so itself unless the policy is large, and mapped from its file instead of read.
    """
    folder = as_path(SHIPPED.get(str(folder), folder))
    config = _read_config(folder)
    if config["format"] == FORMAT:
        _check_sum(folder, _read_arrays(folder, mapped=True), config)


def _check_sum(folder: Path, arrays: dict[str, np.ndarray], config: dict[str, Any]) -> None:
    if crc32(arrays[name] for name in ARRAYS) != config.get("crc32"):
        raise LoadError(f"{folder}: expected the numbers that were saved, found others; the files were damaged")


def as_path(folder: str | Path) -> Path:
    """A folder as a whole path; anything but a path is refused."""
    if not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"expected the path of a folder, found {folder!r}")
    try:
        return Path(folder).expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:  # nobody's home, a null byte, links in a circle
        raise ConfigError(f"expected the path of a folder, found {str(folder)!r}: {error}") from error


def _replaceable(folder: Path) -> bool:
    """Whether there is nothing in a folder but a saved policy."""
    if not folder.is_dir() or not {path.name for path in folder.iterdir()} <= FILES:
        return False
    try:
        return not any(folder.iterdir()) or bool(_read_config(folder))
    except LoadError:
        return False


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.ascontiguousarray(np.concatenate(arrays))


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LoadError(f"{folder}: expected a saved policy, found no config.json in it") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: expected JSON, found {error}") from error
    if isinstance(config, dict) and config.get("type") == "diffusion" and "input_features" in config:
        return {**config, "format": LEROBOT}
    if not isinstance(config, dict) or config.get("format") not in (FORMAT, NEURAL, EDITED):
        raise LoadError(f"{path}: expected format {FORMAT!r}; this is not a policy that closedform saved")
    version = config.get("format_version")
    if config["format"] == FORMAT and version != FORMAT_VERSION:
        raise LoadError(
            f"{path}: expected format version {FORMAT_VERSION}, found {version!r}; "
            "a newer version of closedform wrote it, and reading it needs that version"
        )
    return config


def _read_arrays(folder: Path, *, mapped: bool = False) -> dict[str, np.ndarray]:
    path = folder / "policy.safetensors"
    try:
        arrays = map_safetensors(path) if mapped else load_file(path)
    except FileNotFoundError as error:
        raise LoadError(f"{folder}: expected policy.safetensors beside config.json, found none") from error
    except (OSError, SafetensorError, ValueError) as error:
        raise LoadError(f"{path}: expected a whole safetensors file, found {error}") from error
    _check_names(path, arrays)
    return arrays


def _check_names(path: Path, arrays: dict[str, np.ndarray]) -> None:
    if set(arrays) != set(ARRAYS):
        raise LoadError(f"{path}: expected the arrays {', '.join(sorted(ARRAYS))}, found {', '.join(sorted(arrays))}")
