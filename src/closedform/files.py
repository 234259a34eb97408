"""Files: JSON that cannot do harm, checksums, and writes that appear whole or not at all."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from closedform.errors import ClosedFormError, LoadError, SaveError


def parse_json(text: str | bytes, where: object, expected: str = "JSON") -> Any:
    """The value of a JSON text; whatever is wrong with it, nesting without end included, is a `LoadError`.

    Args:
        text: the text.
        where: what it was read from, for the message.
        expected: what it should have been, for the message.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise LoadError(f"{where}: expected {expected}, found brackets nested too deeply") from error
    except ValueError as error:
        raise LoadError(f"{where}: expected {expected}, found {error}") from error


def read_json(path: Path, expected: str = "JSON") -> Any:
    """The value of a JSON file; see `parse_json`. A file that cannot be read is a `LoadError` as well."""
    try:
        with path.open("rb") as file:
            data = file.read(2**30)  # a device may never end
    except FileNotFoundError as error:
        raise LoadError(f"{path}: expected {expected}, found nothing there") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: expected {expected}, found {error}") from error
    return parse_json(data, path, expected)


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turns what goes wrong while a path is written, such as a full disk, into a `SaveError`."""
    try:
        yield
    except ClosedFormError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # libraries wrap the system's errors in their own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SaveError(f"{path}: expected to write it, found {reason}; nothing was changed") from error


@contextmanager
def appearing(path: Path, *, folder: bool) -> Iterator[Path]:
    """A temporary file or folder that takes its place only when all of it was written; nothing is ever replaced."""
    if path.exists():
        raise LoadError(f"{path}: expected nothing there to be overwritten; choose another name or remove it")
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
        target = scratch / path.name
        try:
            if folder:
                target.mkdir()
            yield target
            target.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside a path that takes its place, or that of the file there, when all of it was written.

    A link stays one, to a new file; a device or pipe, such as /dev/stdout, is written to, not replaced.
    """
    with saving(path):
        target, new = _places(path)
        new.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield new
            flush(new)
            if target.is_file() or not target.exists():
                new.replace(target)
            else:
                target.write_bytes(new.read_bytes())
        finally:
            new.unlink(missing_ok=True)


def write_file(path: Path, content: str | bytes) -> None:
    """Writes all of a file or nothing of it; see `replacing`. Characters that UTF-8 does not have are escaped."""
    with replacing(path) as new:
        new.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def check_writable(path: Path) -> None:
    """Refuses a file that cannot be written now rather than when there is work to lose."""
    with saving(path):
        _, new = _places(path)
        folder = next(parent for parent in new.parents if parent.exists())
        trial = folder / new.name
        trial.touch()
        trial.unlink()


def _places(path: Path) -> tuple[Path, Path]:
    """The file that a name stands for, and a temporary one beside it."""
    if not path.name or "\0" in str(path):
        raise SaveError(f"{path}: expected the name of a file to write, found none")
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise SaveError(f"{path}: expected the name of a file to write, found a folder")
    special = target.exists() and not target.is_file()
    folder = Path(tempfile.gettempdir()) if special else target.parent
    return target, folder / f".{target.name}.new-{os.getpid()}"


def crc32(arrays: Iterable[np.ndarray]) -> str:
    """A checksum of the bytes of arrays, with their types and shapes."""
    value = 0
    for array in arrays:
        value = zlib.crc32(f"{array.dtype}{array.shape}".encode(), value)
        value = zlib.crc32(np.ascontiguousarray(array).tobytes(), value)
    return f"{value:08x}"


def flush(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_safetensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, mapped: its header says where each begins, and nothing else is read.

    What is no such file raises `ValueError`.
    """
    dtypes = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}
    arrays = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if 8 + size > path.stat().st_size:
            raise ValueError(f"a file of {path.stat().st_size} bytes with a header of {size}")
        header = json.loads(file.read(size))
    try:
        for name, facts in header.items():
            if name == "__metadata__":
                continue
            shape, (begin, end), dtype = tuple(facts["shape"]), facts["data_offsets"], np.dtype(dtypes[facts["dtype"]])
            if min(begin, *shape) < 0 or end - begin != dtype.itemsize * math.prod(shape):
                raise ValueError(f"{name} of shape {shape} in {end - begin} bytes")
            empty = end == begin
            mapped = np.empty(shape, dtype) if empty else np.memmap(path, dtype, "r", 8 + size + begin, shape)
            arrays[name] = np.asarray(mapped)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a header with {error!r}") from error
    return arrays
