"""LeRobot datasets, v3.0 and v2.1: `meta/info.json` and parquet files, without installing lerobot."""

from __future__ import annotations

import math
from pathlib import Path
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.checksums import KEY, Checksums
from closedform.demos.formats.common import ReadOptions, known_layout, known_rate, pick, split, whole_numbers
from closedform.demos.formats.lerobot_tables import read_frames, read_tasks
from closedform.demos.formats.lerobot_videos import find_videos
from closedform.demos.formats.lerobot_writer import OWN, write
from closedform.demos.formats.parquet_images import find_stored
from closedform.errors import LoadError
from closedform.files import read_json

NAME = "lerobot"
_INFO = Path("meta") / "info.json"
_VERSIONS = ("v3.0", "v2.1", "v2.0")
_OBSERVATION_KEYS = ("observation.state", "observation.environment_state")
_VISUAL = ("video", "image")
__all__ = ["matches", "read", "write"]


def matches(path: Path) -> bool:
    """Whether a path is a folder with meta/info.json."""
    return (path / "meta" / "info.json").is_file()


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; observations are the state and, if there is one, the environment state."""
    options.recorded_only(path, "a LeRobot dataset")
    info = _read_info(path)
    features = {name: f for name, f in info["features"].items() if f.get("dtype") not in _VISUAL}
    keys = options.observation_keys or tuple(key for key in _OBSERVATION_KEYS if key in features)
    if not keys:
        keys = tuple(sorted(name for name in features if name.startswith("observation.")))
    if not keys:
        raise LoadError(f"{path}: expected observations that are not videos, found {', '.join(info['features'])}")
    names = list(features)
    keys = tuple(pick(path, names, key, (), "observations") for key in keys)
    action_key = pick(path, names, options.action_key, ("action",), "actions")
    wanted = [*keys, action_key, *(["task_index"] if "task_index" in features else [])]
    table, ends = read_frames(path, list(dict.fromkeys(wanted)), info)
    for name in (*keys, action_key):
        width = _width(path, name, features[name].get("shape", []))
        if table[name].shape[1] != width:
            raise LoadError(f"{path}: expected {name} of {width} numbers, found {table[name].shape[1]}")
    rate = known_rate(path / _INFO, info.get("fps"))
    tasks = None
    if "task_index" in features:
        tasks = read_tasks(path, whole_numbers(path, "task_index", table["task_index"][ends - 1]))
    file, stored = _read_own(path, info)
    layouts = {key: known_layout(file, key, stored.get(key)) for key in ("observation_layout", "action_layout")}
    checksums = Checksums.from_json(file, stored.get(KEY))
    if checksums is not None:
        checksums.check_description(path, layouts, rate, len(ends))
    images = {**find_videos(path, info, ends), **find_stored(path, info, ends)}
    skipped = [name for name, f in info["features"].items() if f.get("dtype") in _VISUAL and name not in images]
    observations = np.concatenate([table[key] for key in keys], axis=1)
    names = _names({key: features[key] for key in keys}), _names({action_key: features[action_key]})
    known = {**layouts, "rate": rate, "tasks": tasks, "skipped": skipped, "images": images, "column_names": names}
    return split(path, observations, table[action_key], ends, options, checksums=checksums, **known)


def _read_info(path: Path) -> dict[str, Any]:
    """Reads meta/info.json."""
    file = path / _INFO
    info = read_json(file)
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise LoadError(f"{file}: expected LeRobot's description of features, found none")
    if not all(isinstance(feature, dict) for feature in info["features"].values()):
        raise LoadError(f"{file}: expected a dictionary for each feature, found another value")
    version = info.get("codebase_version")
    if not isinstance(version, str) or version not in _VERSIONS:
        raise LoadError(f"{file}: expected a version of {', '.join(_VERSIONS)}, found {brief(version)}")
    return info


def _read_own(path: Path, info: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Layouts and checksums that closedform wrote, and their file; older versions wrote them into info.json."""
    file = path / "meta" / OWN
    if not file.is_file():
        stored = info.get("closedform")
        return path / _INFO, stored if isinstance(stored, dict) else {}
    stored = read_json(file)
    if not isinstance(stored, dict):
        raise LoadError(f"{file}: expected layouts and checksums, found {brief(stored)}")
    return file, stored


def _names(features: dict[str, dict[str, Any]]) -> tuple[str, ...] | None:
    """The names of the numbers of features, one after the other; None if there are none.

    LeRobot has lists of names, and dictionaries of such lists.
    """
    found: list[str] = []
    named = False
    for key, feature in features.items():
        names, width = feature.get("names"), math.prod(feature["shape"])
        lists = list(names.values()) if isinstance(names, dict) else [names]
        flat = [name for some in lists if isinstance(some, list) for name in some]
        if len(flat) == width and all(isinstance(name, str) for name in flat):
            found, named = [*found, *flat], True
        else:
            found += [f"{key}[{index}]" for index in range(width)]
    return tuple(found) if named else None


def _width(path: Path, name: str, shape: Any) -> int:
    """The number of numbers of a feature."""
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise LoadError(f"{path / _INFO}: expected the shape of {name} to be whole numbers, found {brief(shape)}")
    return math.prod(shape)
