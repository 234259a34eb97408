"""Sizes: how much memory a dataset would take, known from its headers and limited before anything is allocated."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from closedform.errors import ConfigError, LoadError

ALWAYS = 1 << 30  # bytes that are allowed however small the files are
_RATIO = 100  # demonstrations compress by less than 20; what grows more than this is a mistake or an attack
VARIABLE = "CLOSEDFORM_LARGEST"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Sizes:
    """Adds up the memory that a dataset's arrays need, and refuses those over the limit before they are read.

    The limit is `CLOSEDFORM_LARGEST` (in bytes, such as `20G`) if it is set. Otherwise it is 1 GiB, or 100 times the
    size of the files if that is more, and never more than the free memory.

    Args:
        path: for messages.
        stored: bytes that the files take on disk.
    """

    def __init__(self, path: Path, stored: int):
        self.path, self.stored, self.total = path, stored, 0
        self._limit, self._reason = _limit(stored)

    @classmethod
    def of(cls, path: Path, files: Iterable[Path]) -> Sizes:
        """The limit for data read from these files."""
        total = 0
        try:
            for file in files:
                facts = file.stat()
                if not stat.S_ISREG(facts.st_mode):  # opening a pipe waits for a writer, and a device may never end
                    raise LoadError(f"{file}: expected a regular file, found a device, pipe or socket")
                total += facts.st_size
        except OSError as error:
            raise LoadError(f"{path}: expected readable files, found {error}") from error
        return cls(path, total)

    def add(self, name: str, shape: Sequence[int], dtype: np.dtype) -> None:
        """Counts an array; numbers other than float32 and float64 become float64."""
        width = 8 if dtype.kind in "iub" or dtype.itemsize < 4 else max(dtype.itemsize, 8 * len(dtype.names or ()))
        self.add_bytes(name, math.prod(int(n) for n in shape) * width)

    def add_bytes(self, name: str, n_bytes: int) -> None:
        """Counts bytes that reading needs."""
        self.total += n_bytes
        if self.total > self._limit:
            raise LoadError(
                f"{self.path}: expected at most {_in_words(self._limit)} of numbers, {self._reason}, found "
                f"{_in_words(self.total)} up to {name}, from {_in_words(self.stored)} of files; if that is right, set "
                f"{VARIABLE} to the allowed bytes, such as {math.ceil(self.total / _UNITS['G'])}G"
            )


def _in_words(n_bytes: int) -> str:
    """A number of bytes for a message, such as `4.8 GB`."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}" if n_bytes < 10**18 else f"more than {10**6} TB"
    return f"{n_bytes} bytes"


def free_memory() -> int | None:
    """Bytes that can be allocated without swapping; None if the system does not report it."""
    try:
        match = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.M)
    except (OSError, ValueError):
        return None
    return 1024 * int(match[1]) if match else None


def _limit(stored: int) -> tuple[int, str]:
    """The limit in bytes, and where it comes from."""
    given = os.environ.get(VARIABLE)
    if given:
        match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)", given.strip().upper())
        if not match:
            raise ConfigError(f"{VARIABLE}: expected a number of bytes, such as 2000000000 or 20G, found {given!r}")
        return int(match[1]) * _UNITS[match[2]], f"which is {VARIABLE}"
    limit, free = max(ALWAYS, _RATIO * stored), free_memory()
    if free is not None and free < limit:
        return free, "which is the free memory"
    return limit, f"which is 1 GiB or {_RATIO} times the size of the files"
