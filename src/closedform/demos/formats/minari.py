"""Minari's HDF5 datasets: `episode_N/{observations, actions}`, the file or the folder it lies in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import ReadOptions, flat, make_demos, pick, require, select
from closedform.errors import ClosedFormError, LoadError

NAME = "minari"
PURPOSE = "reading a Minari dataset"


def _file(path: Path) -> Path:
    if path.is_dir():
        return next((f for f in (path / "data" / "main_data.hdf5", path / "main_data.hdf5") if f.exists()), path)
    return path


def matches(path: Path) -> bool:
    """Whether a path is an HDF5 file with groups `episode_N`, or a folder with such a file."""
    file_path = _file(path)
    if file_path.is_dir():
        return False
    h5py = require("h5py", PURPOSE)
    try:
        with h5py.File(file_path, "r") as file:
            return any(re.fullmatch(r"episode_\d+", name) for name in file)
    except (OSError, RuntimeError):
        return False


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes. Minari stores one observation more than actions, the last one, which is left out."""
    options.recorded_only(path, "a Minari dataset")
    path = _file(path)
    h5py = require("h5py", PURPOSE)
    try:
        with h5py.File(path, "r") as file:
            names = sorted((n for n in file if re.fullmatch(r"episode_\d+", n)), key=lambda n: int(n[8:]))
            pairs = []
            for name in (names[e] for e in select(path, options.episodes, len(names))):
                actions = _values(
                    path, name, file[name]["actions"], (options.action_key,) if options.action_key else None
                )
                observations = _values(path, name, file[name]["observations"], options.observation_keys)
                if len(observations) not in (len(actions), len(actions) + 1):
                    raise LoadError(
                        f"{path}: {name}: expected {len(actions) + 1} observations for {len(actions)} actions, "
                        f"found {len(observations)}"
                    )
                pairs.append((observations[: len(actions)], actions))
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected episode_N with observations and actions, found {error}") from error
    return make_demos(path, pairs, options)


def _values(path: Path, episode: str, node: Any, keys: tuple[str, ...] | None) -> np.ndarray:
    """An array, or the arrays of a dictionary space one after the other."""
    if not hasattr(node, "keys"):
        return flat(path, f"{episode}/{node.name}", node[...])
    names = list(node.keys())
    chosen = [pick(path, names, key, (), "observations") for key in keys] if keys else sorted(names)
    return np.concatenate([_values(path, episode, node[name], None) for name in chosen], axis=1)
