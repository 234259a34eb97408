"""Stage: how a page shows the scene of an environment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from closedform.errors import ConfigError
from closedform.evaluation.drawing import Draws, Placement
from closedform.evaluation.environment import EnvironmentSpec, Renders, Scene
from closedform.geometry.layout import Layout


class Stage:
    """What of a scene can be shown: its bodies as shapes, a film of it, or the positions of its bodies as points.

    Args:
        observation_layout, action_layout: of the policy.
        environment: shows itself if it can; None if there is none.

    Attributes:
        kind: `shapes`, `film`, `points`, or `none` if there is nothing to show.
        planar: the columns of the first position in an action, if it has one.
        overlaid: whether that position can be drawn into the scene.
    """

    def __init__(self, observation_layout: Layout, action_layout: Layout, environment: EnvironmentSpec | None = None):
        self.planar = planar_columns(action_layout)
        self._placement = _placement(environment)
        self._places = _places(observation_layout)
        self.extent: tuple[float, float, float, float] | None = None
        if self._placement is not None:
            self.kind, self.extent = "shapes", self._placement.drawing.extent
        elif isinstance(environment, Renders):
            self.kind, self.extent = "film", environment.extent if isinstance(environment, Scene) else None
        else:
            self.kind = "points" if self._places else "none"
        self.overlaid = self.planar is not None and (self.kind == "points" or self.extent is not None)

    def poses(self, observations: np.ndarray) -> dict[str, list[list[float]]]:
        """x, y and, of shapes, the angle of each body at observations (n, D_o); empty for films."""
        if self._placement is not None:
            found = self._placement.poses(observations)
            return {body: rounded(poses, self.extent) for body, poses in found.items()}
        if self.kind != "points":
            return {}
        return {body: rounded(observations[:, columns], None) for body, columns in self._places.items()}

    def path(self, actions: np.ndarray) -> list[list[float]]:
        """The planar position that actions (n, D_a) command; without one, their first few numbers."""
        columns = list(self.planar) if self.planar else list(range(min(4, actions.shape[1])))
        return rounded(actions[:, columns], self.extent)

    def to_json(self, everything: Iterable[np.ndarray] = ()) -> dict[str, Any]:
        """The stage as plain lists and dictionaries; points are shown in the range of all given observations."""
        if self._placement is not None:
            shown = {**self._placement.drawing.to_json(), "hand": self._placement.hand}
        elif self.kind == "points":
            points = [o[:, columns].reshape(-1, 2) for o in everything for columns in self._places.values()]
            shown = {"extent": _around(np.concatenate(points))}
        else:
            shown = {"extent": None if self.extent is None else list(self.extent)}
        return {"kind": self.kind, "planar": self.planar is not None, "overlaid": self.overlaid, **shown}


def planar_columns(layout: Layout) -> tuple[int, int] | None:
    """The first two columns of the first position in an action, if it has one."""
    for entry, columns in layout.slices():
        if entry.kind == "position" and entry.size >= 2:
            return columns.start, columns.start + 1
    return None


def _placement(environment: object) -> Placement | None:
    if not isinstance(environment, Draws):
        return None
    try:
        return Placement(environment.drawing, environment.observation_layout, environment.action_layout)  # pyright: ignore[reportAttributeAccessIssue]
    except ConfigError:  # its drawing is for other observations or actions
        return None


def _places(layout: Layout) -> dict[str, slice]:
    """The first two numbers of the position of each body."""
    found: dict[str, slice] = {}
    for entry, columns in layout.slices():
        if entry.kind == "position" and entry.size >= 2 and entry.body:
            found.setdefault(entry.body, slice(columns.start, columns.start + 2))
    return found


def _around(points: np.ndarray) -> list[float]:
    """The square extent around points: left, right, bottom, top."""
    points = points[np.isfinite(points).all(1)] if len(points) else np.zeros((1, 2))
    low, high = (points.min(0), points.max(0)) if len(points) else (np.zeros(2), np.ones(2))
    middle, half = (low + high) / 2, 0.55 * max(float((high - low).max()), 1e-6)
    return [float(middle[0] - half), float(middle[0] + half), float(middle[1] - half), float(middle[1] + half)]


def rounded(values: np.ndarray, extent: tuple[float, float, float, float] | None = None) -> list[list[float]]:
    """Numbers with as many digits as can be seen; those that are not finite are zero."""
    values = np.nan_to_num(np.asarray(values, np.float64), posinf=0, neginf=0)
    largest = np.abs(extent).max() if extent else max(float(np.abs(values).max(initial=0)), 1e-9)
    digits = max(0, 4 - int(np.floor(np.log10(largest))))
    return np.round(values, max(3, digits) if values.shape[1] == 3 else digits).tolist()
