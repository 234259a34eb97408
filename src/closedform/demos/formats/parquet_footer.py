"""The decoded size of columns of a parquet file, from its footer.

pyarrow aborts the process on column metadata of some damaged footers, so the footer is parsed here: Thrift's compact
protocol, of which parquet uses these structures (parquet.thrift): FileMetaData.row_groups (4),
RowGroup.columns (1), RowGroup.num_rows (3), ColumnChunk.meta_data (3), ColumnMetaData.type (1), path_in_schema (3) and
num_values (5), total_compressed_size (7), data_page_offset (9) and dictionary_page_offset (11). Strings have no fixed
width, so their page headers are read as well: PageHeader.uncompressed_page_size (2) and compressed_page_size (3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from closedform.errors import LoadError

_LARGEST = 256 << 20  # bytes of a footer
_DEEPEST = 16
_FLOAT, _TEXT = 4, 6  # of parquet's types
_PAGE_HEADER = 1 << 16  # bytes, of which those of a page with statistics are a few hundred


def decoded_size(path: Path, columns: list[str]) -> int:
    """The bytes that columns take in memory: 4 or 8 per number, and strings stored once each."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - 8, 0))
            end = file.read(8)
            length = int.from_bytes(end[:4], "little")
            if size < 12 or end[4:] != b"PAR1" or not 0 < length <= min(size - 12, _LARGEST):
                raise LoadError(f"{path}: expected a complete parquet file, found no footer at its end")
            file.seek(size - 8 - length)
            footer = _Thrift(file.read(length)).struct()
            total = 0
            for group in footer.get(4, []):
                rows = int(group[3])
                for column in group[1]:
                    facts = column[3]
                    name = b".".join(facts[3]).decode("utf-8", "replace")
                    if any(name == wanted or name.startswith(f"{wanted}.") for wanted in columns):
                        total += max(int(facts[5]), rows, 0) * (4 if facts[1] == _FLOAT else 8)
                        total += _pages_size(file, facts) if facts[1] == _TEXT else 0
            return total
    except (IndexError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise LoadError(f"{path}: expected an intact parquet footer, found a damaged one: {error!r}") from error
    except OSError as error:
        raise LoadError(f"{path}: expected a readable parquet file, found {error}") from error


def _pages_size(file: BinaryIO, facts: dict[int, Any]) -> int:
    """The decompressed bytes of a column's pages, from their headers."""
    at = min(offset for offset in (facts[9], facts.get(11) or facts[9]) if offset > 0)
    end, total = at + facts[7], 0
    while at < end:
        file.seek(at)
        header = _Thrift(file.read(_PAGE_HEADER))
        page = header.struct()
        if page[2] < 0 or page[3] < 0:
            raise ValueError("a page of negative size")
        at += header.at + page[3]
        total += page[2]
    return total


class _Thrift:
    """Reads values in Thrift's compact protocol; a structure is a dictionary keyed by field number."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Reads a structure."""
        if depth > _DEEPEST:
            raise ValueError("structures nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # of a list, booleans take a byte as well
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._take(8)
        if kind == 8:
            return self._take(self._unsigned())
        if kind in (9, 10):
            head = self._byte()
            size = self._unsigned() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"a value of unknown kind {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise IndexError("a value that extends past the end")
        return self.data[self.at - size : self.at]

    def _unsigned(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError("a number too large")

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)
