"""Names: what the names of columns, such as `obs_ee_x` or `cube_pos[0]`, say about bodies."""

from __future__ import annotations

import re
from collections.abc import Sequence

_PREFIX = re.compile(r"^(observations?|obs|states?|actions?|act)[._/]+", re.IGNORECASE)
_AXIS = re.compile(r"^(.+)[._/ ]([xyz])$", re.IGNORECASE)
_KIND = re.compile(
    r"[._/ ](positions?|pos|xyz|xy|quat(ernion)?|orientation|rot(ation)?|pose|theta|angle|yaw)$", re.IGNORECASE
)
_INDEX = re.compile(r"\[(\d+)\]$|[._](\d+)$")
_NO_PLACE = re.compile(r"vel|speed|joint|qpos|force|torque|delta|diff|rel|_to_|acc", re.IGNORECASE)
_PLACE = re.compile(r"(^|[._/ ])(positions?|pos|xyz|xy)$", re.IGNORECASE)


def body_of(names: Sequence[str]) -> str | None:
    """The body that the names of its numbers share, such as `cube` of `cube_pos[0]` and `cube_pos[1]`; None if none."""
    stems = {_stem(name) for name in names}
    stem = stems.pop() if len(stems) == 1 else ""
    return stem if stem and stem != "world" and "." not in stem else None


def named_positions(names: Sequence[str]) -> list[tuple[int, int]]:
    """Runs of two or three numbers that are named as a position, as their first columns and sizes."""
    found, at = [], 0
    while at < len(names):
        size = next((size for size in (3, 2) if _is_place(names[at : at + size], size)), 0)
        if size and not (size == 2 and _is_place(names[at : at + 3], 3)):
            found.append((at, size))
        at += size or 1
    return found


def _stem(name: str) -> str:
    short = _INDEX.sub("", _PREFIX.sub("", name))
    axis = _AXIS.match(short)
    return _KIND.sub("", axis[1] if axis else short).strip("._/ ")


def _is_place(names: Sequence[str], size: int) -> bool:
    if len(names) != size or any(_NO_PLACE.search(name) for name in names) or body_of(names) is None:
        return False
    axes = [_AXIS.match(name) for name in names]
    if all(axes):
        return [axis[2].lower() for axis in axes if axis] == ["x", "y", "z"][:size]
    indexed = [_INDEX.search(name) for name in names]
    numbers = [int(found[1] or found[2]) for found in indexed if found]
    return numbers == list(range(size)) and all(_PLACE.search(_INDEX.sub("", name)) for name in names)
