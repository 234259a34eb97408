"""Minari's HDF5 datasets: `episode_N/{observations, actions}`, the file or its folder."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import ReadOptions, flat, make_demos, pick, select
from closedform.demos.formats.hdf5 import is_file_with, member, numbers, open_hdf5
from closedform.demos.formats.sizes import Sizes
from closedform.errors import LoadError

NAME = "minari"
_PURPOSE = "reading a Minari dataset"
_EPISODE = re.compile("episode_[0-9]+")


def _file(path: Path) -> Path:
    if path.is_dir():
        return next((f for f in (path / "data" / "main_data.hdf5", path / "main_data.hdf5") if f.is_file()), path)
    return path


def matches(path: Path) -> bool:
    """Whether a path is an HDF5 file with groups `episode_N`, or a folder with such a file."""
    file = _file(path)
    return not file.is_dir() and is_file_with(file, lambda root: any(map(_EPISODE.fullmatch, root)))


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes. Minari stores one more observation than actions; the last one is dropped."""
    options.recorded_only(path, "a Minari dataset")
    path = _file(path)
    with open_hdf5(path, _PURPOSE, "episode_N with observations and actions") as (file, sizes):
        names = sorted((n for n in file if _EPISODE.fullmatch(n)), key=lambda n: int(n[8:]))
        pairs = []
        for name in (names[e] for e in select(path, options.episodes, len(names))):
            reader = _MinariReader(path, name, sizes)
            episode = member(path, file, name)
            action_keys = (options.action_key,) if options.action_key else None
            actions = reader.values(member(path, episode, "actions"), action_keys)
            observations = reader.values(member(path, episode, "observations"), options.observation_keys)
            if len(observations) not in (len(actions), len(actions) + 1):
                raise LoadError(
                    f"{path}: {name}: expected {len(actions) + 1} observations for {len(actions)} actions, "
                    f"found {len(observations)}"
                )
            pairs.append((observations[: len(actions)], actions))
    return make_demos(path, pairs, options)


@dataclass
class _MinariReader:
    """Reads the arrays of one episode; groups that contain themselves are refused."""

    path: Path
    episode: str
    sizes: Sizes
    seen: list[Any] = field(default_factory=list)

    def values(self, node: Any, keys: tuple[str, ...] | None) -> np.ndarray:
        """An array, or the arrays of a dictionary space, concatenated."""
        if not hasattr(node, "keys"):
            if keys:
                raise LoadError(f"{self.path}: {self.episode}: expected {', '.join(keys)}, found a single {node.name}")
            return flat(self.path, f"{self.episode}/{node.name}", numbers(self.path, node, self.sizes))
        if node in self.seen:
            raise LoadError(f"{self.path}: {self.episode}: expected each group once, found {node.name} in two places")
        self.seen.append(node)
        names = list(node.keys())
        chosen = [pick(self.path, names, key, (), "observations") for key in keys] if keys else sorted(names)
        if not chosen:
            raise LoadError(f"{self.path}: {self.episode}: expected arrays in {node.name}, found none")
        parts = [self.values(member(self.path, node, name), None) for name in chosen]
        if len({len(part) for part in parts}) != 1:
            found = ", ".join(f"{name} {len(part)}" for name, part in zip(chosen, parts, strict=True))
            raise LoadError(f"{self.path}: {self.episode}: expected arrays of equal length, found {found}")
        return np.concatenate(parts, axis=1)
