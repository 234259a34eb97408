"""Diffusion Policy's replay buffers: zarr v2 or v3, a folder or a zip, with `data/*` and `meta/episode_ends`."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.array_images import ZarrImages
from closedform.demos.formats.checksums import KEY, Checksums
from closedform.demos.formats.common import ReadOptions, flat, known_layout, known_rate, pick, require, split
from closedform.demos.formats.sizes import Sizes
from closedform.demos.formats.zarr_arrays import is_array, read_array, read_attributes, read_shape
from closedform.demos.formats.zarr_store import ZarrStore
from closedform.demos.images import Images
from closedform.errors import ClosedFormError, LoadError
from closedform.files import appearing, parse_json
from closedform.geometry.layout import Layout

NAME = "zarr"
_PURPOSE = "reading a zarr replay buffer"
_OBSERVATION_KEYS = ("state", "obs", "observation", "observations", "agent_pos", "robot_eef_pose")
_ACTION_KEYS = ("action", "actions")
_IMAGES = 64  # in a chunk
_MARKERS = (".zgroup", "zarr.json", ".zmetadata", "data/.zgroup", "data/zarr.json")


def matches(path: Path) -> bool:
    """Whether a path holds a zarr group."""
    if path.is_dir():
        return any((path / marker).exists() for marker in _MARKERS)
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not set(_MARKERS).isdisjoint(archive.namelist())


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; keys are those of the group `data`."""
    options.recorded_only(path, "a zarr replay buffer")
    require("numcodecs", _PURPOSE)
    try:
        with ZarrStore(path) as store:
            return _read(path, store, options)
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected groups data and meta with episode_ends, found {error!r}") from error


def _read(path: Path, store: ZarrStore, options: ReadOptions) -> Demos:
    names = [name for name in store.children("data") if is_array(store, f"data/{name}")]
    observation_keys = options.observation_keys or (pick(path, names, None, _OBSERVATION_KEYS, "observations"),)
    observation_keys = [pick(path, names, key, (), "observations") for key in observation_keys]
    action_key = pick(path, names, options.action_key, _ACTION_KEYS, "actions")
    sizes = Sizes(path, store.stored)
    ends = read_array(store, "meta/episode_ends", sizes)
    parts = [flat(path, key, read_array(store, f"data/{key}", sizes)) for key in observation_keys]
    if len({len(part) for part in parts}) != 1:
        raise LoadError(f"{path}: expected observations of equal length, found {[len(part) for part in parts]}")
    actions = read_array(store, f"data/{action_key}", sizes)
    attributes = read_attributes(store)
    rate = known_rate(path, attributes.get("rate"))
    layouts = {name: _layout(path, name, attributes.get(name)) for name in ("observation_layout", "action_layout")}
    checksums = Checksums.from_json(path, attributes.get(KEY))
    if checksums is not None:
        checksums.check_description(path, layouts, rate, ends.size)
    observations = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    known = {**layouts, "rate": rate, "images": _images(path, store, names, ends)}
    return split(path, observations, actions, ends, options, checksums=checksums, **known)


def _images(path: Path, store: ZarrStore, names: list[str], ends: np.ndarray) -> dict[str, list[Images]]:
    """References to arrays (N, H, W, 3), for each episode."""
    found = {}
    for name in names:
        shape = read_shape(store, f"data/{name}")
        if len(shape) == 4 and shape[3] == 3 and len(ends) and shape[0] == ends[-1]:
            source, starts = ZarrImages(path, f"data/{name}"), [0, *ends[:-1].tolist()]
            found[name] = [Images(source, *span) for span in zip(starts, ends.tolist(), strict=True)]
    return found


def _layout(path: Path, name: str, text: Any) -> Layout | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise LoadError(f"{path}: expected {name} to be JSON text, found {type(text).__name__}")
    return known_layout(path, name, parse_json(text, f"{path}: {name}"))


def write(demos: Demos, path: Path) -> None:
    """Writes a zarr v2 replay buffer: a zip if the name ends in .zip, otherwise a folder.

    Images are written as they are read, a chunk after the other.
    """
    zarr = require("zarr", "writing a zarr replay buffer")
    files: dict[str, Any] = {}  # zarr writes to memory, because a zip that it cannot finish is left open
    attributes: dict[str, Any] = {
        "observation_layout": json.dumps(demos.observation_layout.to_json()),
        "action_layout": json.dumps(demos.action_layout.to_json()),
        KEY: Checksums.of(demos, demos.rate, joined=True).to_json(),
    }
    if demos.rate is not None:
        attributes["rate"] = demos.rate
    group = zarr.create_group(zarr.storage.MemoryStore(files), zarr_format=2, attributes=attributes)
    data, meta = group.create_group("data"), group.create_group("meta")
    for name, array in (("state", demos.all_observations()), ("action", demos.all_actions())):
        _create(data, name, array)
    _create(meta, "episode_ends", np.cumsum([len(episode) for episode in demos]))
    zipped = path.suffix == ".zip"
    with appearing(path, folder=not zipped) as target:
        if zipped:
            with zipfile.ZipFile(target, "w") as archive:
                for name, content in _files(demos, files):
                    archive.writestr(name, content)
            return
        for name, content in _files(demos, files):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)


def _files(demos: Demos, files: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """The names and the contents of all files: what zarr wrote, and the images of each camera."""
    for name, content in files.items():
        yield name, content.to_bytes()
    numcodecs = require("numcodecs", "writing a zarr replay buffer")
    codec = numcodecs.Zlib(1)
    for camera in demos.cameras:
        name = f"data/{camera.rsplit('.', 1)[-1]}"
        images = (image for episode in demos for image in episode.images[camera])
        shape: tuple[int, ...] = ()
        for number in range(-(-demos.n_steps // _IMAGES)):
            block = np.stack(list(itertools.islice(images, _IMAGES)))
            shape = block.shape[1:]
            full = np.zeros((_IMAGES, *shape), np.uint8)
            full[: len(block)] = block
            yield f"{name}/{number}.0.0.0", bytes(codec.encode(full))
        facts = {
            "zarr_format": 2,
            "shape": [demos.n_steps, *shape],
            "chunks": [_IMAGES, *shape],
            "dtype": "|u1",
            "compressor": codec.get_config(),
            "fill_value": 0,
            "order": "C",
            "filters": None,
        }
        yield f"{name}/.zarray", json.dumps(facts, indent=2).encode()


def _create(group: Any, name: str, array: np.ndarray) -> None:
    chunks = (min(len(array), 100_000), *array.shape[1:])
    group.create_array(name, data=array, chunks=chunks, config={"write_empty_chunks": True})
