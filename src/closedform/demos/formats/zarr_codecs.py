"""The zarr codecs that can only produce numbers, each with a limit on its decoded size.

A zarr array names its codecs in its metadata, and some registered codecs run code (`pickle`) or create objects: a codec
that is not in this file is refused. numcodecs decodes what cannot grow or says its size first; it has no limit for
zlib, gzip, bz2, lzma and zstd, and would make a gigabyte of a chunk of a kilobyte.
"""

from __future__ import annotations

import bz2
import lzma
import math
import re
import zlib
from collections.abc import Callable, Sequence
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.demos.formats.common import require
from closedform.errors import LoadError

_DTYPE = re.compile(r"[<>|]?(b1|i[1248]|u[1248]|f[248])")
_MEMORY = 1 << 28  # bytes that lzma may take


def number_dtype(where: str, text: Any) -> np.dtype:
    """A dtype of real numbers of fixed width in numpy's notation, such as `<f8`; others are refused."""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise LoadError(f"{where}: expected numbers, of dtype bool, int, uint or float, found {brief(text)}")
    return np.dtype(text)


def decode(codec: dict[str, Any], data: bytes, largest: int) -> bytes:
    """Decodes bytes with a codec; more than `largest` decoded bytes are refused.

    Args:
        codec: its name under `id`, and its parameters, as `checked`.
        data: the encoded bytes.
        largest: the most decoded bytes.
    """
    decoded = _CODECS[codec["id"]](data, codec, largest)
    if len(decoded) > largest:
        raise ValueError(f"more than {largest} bytes in a chunk")
    return decoded


def checked(where: str, codec: Any) -> dict[str, Any]:
    """A codec from the metadata; one that is not known to produce only numbers is refused."""
    if not isinstance(codec, dict) or not isinstance(codec.get("id"), str):
        raise LoadError(f"{where}: expected a codec with an id, found {brief(codec)}")
    if codec["id"] not in _CODECS:
        raise LoadError(
            f"{where}: expected codecs that produce only numbers ({', '.join(_CODECS)}), found {brief(codec['id'])}"
        )
    if codec["id"] == "delta":
        for name in ("dtype", "astype"):
            number_dtype(where, codec.get(name) or codec.get("dtype"))
    return codec


def widening(codecs: Sequence[dict[str, Any]]) -> int:
    """How many times larger codecs may make numbers on disk: `delta` may store differences of more bytes."""
    return math.prod(max(1, stored // size) for size, stored in (_widths(c) for c in codecs if c["id"] == "delta"))


def _widths(delta: dict[str, Any]) -> tuple[int, int]:
    """The bytes of a number and of a stored difference."""
    dtype = np.dtype(delta["dtype"])
    return dtype.itemsize, np.dtype(delta.get("astype") or dtype).itemsize


def _numcodecs(data: bytes, codec: dict[str, Any], _: int) -> bytes:
    from numcodecs import get_codec

    return np.asarray(get_codec(dict(codec)).decode(data)).tobytes()


def _delta(data: bytes, codec: dict[str, Any], largest: int) -> bytes:
    size, stored = _widths(codec)
    if len(data) // stored * size > largest:
        raise ValueError(f"delta-coded data of {len(data) // stored} numbers (at most {largest} bytes fit)")
    return _numcodecs(data, codec, largest)


def _inflate(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    """zlib and gzip; gzip members may be concatenated."""
    parts, left = [], largest
    while data and left >= 0:
        machine = zlib.decompressobj(wbits=47)
        parts.append(_complete(machine, machine.decompress(data, left + 1), left))
        left -= len(parts[-1])
        data = machine.unused_data
    return b"".join(parts)


def _bz2(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    machine = bz2.BZ2Decompressor()
    return _complete(machine, machine.decompress(data, largest + 1), largest)


def _lzma(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    machine = lzma.LZMADecompressor(memlimit=_MEMORY)
    return _complete(machine, machine.decompress(data, largest + 1), largest)


def _complete(machine: Any, decoded: bytes, largest: int) -> bytes:
    if len(decoded) <= largest and not machine.eof:
        raise ValueError("truncated compressed data")
    return decoded


def _blosc(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    from numcodecs.blosc import Blosc

    size, length = (int.from_bytes(data[at : at + 4], "little") for at in (4, 12))
    if size > largest or not 16 <= length <= len(data):  # it reads the missing bytes of shorter data from beyond them
        raise ValueError(
            f"blosc data that decode to {size} bytes (at most {largest} fit), {length} bytes long of {len(data)}"
        )
    return bytes(Blosc().decode(data))


def _lz4(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    from numcodecs.lz4 import LZ4

    size = int.from_bytes(data[:4], "little")
    if size > largest:
        raise ValueError(f"lz4 data that decode to {size} bytes (at most {largest} fit)")
    return bytes(LZ4().decode(data))


def _zstd(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    """Through pyarrow, which reads only the requested bytes whatever size a frame declares."""
    pa = require("pyarrow", "reading zarr chunks compressed with zstd")
    return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(largest + 1)


_CODECS: dict[str, Callable[[bytes, dict[str, Any], int], bytes]] = {
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": _lz4,
    "zlib": _inflate,
    "gzip": _inflate,
    "bz2": _bz2,
    "lzma": _lzma,
    **dict.fromkeys(("crc32", "crc32c", "adler32", "fletcher32"), _numcodecs),
    "delta": _delta,
    "shuffle": _numcodecs,
}
