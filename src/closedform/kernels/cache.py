"""KernelCache: an on-disk cache of compiled code that never makes planning fail."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import logging
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numba.core import config
from numba.core.caching import FunctionCache, IndexDataCacheFile

_CHECKSUM_BYTES = 4


class KernelCache(FunctionCache):
    """numba's cache of one function, which never makes a plan fail.

    Unreadable or damaged code is dropped and compiled again; code that cannot be written, for instance because the disk
    is full, is compiled in each process. Code with bounds checks (`NUMBA_BOUNDSCHECK=1`) and code of other versions of
    any kernel have separate caches.
    """

    def __init__(self, function: Callable[..., Any]):
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CheckedFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function, or None if it has to be compiled."""
        found = None
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # damaged files can raise anything
            logging.getLogger("closedform").debug("dropping compiled code in %s: %r", self._cache_path, error)
            self._cache_file.drop()
        if found is None:
            getattr(_missing, "call", lambda: None)()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Saves a compiled function, if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _say_once(f"the planner is compiled again in each process, since it could not be cached: {error}")

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), bool(getattr(config, "BOUNDSCHECK", None)), _digest_of_sources())


_missing = threading.local()  # what this thread calls when it has to compile


@contextlib.contextmanager
def when_missing(call: Callable[[], object]) -> Iterator[None]:
    """Calls a function whenever this thread, inside the block, finds no compiled code and so begins to compile."""
    before = getattr(_missing, "call", None)
    _missing.call = call
    try:
        yield
    finally:
        _missing.call = before or (lambda: None)


class _CheckedFile(IndexDataCacheFile):
    """numba's files with a checksum at the end, since nothing else detects damaged code."""

    def save(self, key: Any, data: Any) -> None:
        """Writes the data, then an index that names it; each signature and version has its own name."""
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:12], 16))
        self._save_data(name, data)
        overloads = self._load_index()
        if overloads.get(key) != name:
            self._save_index({**overloads, key: name})

    def drop(self) -> None:
        """Removes the index, so that nothing is found anymore."""
        with contextlib.suppress(OSError):
            Path(self._index_path).unlink()

    def _load_index(self) -> Any:
        if Path(self._index_path).exists():
            _verify(self._index_path)
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _verify(self._data_path(name))
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        content = io.BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue())
            file.write(_checksum(content.getvalue()))


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def _verify(path: str) -> None:
    content = Path(path).read_bytes()
    if _checksum(content[:-_CHECKSUM_BYTES]) != content[-_CHECKSUM_BYTES:]:
        raise ValueError(f"{path}: checksum mismatch")


@functools.cache
def _digest_of_sources() -> str:
    """A digest of all kernels: numba detects a change in a function's own file, but not in those that it calls."""
    digest, kernels = hashlib.sha256(), Path(__file__).parent
    for path in sorted(
        [*kernels.glob("*.py"), *kernels.parent.rglob("*_compiled.py"), *kernels.parent.rglob("compiled_*.py")]
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def _say_once(message: str) -> None:
    logging.getLogger("closedform").warning(message)
