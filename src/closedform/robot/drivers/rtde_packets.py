"""Packets of RTDE, the real-time data exchange of Universal Robots (protocol version 2)."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

_HEAD = struct.Struct(">HB")
_FORMATS = {
    "DOUBLE": "d",
    "INT32": "i",
    "UINT32": "I",
    "UINT64": "Q",
    "VECTOR3D": "3d",
    "VECTOR6D": "6d",
    "VECTOR6INT32": "6i",
}
_TYPES = (
    (r"(in|out)put_int_register_\d+|robot_mode|safety_mode", "INT32"),
    (r"robot_status_bits|safety_status_bits|runtime_state", "UINT32"),
    (r"actual_digital_(in|out)put_bits", "UINT64"),
    (r"joint_mode", "VECTOR6INT32"),
    (r"actual_tool_accelerometer|payload_cog", "VECTOR3D"),
    (r"(actual|target)_(q|qd|qdd|current|moment|TCP_pose|TCP_speed|TCP_force|joint_voltage)", "VECTOR6D"),
    (r"joint_control_output|joint_temperatures|ft_raw_wrench|payload_inertia|external_force_torque", "VECTOR6D"),
)


def type_of(name: str) -> str:
    """The type of a variable."""
    return next((kind for pattern, kind in _TYPES if re.fullmatch(pattern, name)), "DOUBLE")


def packet(kind: str, content: bytes) -> bytes:
    """A packet: its size, its kind (a letter) and its content."""
    return _HEAD.pack(_HEAD.size + len(content), ord(kind)) + content


def read_packet(stream: BinaryIO) -> tuple[str, bytes]:
    """The kind and content of the next packet; raises `EOFError` at the end."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    size, kind = _HEAD.unpack(head)
    content = stream.read(size - _HEAD.size)
    if len(content) < size - _HEAD.size:
        raise EOFError
    return chr(kind), content


def pack(names: Sequence[str], values: Mapping[str, Any]) -> bytes:
    """Values of variables, one after the other; those that are not given are 0."""
    parts = []
    for name in names:
        form = _FORMATS[type_of(name)]
        numbers = np.broadcast_to(values.get(name, 0), (int(form[:-1] or 1),)).tolist()
        parts.append(struct.pack(f">{form}", *numbers))
    return b"".join(parts)


def unpack(names: Sequence[str], content: bytes) -> dict[str, Any]:
    """The variables that `pack` packed; vectors become arrays."""
    found, at = {}, 0
    for name in names:
        form = struct.Struct(f">{_FORMATS[type_of(name)]}")
        numbers = form.unpack_from(content, at)
        found[name] = numbers[0] if len(numbers) == 1 else np.array(numbers)
        at += form.size
    return found
