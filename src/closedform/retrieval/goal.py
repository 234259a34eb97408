"""Goal: where demonstrations end, and which of them still make the motion that is needed to get there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from closedform.demos.encoding import Encoding
from closedform.demos.layout import ROTATIONS
from closedform.retrieval.feature_map import FeatureMap, GeometricFeatures

LEAST_SPREAD = 1e-3  # of ends, in features: what the same end every time is taken for
CONSISTENT = 1.4826  # times the median absolute deviation is a normal distribution's standard deviation


class Goal(NamedTuple):
    """Where the objects are when demonstrations end: the poses of the bodies that actions do not command.

    People seldom end twice at quite the same place, but the middle of where they end is known well. Window i of an
    episode still moves the objects by r_i, from where they are then to where they are in the end. What is needed now
    is r, from where they are now to the middle of all ends. Windows count as further away the less these two agree,

        d_i^2 + g log(t + |r_i - r|^2),

    in units of the spread of ends. The logarithm makes halving a difference worth the same at any size: far from
    the goal it is a mild preference, and close to it precision beyond that of any single demonstration.

    Attributes:
        columns: (G,), which features are these poses, in the newest observation; none where there are no such bodies.
        ends: (E, G), of each episode.
        middle: (G,), the median of the ends.
        scale: (G,), one over their spread.
        tolerance: t, the squared error of the middle itself.
    """

    columns: np.ndarray
    ends: np.ndarray
    middle: np.ndarray
    scale: np.ndarray
    tolerance: float

    def penalty(self, query: np.ndarray, features: np.ndarray, episodes: np.ndarray) -> np.ndarray:
        """log(t + |r_i - r|^2), less its smallest value.

        Args:
            query: (D_z,), the features now.
            features: (k, D_z), of some windows.
            episodes: (k,), the episode of each, an index into `ends`.
        """
        if not len(self.columns):
            return np.zeros(len(features))
        still = self.ends[episodes] - features[:, self.columns]
        needed = self.middle - query[self.columns]
        difference = np.log(self.tolerance + np.sum(((still - needed) * self.scale) ** 2, axis=1))
        return difference - difference.min()


def find_goal(
    feature_map: FeatureMap,
    commanded: tuple[str, ...],
    n_obs_steps: int,
    last_observations: np.ndarray,
    scaling: tuple[np.ndarray, np.ndarray],
) -> Goal:
    """The goal of some episodes; it needs geometric features, in which motions can be added.

    Args:
        feature_map: of the observations.
        commanded: the bodies that actions command.
        n_obs_steps: observations in a window.
        last_observations: (E, D_o), of each episode; not numbers for those that are empty.
        scaling: offset and scale of the features.
    """
    blocks = _pose_columns(feature_map.encoding, commanded) if isinstance(feature_map, GeometricFeatures) else []
    if not blocks:
        return Goal(np.empty(0, np.int64), np.empty((len(last_observations), 0)), np.empty(0), np.empty(0), 1.0)
    offset, scale = scaling
    before = len(offset) // n_obs_steps * (n_obs_steps - 1)
    columns = before + np.concatenate(blocks)
    ended: np.ndarray = np.isfinite(last_observations).all(axis=1)  # pyright: ignore[reportAssignmentType]
    last = np.repeat(last_observations[ended][:, None], n_obs_steps, axis=1)
    found = ((feature_map.lift(last) - offset) * scale)[:, columns]
    ends = np.zeros((len(ended), len(columns)))
    ends[ended] = found
    middle = np.median(found, axis=0)
    spread = np.square(CONSISTENT * np.median(np.abs(found - middle), axis=0))
    pooled = np.concatenate([np.full(len(b), spread[np.isin(columns, before + b)].mean()) for b in blocks])
    return Goal(columns, ends, middle, 1 / np.sqrt(pooled + LEAST_SPREAD**2), len(columns) / len(found))


def _pose_columns(encoding: Encoding, commanded: tuple[str, ...]) -> list[np.ndarray]:
    """The encoded numbers of each position and rotation of a body that is not commanded."""
    return [
        np.arange(columns.start, columns.stop)
        for entry, columns in encoding.slices()
        if entry.body is not None and entry.body not in commanded and entry.kind in ("position", *ROTATIONS)
    ]
