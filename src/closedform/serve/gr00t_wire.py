"""Messages as Isaac GR00T packs them: msgpack, with arrays in one of two forms; pickled objects are refused."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from closedform.errors import DataError
from closedform.wire import check_dtype, make_array, require, unpack_with


class Gr00tWire:
    """Reads one request, and packs the reply with arrays in the form that the request had.

    Until version N1.7 an array is a map with the bytes of an npy file; since then also one of msgpack-numpy.
    """

    def __init__(self) -> None:
        self._npy = True

    def unpack(self, data: bytes) -> Any:
        """The request in a message."""
        return unpack_with(data, self._unpacked)

    def pack(self, message: Any) -> bytes:
        """The message for a reply."""
        return require("msgpack").packb(message, default=self._packed)

    def _unpacked(self, found: dict[Any, Any]) -> Any:
        if "__ndarray_class__" in found:
            return read_npy(found.get("as_npy"))
        parts = {key.decode("ascii", "replace") if isinstance(key, bytes) else key: found[key] for key in found}
        if "nd" not in parts or not {"type", "data"} <= parts.keys():
            return found
        self._npy = False
        if parts.get("kind") not in (None, b"", ""):  # V and O, of which O would be unpickled
            raise DataError(f"expected an array of numbers or text, found one of kind {parts['kind']!r:.20}")
        if parts["nd"] is True:
            return make_array(parts["data"], parts["type"], parts.get("shape"))
        return make_array(parts["data"], parts["type"], ())[()]

    def _packed(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            raise DataError(
                f"expected numbers, text, lists, maps and arrays in a message, found {type(value).__name__}"
            )
        if self._npy:
            file = io.BytesIO()
            np.lib.format.write_array(file, value, allow_pickle=False)
            return {"__ndarray_class__": True, "as_npy": file.getvalue()}
        data = {b"shape": value.shape, b"data": value.tobytes()}
        return {b"nd": True, b"type": value.dtype.str, b"kind": b"", **data}


def read_npy(data: Any) -> np.ndarray:
    """The array in the bytes of an npy file; memory is only taken for numbers that are there."""
    if not isinstance(data, bytes):
        raise DataError(f"expected the bytes of an npy file, found {type(data).__name__}")
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, fortran, dtype = header(file)
    except Exception as error:  # numpy evaluates the header's literal, which fails in many ways
        raise DataError("expected the bytes of an npy file of version 1 or 2, found others") from error
    array = make_array(data[file.tell() :], check_dtype(dtype.str).str, shape[::-1] if fortran else shape)
    return array.transpose() if fortran else array


def modality_config(keys: Mapping[str, int] | list[str], delta_indices: list[int]) -> dict[str, Any]:
    """What a client reads as a `ModalityConfig`."""
    return {
        "__ModalityConfig_class__": True,
        "as_json": {"delta_indices": delta_indices, "modality_keys": list(keys)},
    }
