"""Saved perceivers: a folder with config.json and perceiver.safetensors, which cannot execute code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from closedform.demos.demos import Demos
from closedform.errors import ClosedFormError, DataError, LoadError
from closedform.files import appearing, crc32, crc32_of_bytes
from closedform.geometry.layout import Layout
from closedform.snapshot import Snapshot
from closedform.vision.perceiver import Perceiver, perceiver_class

FORMAT, FORMAT_VERSION = "closedform-perceiver", 1
CONFIG, ARRAYS = "config.json", "perceiver.safetensors"
_SEAL = "config_crc32"
_MOST_CAMERAS, _MOST_PIXELS = 64, 1 << 28


def save_perceiver(perceiver: Perceiver, folder: Path | str) -> None:
    """Writes a perceiver to a folder that does not exist yet."""
    with appearing(Path(folder), folder=True) as target:
        write_perceiver(perceiver, target)


def load_perceiver(folder: Path | str) -> Perceiver:
    """Reads what `save_perceiver` wrote."""
    with Snapshot(Path(folder), (CONFIG, ARRAYS).__contains__) as snapshot:
        return read_perceiver(snapshot)


def perceiver_of(demos: Demos) -> Perceiver | None:
    """What made the observations of demonstrations from images, if anything did."""
    found = demos.perceiver
    perceiver = load_perceiver(found) if isinstance(found, str | Path) else found
    if perceiver is not None and perceiver.layout.width != demos.observation_layout.width:
        raise DataError(
            f"expected observations of {perceiver.layout.width} numbers, as their perceiver makes, found "
            f"{demos.observation_layout.width}"
        )
    return perceiver


def write_perceiver(perceiver: Perceiver, folder: Path) -> None:
    """Writes the files of a perceiver into an empty folder."""
    facts, arrays = perceiver.to_parts()
    arrays = {name: np.ascontiguousarray(array) for name, array in sorted(arrays.items())}
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "kind": perceiver.kind,
        "shapes": {name: list(shape) for name, shape in perceiver.shapes.items()},
        "state_layout": perceiver.state_layout.to_json(),
        "facts": facts,
        "crc32": crc32(arrays.values()),
    }
    save_file(arrays, folder / ARRAYS)
    content[_SEAL] = _checksum(content)
    (folder / CONFIG).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_perceiver(snapshot: Snapshot) -> Perceiver:
    """Reads a perceiver from its opened folder."""
    path, content = snapshot.folder / CONFIG, snapshot.json(CONFIG)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise LoadError(f"{path}: expected format {FORMAT!r}; this is not a perceiver saved by closedform")
    if content.get("format_version") != FORMAT_VERSION:
        raise LoadError(f"{path}: expected format version {FORMAT_VERSION}, found another; a newer closedform wrote it")
    if content.get(_SEAL) != _checksum(content):
        raise LoadError(f"{path}: checksum mismatch: the file was changed")
    arrays = snapshot.arrays(ARRAYS)
    if crc32(arrays[name] for name in sorted(arrays)) != content.get("crc32"):
        raise LoadError(f"{snapshot.folder / ARRAYS}: checksum mismatch: the file is damaged")
    try:
        shapes = {str(name): _shape(shape) for name, shape in content["shapes"].items()}
        if not 0 < len(shapes) <= _MOST_CAMERAS:
            raise ValueError(f"{len(shapes)} cameras")
        state_layout = Layout.from_json(content["state_layout"])
        return perceiver_class(content["kind"]).from_parts(shapes, state_layout, content["facts"], arrays)
    except ImportError:  # of an extra
        raise
    except (ClosedFormError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise LoadError(f"{path}: expected a perceiver of format {FORMAT_VERSION}, found {error!r}") from error


def _shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) != 3 or not all(type(n) is int and n > 0 for n in value):
        raise ValueError(f"a shape of {str(value)[:100]}")
    if value[2] != 3 or value[0] * value[1] > _MOST_PIXELS:
        raise ValueError(f"images of shape {str(value)[:100]}")
    return tuple(value)


def _checksum(content: dict[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != _SEAL}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    return f"{crc32_of_bytes(np.frombuffer(text, np.uint8)):08x}"
