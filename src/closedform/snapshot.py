"""Snapshot: the files of a folder at one moment, unaffected by later changes to the folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from closedform.errors import LoadError
from closedform.files import map_safetensors, parse_json

_MAX_JSON = 16_000_000  # bytes


class Snapshot:
    """Files of one folder, all opened at once and read through these handles from then on.

    Saving replaces a folder as a whole, so what was opened stays consistent. Where folders have no descriptors
    (Windows), files are opened by path, and a folder that changes meanwhile raises `LoadError`.

    Args:
        folder: the folder.
        wanted: says which names to open; folders among them become snapshots of their own.

    Attributes:
        folder: where the files were, for messages.
        files: open files by name.
        parts: the snapshots of folders inside, by name.
    """

    def __init__(self, folder: Path, wanted: Callable[[str], bool], *, _within: Snapshot | None = None):
        self.folder, self._wanted, self._inside = folder, wanted, _within is not None
        self.files: dict[str, BinaryIO] = {}
        self.parts: dict[str, Snapshot] = {}
        self._descriptor: int | None = None
        try:
            if os.open in os.supports_dir_fd and os.listdir in os.supports_fd:
                name, within = (folder, None) if _within is None else (folder.name, _within._descriptor)  # noqa: SLF001 - its own kind
                self._descriptor = os.open(name, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0), dir_fd=within)
            listed = os.listdir(folder if self._descriptor is None else self._descriptor)  # noqa: PTH208 - by descriptor
            self._names = {name for name in listed if wanted(name)}
            for name in sorted(self._names):
                self._open(name)
            self._stat = folder.stat() if self._descriptor is None else os.fstat(self._descriptor)
            if self._descriptor is None and not self.unchanged():
                raise LoadError(f"{folder}: the folder was replaced while it was being read; try again")
        except (FileNotFoundError, NotADirectoryError) as error:
            self.close()
            raise LoadError(f"{folder}: expected a saved policy, found no config.json in it") from error
        except OSError as error:
            self.close()
            raise LoadError(f"{folder}: expected a folder that can be read, found {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> None:
        path = name if self._descriptor is not None else self.folder / name
        flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)  # never waits for a pipe
        kind = os.stat(path, dir_fd=self._descriptor).st_mode
        if stat.S_ISDIR(kind):
            if not self._inside:  # only one level of folders, however they are linked
                self.parts[name] = Snapshot(self.folder / name, self._wanted, _within=self)
            return
        if not stat.S_ISREG(kind):
            raise LoadError(f"{self.folder / name}: expected a regular file, found a device, pipe or socket")
        self.files[name] = os.fdopen(os.open(path, flags, dir_fd=self._descriptor), "rb")

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all files; arrays mapped from them stay valid."""
        for file in self.files.values():
            file.close()
        for part in self.parts.values():
            part.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def unchanged(self) -> bool:
        """Whether the folder still holds the files that were opened."""
        try:
            if not os.path.samestat(self._stat, self.folder.stat()):
                return False
            if {path.name for path in self.folder.iterdir() if self._wanted(path.name)} != self._names:
                return False
            for name, file in self.files.items():
                if not os.path.samestat(os.fstat(file.fileno()), (self.folder / name).stat()):
                    return False
        except OSError:
            return False
        return all(part.unchanged() for part in self.parts.values())

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        return os.fstat(self.files[name].fileno()).st_size

    def json(self, name: str, expected: str = "JSON") -> Any:
        """Parses a JSON file; anything wrong with it raises `LoadError`."""
        if name not in self.files:
            raise LoadError(f"{self.folder}: expected a saved policy, found no {name} in it")
        if self.size(name) > _MAX_JSON:
            raise LoadError(f"{self.folder / name}: expected at most {_MAX_JSON} bytes, found {self.size(name)}")
        self.files[name].seek(0)
        return parse_json(self.files[name].read(_MAX_JSON), self.folder / name, expected)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a safetensors file, memory-mapped; anything wrong with it raises `LoadError`."""
        if name not in self.files:
            raise LoadError(f"{self.folder}: expected {name} beside config.json, found none")
        try:
            return map_safetensors(self.files[name])
        except (OSError, ValueError, OverflowError) as error:
            raise LoadError(f"{self.folder / name}: expected a complete safetensors file, found {error}") from error
