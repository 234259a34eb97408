"""A program that reads the structure of an HDF5 file, so that damage on which HDF5 crashes ends it and not its caller.

Run as `python -P hdf5_probe.py FILE`. It imports nothing of this package, so that it starts quickly. It ends with 0,
even if something cannot be read, since a reader that needs it finds that as well; with 3 if it takes more memory than
in any intact file; and with a signal if HDF5 crashes or never ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

TOO_MUCH_MEMORY = 3  # the status
_MEMORY = 2 << 30  # bytes
_SECONDS = 60  # of computing
_DECODED = 64 << 20  # bytes of an array up to which its chunks are decoded
_BUILT_IN = {1, 2, 3, 4, 5, 6}  # filters; others might be loaded from a library
_DEEPEST = 32  # groups in groups


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_CPU, _SECONDS)):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _tried(read: Callable[[], Any]) -> Any:
    """What a function returns; None if it fails for another reason than memory."""
    try:
        return read()
    except MemoryError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        if "allocation failed" in str(error):
            raise MemoryError from error
        return None


def _visit(h5py: Any, thing: Any, seen: set[Any], depth: int) -> None:
    """Reads the attributes, names and chunks of an object and of those below it."""
    for name in _tried(lambda: list(thing.attrs)) or ():
        _tried(lambda name=name: thing.attrs[name])
    if not isinstance(thing, h5py.Group):
        _tried(lambda: _read(thing))
        return
    for name in _tried(lambda: list(thing)) or ():
        link = _tried(lambda name=name: thing.get(name, getlink=True))
        below = _tried(lambda name=name: thing[name]) if isinstance(link, h5py.HardLink) else None
        if below is not None and below.id not in seen and depth < _DEEPEST:
            seen.add(below.id)
            _visit(h5py, below, seen, depth + 1)


def _read(dataset: Any) -> None:
    """Reads an array's description and, if it is small enough, decodes its chunks."""
    properties = dataset.id.get_create_plist()
    filters = {properties.get_filter(index)[0] for index in range(properties.get_nfilters())}
    if dataset.chunks is None or dataset.is_virtual or dataset.dtype.kind not in "fiub":
        return
    dataset.id.get_num_chunks()
    if dataset.nbytes <= _DECODED and filters <= _BUILT_IN:
        dataset[...]


def main(path: str) -> int:
    """Reads a file; returns the status that the program ends with."""
    import h5py

    _limit()
    try:
        file = _tried(lambda: h5py.File(path, "r"))
        if file is not None:
            _visit(h5py, file, {file.id}, 0)
    except MemoryError:
        return TOO_MUCH_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
