"""Diffusion Policy's replay buffers: zarr v2 or v3, a folder or a zip, with `data/*` and `meta/episode_ends`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import ReadOptions, pick, require, split
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormError, LoadError
from closedform.files import appearing

NAME = "zarr"
PURPOSE = "reading a zarr replay buffer"
OBSERVATION_KEYS = ("state", "obs", "observation", "observations", "agent_pos", "robot_eef_pose")
ACTION_KEYS = ("action", "actions")
MARKERS = (".zgroup", "zarr.json", ".zmetadata", "data/.zgroup", "data/zarr.json")


def matches(path: Path) -> bool:
    """Whether a path holds a zarr group."""
    if path.is_dir():
        return any((path / marker).exists() for marker in MARKERS)
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not set(MARKERS).isdisjoint(archive.namelist())


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; keys are those of the group `data`."""
    options.recorded_only(path, "a zarr replay buffer")
    zarr = require("zarr", PURPOSE)
    from zarr.storage import LocalStore, ZipStore

    store = LocalStore(path, read_only=True) if path.is_dir() else ZipStore(path, mode="r", read_only=True)
    try:
        group = zarr.open_group(store, mode="r")
        names = [name for name, _ in group["data"].arrays()]
        observation_keys = options.observation_keys or (pick(path, names, None, OBSERVATION_KEYS, "observations"),)
        action_key = pick(path, names, options.action_key, ACTION_KEYS, "actions")
        ends = _whole(path, group["meta"], "episode_ends")
        parts = []
        for key in observation_keys:
            part = _whole(path, group["data"], pick(path, names, key, (), "observations"))
            parts.append(part.reshape(len(part), -1))
        actions = _whole(path, group["data"], action_key)
        layouts = {
            name: Layout.from_json(json.loads(value))
            for name in ("observation_layout", "action_layout")
            if (value := group.attrs.get(name)) is not None
        }
        rate = group.attrs.get("rate")
        store.close()  # not after a failure: a zip that never opened cannot be closed either
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected groups data and meta with episode_ends, found {error!r}") from error
    observations = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    known: dict[str, Any] = {**layouts, "rate": float(rate) if isinstance(rate, int | float) else None}
    return split(path, observations, actions, ends, options, **known)


def _whole(path: Path, group: Any, key: str) -> np.ndarray:
    """Reads an array; a chunk that is missing is an error, where zarr itself would give zeros."""
    array = group[key]
    if array.dtype.hasobject:
        raise LoadError(f"{path}: expected {key} to be numbers, found objects")
    if array.nchunks_initialized < array.nchunks:
        missing = array.nchunks - array.nchunks_initialized
        raise LoadError(
            f"{path}: expected {array.nchunks} chunks of {key}, found {missing} of them missing; if they were all "
            "zeros, write the array again with write_empty_chunks=True"
        )
    return np.asarray(array[...])


def write(demos: Demos, path: Path) -> None:
    """Writes a zarr v2 replay buffer, a zip if the name ends in .zip, else a folder."""
    zarr = require("zarr", "writing a zarr replay buffer")
    from zarr.storage import LocalStore, ZipStore

    zipped = path.suffix == ".zip"
    with appearing(path, folder=not zipped) as target:
        store = ZipStore(target, mode="w") if zipped else LocalStore(target)
        attributes: dict[str, Any] = {
            "observation_layout": json.dumps(demos.observation_layout.to_json()),
            "action_layout": json.dumps(demos.action_layout.to_json()),
        }
        if demos.rate is not None:
            attributes["rate"] = demos.rate
        group = zarr.create_group(store, zarr_format=2, attributes=attributes)
        data, meta = group.create_group("data"), group.create_group("meta")
        for name, array in (("state", demos.all_observations()), ("action", demos.all_actions())):
            _create(data, name, array)
        _create(meta, "episode_ends", np.cumsum([len(episode) for episode in demos]))
        store.close()


def _create(group: Any, name: str, array: np.ndarray) -> None:
    chunks = (min(len(array), 100_000), *array.shape[1:])
    group.create_array(name, data=array, chunks=chunks, config={"write_empty_chunks": True})
