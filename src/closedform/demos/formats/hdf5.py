"""Numbers in HDF5 files, from the file itself and nowhere else.

HDF5 can point to other files (external links, external storage, virtual datasets), load libraries for filters that it
does not know, and return zeros for data that were never written. All of these are refused. It can also crash on damage:
so another process reads each file first.
"""

from __future__ import annotations

import math
import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.formats import hdf5_probe
from closedform.demos.formats.common import require
from closedform.demos.formats.sizes import Sizes
from closedform.errors import ClosedFormError, LoadError
from closedform.files import parse_json

_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}
_HEAP = b"GCOL\x01"
_SEARCHED = 1 << 30  # bytes of a file that is searched for damaged heaps
_MOST_LINKS = 16
_LINKS = "copy the data into one file, for instance with h5py's copy(expand_external=True)"


@contextmanager
def open_hdf5(path: Path, purpose: str, expected: str) -> Iterator[tuple[Any, Sizes]]:
    """Opens an HDF5 file, with a count of the bytes read from it; anything that goes wrong raises `LoadError`.

    Args:
        path: the file.
        purpose: what h5py is needed for, for messages.
        expected: what the file should contain, for messages.
    """
    h5py = require("h5py", purpose)
    try:
        check_survives(path)
        with h5py.File(path, "r") as file:
            yield file, Sizes.of(path, [path])
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected {expected}, found {error}") from error


def check_survives(path: Path) -> None:
    """Refuses a file on which HDF5 crashes, never ends, or asks for gigabytes of memory."""
    status = path.stat()
    _check_survives(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=256)
def _check_survives(path: Path, *identity: int) -> None:
    _check_heaps(path)
    if not sys.executable:  # embedded
        return
    try:
        probe = [sys.executable, "-P", hdf5_probe.__file__, str(path)]
        status = subprocess.run(probe, capture_output=True, check=False).returncode
    except OSError:  # no further process may be started here
        return
    if status not in (0, 1):  # 1: the probe itself could not run
        what = "asks for gigabytes of memory" if status == hdf5_probe.TOO_MUCH_MEMORY else "crashes"
        raise LoadError(f"{path}: expected an intact HDF5 file, found damage on which HDF5 {what}")


