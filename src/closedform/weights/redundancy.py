"""Redundancy: which observed numbers are constant or copies of others, and which ranges must not be stretched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from operator import is_
from typing import NamedTuple

import numpy as np

from closedform.demos.episode import Episode
from closedform.weights.feature_map import FeatureMap, GeometricFeatures, IdentityFeatures, ScaledFeatures
from closedform.weights.feature_statistics import Statistics, half_ranges, is_constant

_N_LOOKED_AT = 8  # episodes that are searched for copies: numbers that vary do not agree in all of them by chance
_LEAST_RANGE = 1e-3  # of a number's own magnitude: less variation counts as noise
_UNIT = 1e-5  # how far the length of a unit quaternion may be from 1


class Redundancy(NamedTuple):
    """The redundancy of observed numbers, from the first few episodes.

    Attributes:
        episodes: those that were examined.
        copies: (D,), bool, which of the used numbers are exact copies of others, from the same step or the step before.
        quaternions: for each entry without a geometric meaning, the first number of each unit quaternion in it.
    """

    episodes: tuple[Episode, ...]
    copies: np.ndarray
    quaternions: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, feature_map: GeometricFeatures | IdentityFeatures, episodes: Sequence[Episode], known: Redundancy | None
    ) -> Redundancy:
        """The redundancy of episodes; `known` is returned if it is from the same ones."""
        first = tuple(islice((e for e in episodes if len(e) > 1), _N_LOOKED_AT))
        if known is not None and len(known.episodes) == len(first) and all(map(is_, known.episodes, first)):
            return known
        used = _used(feature_map, episodes[0].observations.shape[1])
        entries = _entries(feature_map, len(used))
        if not first:
            return cls(first, np.zeros(len(used), bool), ((),) * len(entries))
        looked_at = [episode.observations[:, used] for episode in first]
        observed = np.concatenate(looked_at)
        quaternions = tuple(() if whole else _unit_quaternions(observed[:, raw]) for raw, _, whole in entries)
        return cls(first, copied(looked_at), quaternions)


def without_redundant(
    feature_map: FeatureMap,
    lifted: Statistics,
    redundancy: Redundancy | None,
    scale: np.ndarray,
    rotation_weight: float,
) -> np.ndarray:
    """The scale of features (D_z,), with 0 for redundant ones.

    Redundant are numbers that never change, and exact copies of others. Tiny ranges are not stretched to [-1, 1]: those
    of numbers that vary by less than a thousandth of their own magnitude, and those of unit quaternions, which have a
    natural scale. Entries with a geometric meaning are dropped as a whole or not at all, so that rotating a scene
    changes no distance.

    Args:
        feature_map: of the features.
        lifted: their statistics, before they are scaled.
        redundancy: of the observed numbers; None if features do not correspond to single numbers.
        scale: (D_z,), the feature map's own.
        rotation_weight: the length of a rotation's unit vectors in features.
    """
    low, high = lifted.range
    if redundancy is None:
        return np.where(is_constant(low, high), 0.0, scale)
    copies = redundancy.copies
    entries = _entries(feature_map, len(copies))
    width = entries[-1][1].stop
    scale, low, high = scale.reshape(-1, width).copy(), low.reshape(-1, width).min(0), high.reshape(-1, width).max(0)
    constant = is_constant(low, high)
    stretched = isinstance(feature_map, GeometricFeatures | ScaledFeatures)
    for (raw, columns, whole), quaternions in zip(entries, redundancy.quaternions, strict=True):
        if whole:
            if copies[raw].all() or constant[columns].all():
                scale[:, columns] = 0.0
            continue
        if stretched:
            # Unlike the feature map's scale it is not rounded, so that units do not matter.
            scale[:, columns] = 1 / half_ranges(low[columns], high[columns])
            size = np.maximum(np.abs(low[columns]), np.abs(high[columns]))
            scale[:, columns] = np.minimum(scale[:, columns], 2 / (_LEAST_RANGE * np.maximum(size, 1e-300)))
            for first in quaternions:
                # A rotation by a small angle turns its unit vectors by that angle, and its quaternion by half of it.
                four = slice(columns.start + first, columns.start + first + 4)
                scale[:, four] = np.minimum(scale[:, four], 2 * rotation_weight)
        scale[:, columns][:, copies[raw] | constant[columns]] = 0.0
    return scale.ravel()


def copied(episodes: Sequence[np.ndarray]) -> np.ndarray:
    """Which numbers are exact copies of another one, from the same step or the step before. (T, D) each -> (D,), bool.

    The source of a chain of copies stays, however long the chain is.
    """
    now = [column.tobytes() for column in np.concatenate([e[1:] for e in episodes]).T + 0.0]
    before = [column.tobytes() for column in np.concatenate([e[:-1] for e in episodes]).T + 0.0]
    whole = np.concatenate(episodes).T + 0.0
    same, varies = [column.tobytes() for column in whole], np.ptp(whole, axis=1) > 0
    first_same: dict[bytes, int] = {}
    first_before: dict[bytes, int] = {}
    for column in np.flatnonzero(varies).tolist():
        first_same.setdefault(same[column], column)
        first_before.setdefault(before[column], column)
    source = np.full(len(now), -1)
    for column in np.flatnonzero(varies).tolist():
        twin, older = first_same[same[column]], first_before.get(now[column], column)
        source[column] = twin if twin != column else older if older != column else -1
    found = np.zeros(len(now), bool)
    while True:  # copies of what stays, then copies of these, and so on, so that no cycle is dropped entirely
        more = (source >= 0) & ~found & (found[source] | (source[source] < 0))
        if not more.any():
            return found
        found |= more


def _entries(feature_map: FeatureMap, width: int) -> list[tuple[slice, slice, bool]]:
    """Of each entry: its used numbers, its features, and whether they belong together."""
    if not isinstance(feature_map, GeometricFeatures):
        return [(slice(0, width), slice(0, width), False)]
    found, start = [], 0
    for entry, columns in feature_map.encoding.slices():
        if entry.kind != "ignored":
            found.append((slice(start, start + entry.size), columns, entry.kind not in ("other", "binary")))
            start += entry.size
    return found


def _used(feature_map: GeometricFeatures | IdentityFeatures, width: int) -> np.ndarray:
    """The observed numbers that are not ignored."""
    if isinstance(feature_map, GeometricFeatures):
        return np.array(feature_map.encoding.layout.used_columns)
    return np.arange(width) if feature_map.columns is None else feature_map.columns


def _unit_quaternions(observed: np.ndarray) -> tuple[int, ...]:
    """The first of every four numbers in a row whose squares always add up to 1. (T, n) -> at most n // 4."""
    found: list[int] = []
    with np.errstate(over="ignore"):  # infinity is not of unit length
        squares = observed * observed
    for first in range(observed.shape[1] - 3):
        four = squares[:, first : first + 4]
        unit = np.abs(four.sum(1) - 1).max() < _UNIT and np.count_nonzero(np.ptp(four, axis=0)) > 1
        if unit and (not found or first >= found[-1] + 4):
            found.append(first)
    return tuple(found)
