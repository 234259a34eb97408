"""Files: safe JSON parsing, checksums, and atomic writes."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError

from closedform.errors import ClosedFormError, LoadError, SaveError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MAX_HEADER = 1_000_000  # bytes of the header of a safetensors file of a few arrays
BLOCK = 1 << 24  # bytes read at once
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "<i1", "I32": "<i4", "I64": "<i8", "U8": "<u1"}


def parse_json(text: str | bytes, where: object, expected: str = "JSON") -> Any:
    """Parses a JSON text; anything wrong with it, excessive nesting included, raises `LoadError`.

    Args:
        text: the text.
        where: what it was read from, for the message.
        expected: what it should have been, for the message.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise LoadError(f"{where}: expected {expected}, found JSON nested too deeply") from error
    except ValueError as error:
        raise LoadError(f"{where}: expected {expected}, found {error}") from error


def read_json(path: Path, expected: str = "JSON") -> Any:
    """Parses a JSON file; see `parse_json`. A file that cannot be read raises `LoadError` as well."""
    try:
        with open(path, "rb", opener=_open_now) as file:
            data = file.read(2**30)  # a device may never end
    except FileNotFoundError as error:
        raise LoadError(f"{path}: expected {expected}, found nothing there") from error
    except (OSError, ValueError) as error:
        raise LoadError(f"{path}: expected {expected}, found {error}") from error
    return parse_json(data, path, expected)


def _open_now(path: str, flags: int) -> int:
    """Opens a file without blocking on a named pipe that nobody writes to; a pipe with a writer is read."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if hasattr(os, "set_blocking"):
        os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Turns errors while writing to a path, such as a full disk, into a `SaveError`."""
    try:
        yield
    except ClosedFormError:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # libraries wrap the system's errors in their own
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise SaveError(f"{path}: expected to write it, found {reason}; nothing was changed") from error


@contextmanager
def appearing(path: Path, *, folder: bool) -> Iterator[Path]:
    """A temporary file or folder, renamed to its final path once it is complete; nothing is ever overwritten."""
    _check_name(path)
    if path.exists():
        raise LoadError(f"{path}: expected a path that does not exist yet; choose another name or remove what is there")
    with saving(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path) as scratch:
            target = scratch / path.name
            if folder:
                target.mkdir()
            yield target
            target.replace(path)


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside a path, removed on exit, along with those that killed processes left behind.

    A live process holds a lock on its folder, so that others leave it alone. Where folders cannot be locked (Windows,
    some network file systems) no other process's folder is removed.
    """
    for left in path.parent.glob(f".{escape(path.name)}.new-*"):
        if left.is_dir() and not left.is_symlink() and (lock := _lock(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.new-", dir=path.parent))
        lock = _lock(scratch)
        if scratch.is_dir():  # before it was locked, another process may have removed it as a leftover
            break
        if lock is not None:
            os.close(lock)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock(folder: Path, *, wait: bool = False) -> int | None:
    """A descriptor that locks a folder until it is closed; None if the lock is taken or locking is not supported."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds an exclusive lock on a folder between processes, where folders can be locked."""
    lock = _lock(folder, wait=True)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that is renamed to `path`, replacing any file there, once it is complete.

    A symbolic link is kept and its target replaced; a device or pipe, such as /dev/stdout, is written to in place.
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
    """Writes a file atomically; see `replacing`. Characters that UTF-8 cannot encode are escaped."""
    with replacing(path) as new:
        new.write_bytes(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def check_writable(path: Path) -> None:
    """Refuses a path that cannot be written to, before any work is done that could be lost."""
    with saving(path):
        _, new = _places(path)
        folder = next(parent for parent in new.parents if parent.exists())
        trial = folder / new.name
        trial.touch()
        trial.unlink()


def _check_name(path: Path) -> None:
    if not path.name or "\0" in str(path):
        raise SaveError(f"{path}: expected a file name, found none")


def _places(path: Path) -> tuple[Path, Path]:
    """The file that a path resolves to, and a temporary one beside it."""
    _check_name(path)
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise SaveError(f"{path}: expected a file to write, found a folder")
    special = target.exists() and not target.is_file()
    folder = Path(tempfile.gettempdir()) if special else target.parent
    return target, folder / f".{target.name}.new-{os.getpid()}"


def crc32(arrays: Iterable[np.ndarray]) -> str:
    """The CRC-32 of arrays: their bytes, dtypes and shapes."""
    value = 0
    for array in arrays:
        value = zlib.crc32(f"{array.dtype}{array.shape}".encode(), value)
        value = crc32_of_bytes(np.ascontiguousarray(array).reshape(-1).view(np.uint8), value)
    return f"{value:08x}"


def crc32_of_bytes(data: np.ndarray, value: int = 0) -> int:
    """The CRC-32 of bytes (n,), which may be memory-mapped: they are read block by block and not copied."""
    for start in range(0, len(data), BLOCK):
        value = zlib.crc32(data[start : start + BLOCK].data, value)
    return value


def flush(path: Path) -> None:
    """Waits until a file or folder is on disk (fsync)."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def map_safetensors(file: BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of an open safetensors file, memory-mapped: only its header is read.

    They stay valid when the file is closed, renamed or removed. A file that is not safetensors, has bytes outside its
    arrays, or has a header larger than `MAX_HEADER`, raises `ValueError`.
    """
    file.seek(0)
    total = os.fstat(file.fileno()).st_size
    size = int.from_bytes(file.read(8), "little")
    if total < 8 or size > min(MAX_HEADER, total - 8):
        raise ValueError(f"a file of {total} bytes with a header of {size}")
    try:
        header = json.loads(file.read(size))
        parts = [(name, *_place(facts)) for name, facts in header.items() if name != "__metadata__"]
    except RecursionError as error:
        raise ValueError("a header nested too deeply") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a header with {error!r}") from error
    arrays, at = {}, 0
    for name, dtype, shape, begin, end in sorted(parts, key=lambda part: part[3:]):
        if begin != at or end - begin != dtype.itemsize * math.prod(shape) or 8 + size + end > total:
            raise ValueError(f"{name} of shape {str(shape)[:100]} at bytes {str(begin)[:30]} to {str(end)[:30]}")
        at = end
        mapped = np.memmap(file, dtype, "r", 8 + size + begin, shape) if end > begin else np.empty(shape, dtype)
        arrays[name] = np.asarray(mapped)
    if 8 + size + at != total:
        raise ValueError(f"{total - 8 - size - at} bytes after the last array")
    return arrays


def _place(facts: dict[str, Any]) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Type, shape, begin and end of an array, from the header of a safetensors file."""
    shape, (begin, end) = tuple(facts["shape"]), facts["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise TypeError(f"shape {str(shape)[:100]}")
    return np.dtype(_DTYPES[facts["dtype"]]), shape, begin, end


def name_of(file: BinaryIO, path: Path) -> str:
    """A path by which a library opens the very file that is open here, even if its own path has been replaced."""
    file.seek(0)  # both may share the position
    for folder in ("/proc/self/fd", "/dev/fd"):
        name = Path(folder, str(file.fileno()))
        if name.exists():
            return str(name)
    if not os.path.samestat(os.fstat(file.fileno()), path.stat()):  # on systems where open files cannot be replaced
        raise LoadError(f"{path}: expected the file that was opened, found another: it was replaced meanwhile")
    return str(path)
