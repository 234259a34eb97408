"""Messages as openpi packs them: msgpack, with arrays as maps. Nothing in a message can run code."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import import_module
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.errors import DataError, MissingExtraError

LARGEST = 1_000_000  # elements of lists and maps in one message, which take far more memory than on the wire
_LONGEST = 2**48  # side of an array
_DTYPE = re.compile(r"[<>|=]?[biufSUMm][0-9]{0,9}(\[[0-9A-Za-z/]{1,20}\])?")  # no kinds V, O and c


def require(module: str) -> Any:
    """Imports a module of the extra `serve`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = {"zmq": "pyzmq"}.get(module.split(".")[0], module.split(".")[0])
        raise MissingExtraError(package, "serve", "serving a policy") from error


def pack(message: Any) -> bytes:
    """Packs a message; arrays of kinds V, O and c are refused."""
    return require("msgpack").packb(message, default=_packed)


def with_key(packed: bytes, key: str, value: Any) -> bytes:
    """A packed map with one more key at its end, its other bytes as they were; what is no map stays as it is."""
    first = packed[0] if packed else 0
    if 0x80 <= first < 0x90:
        size, head = first - 0x80, 1
    elif first in (0xDE, 0xDF):
        head = 3 if first == 0xDE else 5
        size = int.from_bytes(packed[1:head], "big")
    else:
        return packed
    size += 1
    if size >= 2**32:
        raise DataError(f"expected a msgpack message, found a map of {size - 1} elements in {len(packed)} bytes")
    if size < 16:
        begin = bytes([0x80 + size])
    else:
        begin = b"\xde" + size.to_bytes(2, "big") if size < 2**16 else b"\xdf" + size.to_bytes(4, "big")
    return b"".join([begin, packed[head:], pack(key), pack(value)])


def unpack(data: bytes) -> Any:
    """The inverse of `pack`; arrays cannot be written to."""
    return unpack_with(data, _unpacked)


def unpack_with(data: bytes, hook: Callable[[dict[Any, Any]], Any]) -> Any:
    """Unpacks msgpack with a hook for maps; anything malformed, or too large once unpacked, is a `DataError`."""
    msgpack = require("msgpack")
    left = LARGEST

    def counted(found: Any) -> Any:
        nonlocal left
        left -= 1 + len(found)
        if left < 0:
            raise DataError(f"expected a message of at most {LARGEST} elements, found more; send numbers as arrays")
        return found

    try:
        return msgpack.unpackb(
            data,
            object_hook=lambda found: hook(counted(found)),
            list_hook=counted,
            max_array_len=LARGEST,
            max_map_len=LARGEST,
        )
    except DataError:
        raise
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:  # also recursion, bad text
        said = str(error) or type(error).__name__
        raise DataError(f"expected a msgpack message, found {len(data)} bytes that are none: {said[:200]}") from error


def check_dtype(text: Any) -> np.dtype[Any]:
    """The dtype that a message names, if arrays of it are plain numbers or text."""
    if isinstance(text, bytes):
        text = text.decode("ascii", "replace")
    if not isinstance(text, str) or not _DTYPE.fullmatch(text):
        raise DataError(f"expected an array of numbers or text, found dtype {brief(text)}")
    try:
        kind = np.dtype(text)
    except (TypeError, ValueError) as error:
        raise DataError(f"expected an array of numbers or text, found dtype {brief(text)}") from error
    if not kind.itemsize:  # of which any number fits in no bytes, until numpy makes room for them
        raise DataError(f"expected an array of numbers or text, found dtype {brief(text)} of no width")
    return kind


def make_array(data: Any, dtype: Any, shape: Any) -> np.ndarray:
    """An array from the parts in a message, which have to fit together."""
    kind = check_dtype(dtype)
    sides = shape if isinstance(shape, list | tuple) and len(shape) <= 32 else [None]
    if not all(type(side) is int and 0 <= side <= _LONGEST for side in sides):
        raise DataError(f"expected the shape of an array, found {brief(shape)}")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * kind.itemsize:
        found = f"{len(data)} bytes" if isinstance(data, bytes) else type(data).__name__
        raise DataError(
            f"expected {math.prod(shape) * kind.itemsize} bytes for an array of shape {tuple(shape)} and dtype "
            f"{kind.str}, found {found}"
        )
    try:
        return np.frombuffer(data, kind).reshape(shape)
    except ValueError as error:  # sides too long beside one of 0
        raise DataError(f"expected the shape of an array, found {brief(shape)}") from error


def _packed(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        raise DataError(f"expected numbers, text, lists, maps and arrays in a message, found {type(value).__name__}")
    if value.dtype.kind in "VOc":
        raise DataError(f"expected an array of numbers or text in a message, found dtype {value.dtype}")
    if isinstance(value, np.ndarray):
        return {b"__ndarray__": True, b"data": value.tobytes(), b"dtype": value.dtype.str, b"shape": value.shape}
    return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}


def _unpacked(found: dict[Any, Any]) -> Any:
    if b"__ndarray__" in found:
        return make_array(found.get(b"data"), found.get(b"dtype"), found.get(b"shape"))
    if b"__npgeneric__" in found:
        kind, value = check_dtype(found.get(b"dtype")), found.get(b"data")
        wanted = {"S": bytes, "U": str}.get(kind.kind, int | float | str)  # numpy makes a number a text of that length
        try:
            if not isinstance(value, wanted):
                raise TypeError
            return kind.type(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"expected a number or text of dtype {kind.str}, found {brief(value)}") from error
    return found
