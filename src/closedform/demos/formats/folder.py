"""Our own format: a folder with demos.json and one safetensors file per episode.

An episode file is written under a temporary name and then renamed, so that one process can record while others read:
a reader only ever sees complete episodes. Numbers may have gaps where episodes were discarded.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from closedform.demos.demos import Demos, valid_rate
from closedform.demos.episode import Episode
from closedform.demos.formats.checksums import description_of
from closedform.demos.formats.common import ReadOptions, known_layout, known_names, known_rate, make_demos, select
from closedform.demos.formats.image_files import find_images
from closedform.demos.formats.sizes import Sizes
from closedform.errors import LoadError
from closedform.files import appearing, crc32, read_json
from closedform.geometry.layout import Layout

NAME = "folder"
IMAGES = "images"  # a folder in it; see `image_files`
PERCEIVER = "perceiver"  # a folder in it, if observations were made from images
FORMAT = "closedform-demos"
FORMAT_VERSION = 1
EPISODE = re.compile(r"episode_(\d{6,})\.safetensors")
_LAYOUTS = ("observation_layout", "action_layout")
_TYPES = {"F32": "f4", "F64": "f8"}  # what episodes are made of


def matches(path: Path) -> bool:
    """Whether a path is a folder with demos.json."""
    return (path / "demos.json").is_file()


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes that are complete now."""
    options.recorded_only(path, "a closedform folder")
    if options.observation_keys not in (None, ("observations",)) or options.action_key not in (None, "actions"):
        raise LoadError(
            f"{path}: a closedform folder has one array of observations and one of actions, with no keys to choose "
            f"from; found observation_keys {options.observation_keys} and action_key {options.action_key!r}"
        )
    facts = read_header(path)
    files = sorted((int(m[1]), f) for f in path.iterdir() if (m := EPISODE.fullmatch(f.name)))
    if not files:
        raise LoadError(f"{path}: expected at least one episode_NNNNNN.safetensors, found none")
    chosen = select(path, options.episodes, len(files))
    header = path / "demos.json"
    layouts: dict[str, Any] = {key: known_layout(header, key, facts.get(key)) for key in _LAYOUTS}
    rate = known_rate(header, facts.get("rate"))
    if facts.get("checksum") not in (None, description_of(layouts[_LAYOUTS[0]], layouts[_LAYOUTS[1]], rate)):
        raise LoadError(
            f"{header}: checksum mismatch in the layouts or the rate; if they were changed on purpose, remove the line "
            '"checksum"'
        )
    sizes = Sizes.of(path, (file for _, file in files))
    pairs = [read_episode(files[index][1], sizes) for index in chosen]
    folder, numbers = path / IMAGES, [files[index][0] for index in chosen]
    images = find_images(folder, numbers) if folder.is_dir() else None
    names = facts.get("names") or [None, None]
    if not isinstance(names, list) or len(names) != 2:
        raise LoadError(f"{header}: expected names of observed and of commanded numbers, found others")
    known = {**layouts, "rate": rate, "images": images}
    known["column_names"] = tuple(
        known_names(header, own, array.shape[1]) for own, array in zip(names, pairs[0], strict=True)
    )
    demos = make_demos(path, pairs, options, verified=len(pairs), **known)
    demos.perceiver = path / PERCEIVER if (path / PERCEIVER).is_dir() else None
    return demos


def read_header(path: Path) -> dict[str, Any]:
    """Reads demos.json."""
    header = path / "demos.json"
    facts = read_json(header)
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise LoadError(f"{header}: expected format {FORMAT!r}; this is not a closedform folder of demonstrations")
    if facts.get("format_version") != FORMAT_VERSION:
        raise LoadError(
            f"{header}: expected format version {FORMAT_VERSION}, found {facts.get('format_version')!r}; "
            "it was written by a newer version of closedform: upgrade to read it"
        )
    known_rate(header, facts.get("rate"))
    return facts


def read_episode(path: Path, sizes: Sizes) -> tuple[np.ndarray, np.ndarray]:
    """The observations and actions of an episode file, verified against its checksum."""
    try:
        with safe_open(path, framework="numpy") as file:
            checksum = (file.metadata() or {}).get("crc32")
            for name in ("observations", "actions"):
                part = file.get_slice(name)
                sizes.add(f"{name} of {path.name}", part.get_shape(), np.dtype(_TYPES[part.get_dtype()]))
            arrays = {name: file.get_tensor(name) for name in ("observations", "actions")}
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise LoadError(
            f"{path}: expected a complete episode with observations and actions, found {error!r}"
        ) from error
    if checksum != crc32(arrays.values()):
        raise LoadError(f"{path}: checksum mismatch: the file is damaged")
    return arrays["observations"], arrays["actions"]


def header_of(
    observation_layout: Layout | None,
    action_layout: Layout | None,
    rate: float | None,
    names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
) -> str:
    """The content of demos.json."""
    facts = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "observation_layout": observation_layout.to_json() if observation_layout else None,
        "action_layout": action_layout.to_json() if action_layout else None,
        "rate": valid_rate(rate),
        "checksum": description_of(observation_layout, action_layout, rate),
        **({"names": names} if any(names) else {}),
    }
    return json.dumps(facts, indent=2) + "\n"


def write_episode(path: Path, episode: Episode) -> None:
    """Writes an episode file, with a checksum."""
    arrays = {name: np.ascontiguousarray(getattr(episode, name)) for name in ("observations", "actions")}
    save_file(arrays, path, metadata={"crc32": crc32(arrays.values())})


def write(demos: Demos, path: Path) -> None:
    """Writes a folder."""
    with appearing(path, folder=True) as target:
        fill(demos, target)


def fill(demos: Demos, folder: Path) -> None:
    """Writes the files of demonstrations into an empty folder."""
    header = header_of(demos.observation_layout, demos.action_layout, demos.rate, demos.column_names)
    (folder / "demos.json").write_text(header, encoding="utf-8")
    for index, episode in enumerate(demos):
        write_episode(folder / f"episode_{index:06d}.safetensors", episode)
