"""The zarr codecs that can only produce numbers, each with a limit on its decoded size.

A zarr array names its codecs in its metadata, and some registered codecs run code (`pickle`) or create objects. No
registry is used here: a codec that is not in this file is refused.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.errors import LoadError

_DTYPE = re.compile(r"[<>|]?(b1|i[1248]|u[1248]|f[248])")
_MEMORY = 1 << 28  # bytes that lzma may take


def number_dtype(where: str, text: Any) -> np.dtype:
    """A dtype of real numbers of fixed width in numpy's notation, such as `<f8`; others are refused."""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise LoadError(f"{where}: expected numbers, of dtype bool, int, uint or float, found {brief(text)}")
    return np.dtype(text)


def decode(where: str, codec: dict[str, Any], data: bytes, largest: int) -> bytes:
    """Decodes bytes with a codec; more than `largest` decoded bytes are refused.

    Args:
        where: for messages.
        codec: its name under `id`, and its parameters.
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


def _inflate(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    """zlib and gzip; gzip members may be concatenated."""
    parts, left = [], largest
    while data and left >= 0:
        machine = zlib.decompressobj(wbits=47)
        parts.append(machine.decompress(data, left + 1))
        left -= len(parts[-1])
        if left >= 0 and not machine.eof:
            raise ValueError("truncated compressed data")
        data = machine.unused_data
    return b"".join(parts)


def _bz2(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    machine = bz2.BZ2Decompressor()
    return _all_of(machine, machine.decompress(data, largest + 1), largest)


def _lzma(data: bytes, codec: dict[str, Any], largest: int) -> bytes:
    if codec.get("format", lzma.FORMAT_XZ) not in (lzma.FORMAT_XZ, lzma.FORMAT_ALONE):
        raise ValueError("raw lzma data")
    machine = lzma.LZMADecompressor(memlimit=_MEMORY)
    return _all_of(machine, machine.decompress(data, largest + 1), largest)


def _all_of(machine: Any, decoded: bytes, largest: int) -> bytes:
    if len(decoded) <= largest and not machine.eof:
        raise ValueError("truncated compressed data")
    return decoded


def _blosc(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    from numcodecs.blosc import Blosc

    if len(data) < 16:
        raise ValueError("blosc data without a header")
    size, length = (int.from_bytes(data[at : at + 4], "little") for at in (4, 12))
    if size > largest or not 16 <= length <= len(data):
        raise ValueError(
            f"blosc data that decode to {size} bytes (at most {largest} fit), {length} bytes long of {len(data)}"
        )
    return bytes(Blosc().decode(data))


def _lz4(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    from numcodecs.lz4 import LZ4

    size = int.from_bytes(data[:4], "little")
    if len(data) < 4 or size > largest:
        raise ValueError(f"lz4 data that decode to {size} bytes (at most {largest} fit)")
    return bytes(LZ4().decode(data))


def _zstd(data: bytes, _: dict[str, Any], largest: int) -> bytes:
    size = _zstd_size(data)
    if size is None:  # a stream of unknown size, of which pyarrow reads only the requested bytes
        import pyarrow as pa

        return pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(largest + 1)
    if size > largest:
        raise ValueError(f"zstd data that decode to {size} bytes (at most {largest} fit)")
    from numcodecs.zstd import Zstd

    return bytes(Zstd().decode(data))


def _zstd_size(data: bytes) -> int | None:
    """The decoded size that the header of a frame declares, if any (RFC 8878, 3.1.1.1)."""
    if data[:4] != b"\x28\xb5\x2f\xfd" or len(data) < 6:
        raise ValueError("zstd data without a header")
    flags = data[4]
    single, size_flag = flags >> 5 & 1, flags >> 6
    n_bytes = (single, 2, 4, 8)[size_flag]
    if not n_bytes:
        return None
    start = 5 + (0 if single else 1) + (0, 1, 2, 4)[flags & 3]
    return int.from_bytes(data[start : start + n_bytes], "little") + (256 if n_bytes == 2 else 0)


def _checksum(name: str) -> Callable[[bytes, dict[str, Any], int], bytes]:
    def verified(data: bytes, codec: dict[str, Any], _: int) -> bytes:
        from numcodecs import checksum32

        location = {"location": codec["location"]} if codec.get("location") in ("start", "end") else {}
        return bytes(getattr(checksum32, name)(**location).decode(data))

    return verified


def _fletcher32(data: bytes, _: dict[str, Any], __: int) -> bytes:
    from numcodecs.fletcher32 import Fletcher32

    return bytes(Fletcher32().decode(data))


def _delta(data: bytes, codec: dict[str, Any], largest: int) -> bytes:
    dtype = np.dtype(codec["dtype"])
    differences = np.frombuffer(data, np.dtype(codec.get("astype") or dtype))
    if len(differences) * dtype.itemsize > largest:
        raise ValueError(f"delta-coded data of {len(differences)} numbers (at most {largest} bytes fit)")
    return np.cumsum(differences, dtype=dtype.newbyteorder("=")).astype(dtype).tobytes()


def _unshuffle(data: bytes, codec: dict[str, Any], _: int) -> bytes:
    size = codec.get("elementsize", 4)
    if not isinstance(size, int) or not 1 <= size <= 16:
        raise ValueError(f"shuffled numbers of {size} bytes")
    return np.frombuffer(data, np.uint8).reshape(size, -1).T.tobytes()


_CODECS: dict[str, Callable[[bytes, dict[str, Any], int], bytes]] = {
    "blosc": _blosc,
    "zstd": _zstd,
    "lz4": _lz4,
    "zlib": _inflate,
    "gzip": _inflate,
    "bz2": _bz2,
    "lzma": _lzma,
    "crc32": _checksum("CRC32"),
    "crc32c": _checksum("CRC32C"),
    "adler32": _checksum("Adler32"),
    "fletcher32": _fletcher32,
    "delta": _delta,
    "shuffle": _unshuffle,
}
