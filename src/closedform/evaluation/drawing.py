"""Drawing: the planar bodies of an environment as shapes, so that any program can draw its scene from observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.layout import Layout

Polygon = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Shape:
    """A rigid shape in the axes of its body: polygons, or a disk of some radius about the body's origin."""

    polygons: tuple[Polygon, ...] = ()
    radius: float = 0.0


@dataclass(frozen=True)
class Drawing:
    """How a planar scene looks.

    Attributes:
        extent: the edges of the scene in the units of positions: left, right, bottom, top.
        bodies: the shape of each body that the observation layout places, by name.
        goals: where bodies should end, by name: x, y, angle.
    """

    extent: tuple[float, float, float, float]
    bodies: Mapping[str, Shape]
    goals: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The drawing as plain lists and dictionaries."""
        return {
            "extent": list(self.extent),
            "bodies": {
                name: {"polygons": [list(map(list, p)) for p in shape.polygons], "radius": shape.radius}
                for name, shape in self.bodies.items()
            },
            "goals": {name: list(pose) for name, pose in self.goals.items()},
        }

    @classmethod
    def of_layout(cls, observation_layout: Layout, observations: np.ndarray) -> Drawing:
        """Disks where the layout says that bodies are in the plane, and arrows for those that turn.

        Args:
            observation_layout: of the scene.
            observations: (n, D_o), in whose range the scene is.
        """
        columns = {e.body: c for e, c in observation_layout.slices() if e.kind == "position" and e.size == 2 and e.body}
        if not columns:
            raise ConfigError(
                "a scene is drawn from its layout: expected the position of a body in the plane, found none"
            )
        turning = {entry.body for entry in observation_layout.entries if entry.kind == "angle"}
        points = np.concatenate([observations[:, place] for place in columns.values()])
        low, high = points.min(0), points.max(0)
        middle, half = (low + high) / 2, 0.7 * max(float((high - low).max()), 1e-6)
        r = 0.05 * half
        arrow = Shape((((-r, -r), (2 * r, 0.0), (-r, r)),))
        bodies = {body: arrow if body in turning else Shape(radius=r) for body in columns}
        (x, y), edge = middle.tolist(), half
        return cls((x - edge, x + edge, y - edge, y + edge), bodies)


@runtime_checkable
class Draws(Protocol):
    """An environment whose scene can be drawn from observations alone."""

    drawing: Drawing


class Placement:
    """Reads the poses of drawn bodies from observations, and the point that an action commands.

    Args:
        drawing: the shapes.
        observation_layout: places each drawn body: two numbers of kind `position` and, if it turns, one `angle`.
        action_layout: a `position` of one drawn body, and nothing else.
    """

    def __init__(self, drawing: Drawing, observation_layout: Layout, action_layout: Layout):
        self.drawing = drawing
        self._columns: dict[str, tuple[slice, slice | None]] = {}
        found = {(entry.body, entry.kind): columns for entry, columns in observation_layout.slices()}
        for body in drawing.bodies:
            place = found.get((body, "position"))
            if place is None or place.stop - place.start != 2:
                raise ConfigError(f"the drawing has a body {body!r}: expected its position in the plane, found none")
            self._columns[body] = place, found.get((body, "angle"))
        entries = action_layout.entries
        if len(entries) != 1 or (entries[0].kind, entries[0].size) != ("position", 2) or entries[0].body is None:
            raise ConfigError("a mouse moves one body: expected actions that are its position in the plane, found more")
        self.hand = entries[0].body
        if self.hand not in drawing.bodies:
            raise ConfigError(f"expected a drawing of the body that is moved, {self.hand!r}, found none")

    def columns(self, body: str) -> slice:
        """Which numbers of an observation are the position of a body."""
        return self._columns[body][0]

    def poses(self, observations: np.ndarray) -> dict[str, np.ndarray]:
        """The poses (n, 3) of each body, x, y and angle, at observations (n, D_o)."""
        found = {}
        for body, (place, angle) in self._columns.items():
            turned = np.zeros((len(observations), 1)) if angle is None else observations[:, angle]
            found[body] = np.concatenate([observations[:, place], turned], axis=1)
        return found

    def action(self, point: Sequence[float]) -> np.ndarray:
        """The action (2,) that moves the hand to a point; points outside of the scene are moved to its edge."""
        left, right, bottom, top = self.drawing.extent
        low, high = (min(left, right), min(bottom, top)), (max(left, right), max(bottom, top))
        return np.clip(np.asarray(point[:2], np.float64), low, high)
