"""BodySymmetry: the ways in which a body can be turned or mirrored and look the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from reprlib import repr as brief

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.so3 import smallest_turn, turn_about

MOST_IMAGES = 64  # in which a demonstration may count
_WORD = re.compile("(mirror)_([xyz])|turn([0-9]{1,3})?_([xyz])")
_EXPECTED = "words such as mirror_x, turn4_z (by quarters) or turn_z (by any angle), joined by '+'"
_UPSIDE_DOWN = -0.8  # cosine of the angle from which an axis counts as pointing the other way


@dataclass(frozen=True, eq=False)
class BodySymmetry:
    """A group of rotations and reflections g in a body's own axes: at rotation R it looks as it does at R g.

    Attributes:
        rotations: (n, 3, 3), the identity first.
        reflections: (m, 3, 3), through planes; none if the body cannot be mirrored.
        axis: 0, 1 or 2, its own axis about which it may be turned by any angle besides; -1 for none.
    """

    rotations: np.ndarray
    reflections: np.ndarray
    axis: int = -1

    @classmethod
    @lru_cache(maxsize=256)
    def parse(cls, text: str, *, planar: bool) -> BodySymmetry:
        """Reads a declaration.

        Args:
            text: words joined by `+`; in the plane the axis of turns, z, may be left out.
            planar: whether the body's rotation is an angle.
        """
        generators, axis = [], -1
        for word in text.split("+"):
            complete = f"{word}_z" if planar and re.fullmatch("turn[0-9]{0,3}", word) else word
            match = _WORD.fullmatch(complete)
            if match is None or (planar and (match[2] or "x") == "z") or (planar and (match[4] or "z") != "z"):
                raise ConfigError(f"symmetry: expected {_EXPECTED}, found {brief(text)}")
            if match[1]:
                generators.append(np.diag([-1.0 if name == match[2] else 1.0 for name in "xyz"]))
            elif match[3] is None:
                if axis >= 0:
                    raise ConfigError(
                        f"symmetry: expected one axis of turns by any angle, found {brief(text)}; what has more shows "
                        "no rotation: declare its entry ignored"
                    )
                axis = "xyz".index(match[4])
            elif not 2 <= int(match[3]) <= MOST_IMAGES:
                raise ConfigError(f"symmetry: expected turns in 2 to {MOST_IMAGES} steps, found {brief(text)}")
            else:
                generators.append(turn_about("xyz".index(match[4]), 2 * np.pi / int(match[3])))
        group = _closure(generators, text)
        proper = np.linalg.det(group) > 0
        mirrors = group[~proper]
        return cls(group[proper], mirrors[np.isclose(np.trace(mirrors, axis1=1, axis2=2), 1.0)], axis)

    @classmethod
    def none(cls) -> BodySymmetry:
        """That of a body which looks different in any other pose."""
        return cls(np.eye(3)[None], np.empty((0, 3, 3)))


def untwisted(rotations: np.ndarray, axis: int) -> np.ndarray:
    """Rotations without their turn about a body's own axis: the smallest that point the axis the same way.

    Where the axis is about upside down that is ill-defined, and it is the smallest turn from there.

    Args:
        rotations: (..., 3, 3)
        axis: 0, 1 or 2.
    """
    points = rotations[..., :, axis]
    down = points[..., axis, None] < _UPSIDE_DOWN
    over = turn_about((axis + 1) % 3, np.pi)
    swing = smallest_turn(np.eye(3)[axis], np.where(down, -points, points))
    # Turned over, the axis points along -axis: swinging that to `points` is swinging the axis to -points.
    return np.where(down[..., None], swing @ over, swing)


def _closure(generators: list[np.ndarray], text: str) -> np.ndarray:
    """All products of some matrices, (n, 3, 3), the identity first."""
    group = [np.eye(3)]
    for element in group:  # which grows meanwhile
        for generator in generators:
            product = element @ generator
            if not any(np.allclose(product, known, atol=1e-6) for known in group):
                group.append(product)
        if len(group) > 2 * MOST_IMAGES:
            raise ConfigError(f"symmetry: expected at most {MOST_IMAGES} turns that look the same, found {brief(text)}")
    return np.array(group)
