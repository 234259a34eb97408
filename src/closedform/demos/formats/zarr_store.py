"""The files of a zarr group, in a folder or a zip."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any

from closedform.errors import LoadError
from closedform.files import parse_json

_LARGEST_METADATA = 64 << 20  # bytes


class ZarrStore:
    """Reads the files of a zarr group by name, such as `data/state/0.0`.

    Args:
        path: a folder or a zip.
    """

    def __init__(self, path: Path):
        self.path = path
        self._zip = None if path.is_dir() else zipfile.ZipFile(path)

    def __enter__(self) -> ZarrStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._zip is not None:
            self._zip.close()

    @property
    def stored(self) -> int:
        """The bytes that all files take on disk."""
        if self._zip is not None:
            return self.path.stat().st_size
        return sum((Path(at) / name).stat().st_size for at, _, names in os.walk(self.path) for name in names)

    def read(self, name: str, largest: int) -> bytes | None:
        """The content of a file of at most `largest` bytes; None if there is no such file."""
        if self._zip is None:
            file = self.path / name
            if not file.is_file():
                return None
            size = file.stat().st_size
        elif name in self._zip.NameToInfo:
            size = self._zip.getinfo(name).file_size
        else:
            return None
        if size > largest:
            raise LoadError(f"{self.path}: expected at most {largest} bytes in {name}, found {size}")
        return (self.path / name).read_bytes() if self._zip is None else self._zip.read(name)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A metadata file; None if there is none."""
        data = self.read(name, _LARGEST_METADATA)
        if data is None:
            return None
        value = parse_json(data, self.path / name, "zarr's metadata")
        if not isinstance(value, dict):
            raise LoadError(f"{self.path / name}: expected zarr's metadata, found {type(value).__name__}")
        return value

    def children(self, group: str) -> list[str]:
        """The names in a group that could be arrays or groups."""
        if self._zip is None:
            folder = self.path / group
            return sorted(child.name for child in folder.iterdir() if child.is_dir()) if folder.is_dir() else []
        names = (name.removeprefix(group + "/") for name in self._zip.namelist() if name.startswith(group + "/"))
        return sorted({name.split("/")[0] for name in names if "/" in name})

    def count(self, array: str) -> int:
        """The number of files of an array that are not metadata."""
        if self._zip is None:
            names = [name for _, _, names in os.walk(self.path / array) for name in names]
        else:
            start = array + "/"
            names = [n.rsplit("/", 1)[1] for n in self._zip.NameToInfo if n.startswith(start) and not n.endswith("/")]
        return sum(not name.startswith(".") and name != "zarr.json" for name in names)
