"""Arrays of numbers in zarr v2 and v3, with a limit on what each chunk may take in memory, which zarr itself has not.

The metadata of each array that is read is checked first: its dtype, its codecs and its size. Consolidated metadata is a
copy that could differ, and is ignored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.demos.formats.sizes import Sizes
from closedform.demos.formats.zarr_codecs import checked, decode, number_dtype, widening
from closedform.demos.formats.zarr_store import ZarrStore
from closedform.errors import ClosedFormError, LoadError

_TYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
_MISSING = 2**64 - 1  # where a shard has no such chunk
_MOST_AXES = 16
_ZEROS = "if they were all zeros, rewrite the array with write_empty_chunks=True"


@dataclass(frozen=True)
class _Pipeline:
    """How a chunk is encoded as bytes.

    Attributes:
        shape: of the chunk.
        dtype: of its numbers, with their byte order.
        order: of its axes, as in `numpy.transpose`.
        shard: the encoding of the chunks inside it; None if it is not a shard.
        index: for a shard, the encoding of its chunk table, and whether the table comes first.
        codecs: applied to the bytes afterward, in this order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    order: tuple[int, ...]
    shard: _Pipeline | None = None
    index: tuple[_Pipeline, bool] | None = None
    codecs: tuple[dict[str, Any], ...] = ()

    @property
    def n_bytes(self) -> int:
        """The size of a decoded chunk in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def largest(self) -> int:
        """The most bytes that a chunk may take on disk and while decoding: what does not compress grows a little."""
        table = 4 * self.index[0].n_bytes if self.index is not None else 0  # and what each chunk of a shard adds
        return widening(self.codecs) * (self.n_bytes + self.n_bytes // 32 + table) + 65536

    def decode(self, where: str, data: bytes, used: tuple[int, ...]) -> np.ndarray:
        """The numbers of a chunk, (*shape), of which those below `used` on each axis are inside the array."""
        for codec in reversed(self.codecs):
            data = decode(codec, data, self.largest)
        if self.shard is not None and self.index is not None:
            return self._decode_shard(where, data, used, self.shard, *self.index)
        if len(data) != self.n_bytes:
            raise ValueError(f"{len(data)} bytes where a chunk takes {self.n_bytes}")
        stored = np.frombuffer(data, self.dtype).reshape([self.shape[axis] for axis in self.order])
        return stored.transpose(np.argsort(self.order))

    def _decode_shard(
        self, where: str, data: bytes, used: tuple[int, ...], inner: _Pipeline, table: _Pipeline, first: bool
    ) -> np.ndarray:
        length = table.n_bytes + 4 * len(table.codecs)  # the only codec there may be is crc32c
        if len(data) < length:
            raise ValueError(f"a shard of {len(data)} bytes with a table of {length}")
        places = table.decode(where, data[:length] if first else data[-length:], table.shape)
        used = tuple(used[axis] for axis in self.order)
        shard = np.zeros([self.shape[axis] for axis in self.order], self.dtype.newbyteorder("="))
        for at in np.ndindex(*places.shape[:-1]):
            begin = [i * n for i, n in zip(at, inner.shape, strict=True)]
            if any(b >= n for b, n in zip(begin, used, strict=True)):
                continue  # beyond the array
            start, size = (int(number) for number in places[at])
            if start == _MISSING and size == _MISSING:
                raise LoadError(f"{where}: expected every chunk of a shard, found a missing one; {_ZEROS}")
            if start + size > len(data):
                raise ValueError(f"a chunk at {start} of {size} bytes in a shard of {len(data)}")
            place = tuple(slice(b, b + n) for b, n in zip(begin, inner.shape, strict=True))
            shard[place] = inner.decode(where, data[start : start + size], inner.shape)
        return shard.transpose(np.argsort(self.order))


def is_array(store: ZarrStore, name: str) -> bool:
    """Whether there is an array of this name."""
    facts = store.read_json(f"{name}/zarr.json")
    return (
        facts.get("node_type") == "array" if facts is not None else store.read(f"{name}/.zarray", 1 << 26) is not None
    )


def read_attributes(store: ZarrStore, name: str = "") -> dict[str, Any]:
    """The attributes of a group; {} if it has none."""
    prefix = f"{name}/" if name else ""
    facts = store.read_json(f"{prefix}zarr.json")
    found = store.read_json(f"{prefix}.zattrs") if facts is None else facts.get("attributes")
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class ZarrArray:
    """An array whose metadata was checked; its numbers are read when they are needed.

    Attributes:
        store: its files.
        name: such as `data/state`.
        shape: of the array.
        pipeline: how its chunks are encoded.
        prefix, separator: how the files of chunks are named.
    """

    store: ZarrStore
    name: str
    shape: tuple[int, ...]
    pipeline: _Pipeline
    prefix: str
    separator: str

    @classmethod
    def open(cls, store: ZarrStore, name: str) -> ZarrArray:
        """Reads and checks the metadata of an array."""
        facts, version = _metadata(store, name)
        return cls(store, name, *version(f"{store.path}: {name}", facts))

    @property
    def grid(self) -> list[int]:
        """The number of chunks on each axis."""
        return [-(-n // chunk) for n, chunk in zip(self.shape, self.pipeline.shape, strict=True)]

    @property
    def n_rows(self) -> int:
        """How many rows, along the first axis, are in a chunk."""
        return self.pipeline.shape[0]

    def all(self, sizes: Sizes) -> np.ndarray:
        """The whole array; a missing chunk is an error, where zarr itself would return zeros."""
        self._add_to(sizes, self.grid)
        missing = math.prod(self.grid) - self.store.count(self.name)
        if missing > 0:
            raise self._missing(f"{missing} of them missing")
        return self._read(0, self.grid[0])

    def rows(self, start: int, sizes: Sizes) -> np.ndarray:
        """The rows of the chunks that begin at a row, a multiple of `n_rows`."""
        self._add_to(sizes, [1, *self.grid[1:]])
        return self._read(start // self.n_rows, start // self.n_rows + 1)

    def _add_to(self, sizes: Sizes, counts: list[int]) -> None:
        """Counts a number of chunks on each axis, which are refused if they are too large."""
        taken = [n * chunk for n, chunk in zip(counts, self.pipeline.shape, strict=True)]
        sizes.add(self.name, taken, self.pipeline.dtype)

    def _read(self, first: int, last: int) -> np.ndarray:
        """The rows in chunks from one place on the first axis to another."""
        counts = [last - first, *self.grid[1:]]
        begin, end = first * self.n_rows, min(last * self.n_rows, self.shape[0])
        array = np.empty((max(end - begin, 0), *self.shape[1:]), self.pipeline.dtype.newbyteorder("="))
        for at in itertools.product(*map(range, counts)):
            file = f"{self.name}/{self.prefix}{self.separator.join(map(str, (at[0] + first, *at[1:])))}"
            data = self.store.read(file, self.pipeline.largest)
            if data is None:
                raise self._missing(f"no {file}")
            place = tuple(slice(i * n, (i + 1) * n) for i, n in zip(at, self.pipeline.shape, strict=True))
            target = array[place]
            try:
                chunk = self.pipeline.decode(f"{self.store.path}: {file}", data, target.shape)
                target[...] = chunk[tuple(slice(n) for n in target.shape)]
            except ClosedFormError:
                raise
            except Exception as error:  # decoders of damaged chunks raise anything
                raise LoadError(f"{self.store.path}: expected a complete chunk in {file}, found {error}") from error
        return array

    def _missing(self, found: str) -> LoadError:
        key = self.name.rsplit("/", 1)[-1]
        return LoadError(f"{self.store.path}: expected {math.prod(self.grid)} chunks of {key}, found {found}; {_ZEROS}")


def read_array(store: ZarrStore, name: str, sizes: Sizes) -> np.ndarray:
    """Reads an array; see `ZarrArray.all`."""
    return ZarrArray.open(store, name).all(sizes)


def read_shape(store: ZarrStore, name: str) -> tuple[int, ...]:
    """The shape of an array, whatever its chunks may be encoded with."""
    return _whole(f"{store.path}: {name}", "a shape", _metadata(store, name)[0].get("shape"), 0)


def _metadata(store: ZarrStore, name: str) -> tuple[dict[str, Any], Callable[..., Any]]:
    """The metadata of an array, and the function that checks metadata of its version."""
    for file, version in (("zarr.json", _version_3), (".zarray", _version_2)):
        facts = store.read_json(f"{name}/{file}")
        if facts is not None:
            return facts, version
    raise LoadError(f"{store.path}: {name}: expected an array, found no .zarray or zarr.json")


def _whole(where: str, name: str, value: Any, least: int) -> tuple[int, ...]:
    """A tuple of whole numbers, such as a shape."""
    if (
        not isinstance(value, list)
        or len(value) > _MOST_AXES
        or not all(type(n) is int and least <= n < 2**62 for n in value)
    ):
        raise LoadError(f"{where}: expected {name} to be whole numbers, found {brief(value)}")
    return tuple(value)


def _shapes(where: str, shape: Any, chunks: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape, chunks = _whole(where, "a shape", shape, 0), _whole(where, "a chunk's shape", chunks, 1)
    if not shape or len(shape) != len(chunks):
        raise LoadError(
            f"{where}: expected chunks with as many axes as the array, found {len(chunks)} and {len(shape)}"
        )
    return shape, chunks


def _version_2(where: str, facts: dict[str, Any]) -> tuple[tuple[int, ...], _Pipeline, str, str]:
    """The shape, how chunks are encoded, and the naming of their files."""
    shape, chunks = _shapes(where, facts.get("shape"), facts.get("chunks"))
    dtype = number_dtype(where, facts.get("dtype"))
    filters, compressor = facts.get("filters") or [], facts.get("compressor")
    if not isinstance(filters, list):
        raise LoadError(f"{where}: expected a list of filters, found {brief(filters)}")
    codecs = filters if compressor is None else [*filters, compressor]
    separator = facts.get("dimension_separator", ".")
    if separator not in (".", "/") or facts.get("order", "C") not in ("C", "F"):
        raise LoadError(f"{where}: expected order C or F and separator . or /, found others")
    axes = range(len(shape))
    order = tuple(axes) if facts.get("order", "C") == "C" else tuple(reversed(axes))
    return shape, _Pipeline(chunks, dtype, order, codecs=tuple(checked(where, c) for c in codecs)), "", separator


def _version_3(where: str, facts: dict[str, Any]) -> tuple[tuple[int, ...], _Pipeline, str, str]:
    grid, chunk_keys = _named(where, facts.get("chunk_grid")), _named(where, facts.get("chunk_key_encoding"))
    if grid[0] != "regular" or chunk_keys[0] not in ("default", "v2") or facts.get("storage_transformers"):
        raise LoadError(f"{where}: expected a regular grid of chunks, found {grid[0]!r} and {chunk_keys[0]!r}")
    shape, chunks = _shapes(where, facts.get("shape"), grid[1].get("chunk_shape"))
    kind = facts.get("data_type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise LoadError(f"{where}: expected numbers, of dtype bool, int, uint or float, found {brief(kind)}")
    separator = chunk_keys[1].get("separator", "/" if chunk_keys[0] == "default" else ".")
    if separator not in (".", "/"):
        raise LoadError(f"{where}: expected separator . or /, found {brief(separator)}")
    pipeline = _pipeline(where, facts.get("codecs"), chunks, np.dtype(kind))
    return shape, pipeline, f"c{separator}" if chunk_keys[0] == "default" else "", separator


def _named(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """The name and the configuration of an extension point of zarr v3."""
    if isinstance(value, str):
        return value, {}
    settings = value.get("configuration", {}) if isinstance(value, dict) else None
    if not isinstance(settings, dict) or not isinstance(value.get("name"), str):
        raise LoadError(f"{where}: expected a name and its configuration, found {brief(value)}")
    return value["name"], settings


def _pipeline(where: str, codecs: Any, shape: tuple[int, ...], dtype: np.dtype, depth: int = 0) -> _Pipeline:
    """Codecs of zarr v3: `transpose`, then `bytes` or `sharding_indexed`, then codecs of bytes."""
    if not isinstance(codecs, list) or depth > 1:
        raise LoadError(f"{where}: expected a list of codecs with at most one level of shards, found {brief(codecs)}")
    order, layer, done = tuple(range(len(shape))), None, []
    for codec in codecs:
        name, settings = _named(where, codec)
        if name == "transpose" and layer is None:
            step = _whole(where, "an order", settings.get("order"), 0)
            if sorted(step) != list(range(len(shape))):
                raise LoadError(f"{where}: expected a permutation of {len(shape)} axes, found {list(step)}")
            order = tuple(order[axis] for axis in step)
        elif name in ("bytes", "sharding_indexed") and layer is None:
            layer = name, settings
        elif layer is not None:
            done.append(checked(where, {**settings, "id": name.removeprefix("numcodecs.")}))
        else:
            raise LoadError(f"{where}: expected transpose, bytes or sharding_indexed first, found {brief(name)}")
    if layer is None:
        raise LoadError(f"{where}: expected the codec bytes or sharding_indexed, found neither")
    if layer[0] == "bytes":
        if layer[1].get("endian", "little") not in ("little", "big"):
            raise LoadError(f"{where}: expected little or big endian, found neither")
        dtype = dtype.newbyteorder(">" if layer[1].get("endian") == "big" else "<")
        return _Pipeline(shape, dtype, order, codecs=tuple(done))
    stored = tuple(shape[axis] for axis in order)
    _, inner = _shapes(where, list(stored), layer[1].get("chunk_shape"))
    if any(n % chunk for n, chunk in zip(stored, inner, strict=True)):
        raise LoadError(
            f"{where}: expected shards that are multiples of their chunks, found {list(stored)} and {list(inner)}"
        )
    counts = tuple(n // chunk for n, chunk in zip(stored, inner, strict=True))
    shard = _pipeline(where, layer[1].get("codecs"), inner, dtype, depth + 1)
    default = [{"name": "bytes"}, {"name": "crc32c"}]
    table = _pipeline(where, layer[1].get("index_codecs", default), (*counts, 2), np.dtype("<u8"), depth + 1)
    first = layer[1].get("index_location", "end") == "start"
    if table.shard is not None or any(codec["id"] != "crc32c" for codec in table.codecs):
        raise LoadError(f"{where}: expected a shard's table with the codecs bytes and crc32c, found others")
    return _Pipeline(shape, dtype, order, shard, (table, first), tuple(done))
