"""The file of a faiss index: its layout, which is checked before faiss reads it, and its checksums.

faiss trusts the sizes and offsets in an index file. Only one kind of index is ever saved here, so that its whole head
(everything before the lists: header, centers, quantizer, lengths of lists) can be checked quickly.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.files import crc32_of_bytes

_HEADER = struct.Struct("<4siqqqBi")  # kind, width, rows, two unused numbers, trained, metric
_L2 = 1
_EIGHT_BITS = 0  # QT_8bit


@dataclass(frozen=True)
class IndexFile:
    """What an index file says about itself.

    Attributes:
        width: numbers in a row.
        n_rows: rows in all lists.
        n_lists: how many lists there are.
        head: bytes before the first list.
    """

    width: int
    n_rows: int
    n_lists: int
    head: int

    @classmethod
    def parse(cls, data: np.ndarray) -> IndexFile:
        """Parses the head of a file (n,), bytes; a ValueError unless `FaissIndex.write` wrote it."""
        file = _Reader(data)
        width, n_rows = file.header(b"IwSq")
        n_lists, _ = file.numbers("<qq")  # and the number of lists to visit, which every query sets
        center_width, n_centers = file.header(b"IxF2")
        if center_width != width or n_centers != n_lists:
            raise ValueError(f"{n_centers} centers of {center_width} numbers for {n_lists} lists of {width}")
        file.floats(n_lists * width)
        direct, n_direct = file.numbers("<Bq")
        kind, _, _, quantized, size = file.numbers("<iifqq")
        file.floats(2 * width)
        code_size, _ = file.numbers("<qB")
        if (direct, n_direct, kind, quantized, size, code_size) != (0, 0, _EIGHT_BITS, width, width, width):
            raise ValueError("a quantizer other than the 8-bit one")
        name, lists, size, form = file.numbers("<4sqq4s")
        if (name, lists, size) != (b"ilar", n_lists, width):
            raise ValueError(f"{lists} lists of kind {name!r}")
        lengths = file.lengths(n_lists, sparse=form == b"sprs")
        if sum(lengths) != n_rows or min(lengths) < 0:
            raise ValueError(f"lists of {sum(lengths)} rows instead of {n_rows}")
        if file.at + n_rows * (width + 8) != len(data):
            raise ValueError(f"{len(data)} bytes instead of {file.at + n_rows * (width + 8)}")
        return cls(width, n_rows, n_lists, file.at)


class _Reader:
    """Reads fields one by one from the bytes of a file, never beyond its end."""

    def __init__(self, data: np.ndarray):
        self.data, self.at = data, 0

    def take(self, size: int) -> np.ndarray:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError(f"{len(self.data)} bytes, fewer than its head requires")
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)).data)

    def header(self, kind: bytes) -> tuple[int, int]:
        name, width, n_rows, *_, trained, metric = _HEADER.unpack(self.take(_HEADER.size).data)
        if name != kind or trained != 1 or metric != _L2 or width < 1 or n_rows < 1:
            raise ValueError(f"an index of kind {name!r} with {n_rows} rows of {width} numbers")
        return width, n_rows

    def floats(self, count: int) -> None:
        if self.numbers("<q")[0] != count or not np.isfinite(np.frombuffer(self.take(4 * count), "<f4")).all():
            raise ValueError(f"something other than {count} finite numbers")

    def lengths(self, n_lists: int, *, sparse: bool) -> list[int]:
        count = self.numbers("<q")[0]
        if not (0 < count <= 2 * n_lists if sparse else count == n_lists):
            raise ValueError(f"the lengths of {count} of {n_lists} lists")
        values = np.frombuffer(self.take(8 * count), "<i8").tolist()
        if not sparse:
            return values
        indices, lengths = values[::2], values[1::2]
        if (
            len(indices) != len(lengths)
            or sorted({*indices}) != indices
            or not 0 <= indices[0] <= indices[-1] < n_lists
        ):
            raise ValueError("lengths of lists that do not exist")
        return lengths


@dataclass(frozen=True)
class IndexSeal:
    """Checksums of an index file.

    Attributes:
        size: of the file, in bytes.
        head_crc32: of what precedes the lists, which is small; 8 hexadecimal digits.
        crc32: of the whole file; None if not all of it was read.
    """

    size: int
    head_crc32: str
    crc32: str | None

    @classmethod
    def of(cls, data: np.ndarray, head: int, *, whole: bool = True) -> IndexSeal:
        """The checksums of a file's bytes (n,), the first `head` of which are its head; all of them if `whole`."""
        first = crc32_of_bytes(data[:head])
        return cls(len(data), f"{first:08x}", f"{crc32_of_bytes(data[head:], first):08x}" if whole else None)

    def agrees(self, other: IndexSeal) -> bool:
        """Whether both can belong to the same file."""
        same = (self.size, self.head_crc32) == (other.size, other.head_crc32)
        return same and (None in (self.crc32, other.crc32) or self.crc32 == other.crc32)
