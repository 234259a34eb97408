"""Our own format: a folder with demos.json and one safetensors file an episode.

An episode is a file, written under another name and then renamed, so that one process can record while others read:
whoever lists the folder sees whole episodes only. Numbers may have gaps where episodes were discarded.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.formats.common import ReadOptions, make_demos, select
from closedform.demos.layout import Layout
from closedform.errors import ConfigError, LoadError
from closedform.files import appearing, crc32

NAME = "folder"
FORMAT = "closedform-demos"
FORMAT_VERSION = 1
EPISODE = re.compile(r"episode_(\d{6,})\.safetensors")


def matches(path: Path) -> bool:
    """Whether a path is a folder with demos.json."""
    return (path / "demos.json").is_file()


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the whole episodes that are there now."""
    options.recorded_only(path, "a folder of closedform")
    facts = read_header(path)
    files = sorted((int(m[1]), f) for f in path.iterdir() if (m := EPISODE.fullmatch(f.name)))
    if not files:
        raise LoadError(f"{path}: expected at least one episode_NNNNNN.safetensors, found none")
    chosen = select(path, options.episodes, len(files))
    pairs = [_read_episode(files[index][1]) for index in chosen]
    try:
        layouts = {
            key: Layout.from_json(facts[key]) for key in ("observation_layout", "action_layout") if facts.get(key)
        }
    except (TypeError, ConfigError, AttributeError) as error:
        raise LoadError(f"{path / 'demos.json'}: expected layouts, found {error}") from error
    return make_demos(path, pairs, options, **layouts, rate=facts.get("rate"))


def read_header(path: Path) -> dict[str, Any]:
    """Reads demos.json."""
    header = path / "demos.json"
    try:
        facts = json.loads(header.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{header}: expected JSON, found {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise LoadError(f"{header}: expected format {FORMAT!r}; this is not a folder of closedform's demonstrations")
    if facts.get("format_version") != FORMAT_VERSION:
        raise LoadError(
            f"{header}: expected format version {FORMAT_VERSION}, found {facts.get('format_version')!r}; "
            "a newer version of closedform wrote it, and reading it needs that version"
        )
    rate = facts.get("rate")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float)):
        raise LoadError(f"{header}: expected rate to be a number, found {rate!r}")
    return facts


def _read_episode(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with safe_open(path, framework="numpy") as file:
            checksum = (file.metadata() or {}).get("crc32")
            arrays = {name: file.get_tensor(name) for name in ("observations", "actions")}
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise LoadError(f"{path}: expected a whole episode with observations and actions, found {error!r}") from error
    if checksum != crc32(arrays.values()):
        raise LoadError(f"{path}: expected the numbers that were recorded, found others; the file was damaged")
    return arrays["observations"], arrays["actions"]


def header_of(observation_layout: Layout | None, action_layout: Layout | None, rate: float | None) -> str:
    """The text of demos.json."""
    facts = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "observation_layout": observation_layout.to_json() if observation_layout else None,
        "action_layout": action_layout.to_json() if action_layout else None,
        "rate": rate,
    }
    return json.dumps(facts, indent=2) + "\n"


def write_episode(path: Path, episode: Episode) -> None:
    """Writes one episode's file, with a checksum."""
    arrays = {name: np.ascontiguousarray(getattr(episode, name)) for name in ("observations", "actions")}
    save_file(arrays, path, metadata={"crc32": crc32(arrays.values())})


def write(demos: Demos, path: Path) -> None:
    """Writes a folder."""
    with appearing(path, folder=True) as target:
        (target / "demos.json").write_text(
            header_of(demos.observation_layout, demos.action_layout, demos.rate), encoding="utf-8"
        )
        for index, episode in enumerate(demos):
            write_episode(target / f"episode_{index:06d}.safetensors", episode)