def _check_heaps(path: Path) -> None:
    """Refuses string heaps with an object of size zero, at which HDF5 would loop forever.

    Larger files are not searched, since that would take longer than reading them.
    """
    if not 0 < path.stat().st_size <= _SEARCHED:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        width = data[10] if data[8] >= 2 else data[14]  # bytes of a length, as the superblock says
        if width not in (2, 4, 8):
            raise LoadError(f"{path}: expected lengths of 2, 4 or 8 bytes, found {width}; the file is damaged")
        header = -(-(8 + width) // 8) * 8  # of a heap, and of each object in it
        at = data.find(_HEAP)
        while at >= 0:
            place, end = at + header, at + int.from_bytes(data[at + 8 : at + 8 + width], "little")
            while place + header <= min(end, len(data)):
                size = int.from_bytes(data[place + 8 : place + 8 + width], "little")
                free = data[place : place + 2] == b"\0\0"
                if free and size < header:
                    raise LoadError(f"{path}: expected intact strings, found a damaged string heap at byte {at}")
                place += size if free else header + -(-size // 8) * 8
            at = data.find(_HEAP, at + 1)


def names_in(path: Path, group: Any, name: str | None = None) -> list[str]:
    """The names in a group, or in the subgroup of that name; none if there is no such group."""
    if name is not None:
        if group.get(name, getlink=True, default=None) is None:
            return []
        group = member(path, group, name)
    return list(group) if hasattr(group, "keys") else []


def member(path: Path, group: Any, name: str, links: int = 0) -> Any:
    """The object at a path such as `data/demo_0/obs`, reached without leaving the file."""
    h5py = require("h5py", "reading HDF5")
    for part in filter(None, name.split("/")):
        if not isinstance(group, h5py.Group):
            raise LoadError(f"{path}: expected {group.name} to be a group with {part!r} in it, found an array")
        link = group.get(part, getlink=True, default=None)
        if link is None:
            found = ", ".join(sorted(group)[:20]) or "nothing"
            raise LoadError(f"{path}: expected {part!r} in {group.name}, found {found}")
        if isinstance(link, h5py.HardLink):
            group = group[part]
        elif isinstance(link, h5py.SoftLink) and links < _MOST_LINKS:
            start = group.file if link.path.startswith("/") else group
            group = member(path, start, link.path, links + 1)
        else:
            raise LoadError(f"{path}: expected {part!r} in this file, found a link to another file; {_LINKS}")
    return group


def numbers(path: Path, dataset: Any, sizes: Sizes) -> np.ndarray:
    """The numbers of a dataset, all of which have to be in this file."""
    where = check_numbers(path, dataset)
    sizes.add(dataset.name, dataset.shape, dataset.dtype)
    _check_written(where, dataset)
    return dataset[...]


def check_numbers(path: Path, dataset: Any) -> str:
    """Refuses what is not an array of numbers in this file; returns its place, for messages."""
    h5py = require("h5py", "reading HDF5")
    where = f"{path}: {dataset.name}"
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise LoadError(f"{where}: expected an array of numbers, found {type(dataset).__name__} without data")
    if dataset.is_virtual or dataset.external:
        raise LoadError(f"{where}: expected numbers in this file, found that they are stored in other files; {_LINKS}")
    if dataset.dtype.kind not in "fiub":
        raise LoadError(f"{where}: expected real numbers, found dtype {dataset.dtype}")
    _check_filters(where, dataset)
    return where


def _check_filters(where: str, dataset: Any) -> None:
    """Refuses filters that HDF5 would load from a plugin library."""
    properties = dataset.id.get_create_plist()
    for index in range(properties.get_nfilters()):
        number = properties.get_filter(index)[0]
        if number not in _FILTERS:
            raise LoadError(
                f"{where}: expected HDF5's built-in filters ({', '.join(_FILTERS.values())}), found number {number}"
            )


def _check_written(where: str, dataset: Any) -> None:
    """Refuses data that were never written, which HDF5 reads as zeros, and chunks larger than their content."""
    if not dataset.size:
        return
    if dataset.chunks is None:
        found, expected, what = dataset.id.get_storage_size(), dataset.size * dataset.dtype.itemsize, "bytes"
    else:
        expected = math.prod(-(-n // chunk) for n, chunk in zip(dataset.shape, dataset.chunks, strict=True))
        found, what = dataset.id.get_num_chunks(), "chunks"
    if found < expected:
        raise LoadError(
            f"{where}: expected {expected} {what}, found {expected - found} that were never written and would be read "
            "as zeros"
        )
    if dataset.chunks is not None:
        whole = math.prod(dataset.chunks) * dataset.dtype.itemsize
        largest = max(_chunk_sizes(dataset))
        if largest > 2 * whole + 4096:  # compressed, so that it decodes to much more than its place
            raise LoadError(f"{where}: expected chunks of {whole} bytes, found one of {largest} encoded bytes")


def _chunk_sizes(dataset: Any) -> list[int]:
    """The bytes that each chunk takes in the file."""
    sizes: list[int] = []
    if hasattr(dataset.id, "chunk_iter"):
        dataset.id.chunk_iter(lambda chunk: sizes.append(chunk.size))
        return sizes
    return [dataset.id.get_chunk_info(index).size for index in range(dataset.id.get_num_chunks())]


def json_attribute(path: Path, attributes: Any, name: str) -> Any:
    """The value of a JSON attribute; None if there is none."""
    text = attributes.get(name)
    if text is None:
        return None
    if not isinstance(text, str | bytes):
        raise LoadError(f"{path}: expected {name} to be JSON text, found {type(text).__name__}")
    return parse_json(text, f"{path}: {name}")


def is_file_with(path: Path, found: Any) -> bool:
    """Whether a path is an HDF5 file for which `found(file)` is true; False for one that cannot be read."""
    h5py = require("h5py", "reading an HDF5 file")
    if not h5py.is_hdf5(path):
        return False
    check_survives(path)
    try:
        with h5py.File(path, "r") as file:
            return bool(found(file))
    except (OSError, RuntimeError, KeyError):
        return False
