"""Cell: the markers on a table and on the bodies that lie on it, as a file describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import ConfigError, LoadError
from closedform.files import read_json, write_file
from closedform.geometry.rigid_pose import RigidPose
from closedform.vision.marked_body import MarkedBody, square
from closedform.vision.markers import dictionary_name

_EXPECTED = "a description of a cell"
_MOST_MARKERS = 1000


@dataclass(frozen=True)
class Cell:
    """What carries markers, all of one dictionary.

    Attributes:
        dictionary: see `Markers`.
        table: corners (4, 3) of the markers on the table by number, in the frame of the arm's base.
        bodies: the bodies that are looked for.
    """

    dictionary: str
    table: Mapping[int, np.ndarray]
    bodies: tuple[MarkedBody, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dictionary", dictionary_name(self.dictionary))
        names = [body.name for body in self.bodies]
        if len(set(names)) < len(names):
            raise ConfigError(f"expected bodies with different names, found {', '.join(names)}")
        if self.table:
            MarkedBody("table", self.table)  # checks it
        taken = set(self.table)
        for body in self.bodies:
            twice = taken & set(body.corners)
            if twice:
                raise ConfigError(
                    f"marker {min(twice)} of the body {body.name!r}: expected a number that is used once, found it "
                    f"elsewhere too"
                )
            taken |= set(body.corners)

    @property
    def table_body(self) -> MarkedBody:
        """The table, as a body that does not move."""
        return MarkedBody("table", self.table)

    @classmethod
    def load(cls, path: Path) -> Cell:
        """Reads a cell from a JSON file; see docs/robot.md for its form."""
        return cls.from_json(read_json(path, _EXPECTED), path)

    @classmethod
    def from_json(cls, data: Any, path: object) -> Cell:
        """A cell from the content of a file; `path` is for messages."""
        try:
            bodies = tuple(
                MarkedBody(
                    str(body["name"]),
                    _corners(body["markers"], f"{path}: {body['name']}"),
                    None if body.get("height") is None else float(body["height"]),
                )
                for body in data["bodies"]
            )
            return cls(str(data["dictionary"]), _corners(data["table"], f"{path}: table"), bodies)
        except KeyError as error:
            raise LoadError(f"{path}: expected {_EXPECTED} with {error}, found none") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, ConfigError):
                raise LoadError(f"{path}: {error}") from error
            raise LoadError(f"{path}: expected {_EXPECTED}, found {error}") from error

    def save(self, path: Path) -> None:
        """Writes the cell to a JSON file."""
        write_file(path, json.dumps(self.to_json(), indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The cell as plain lists and dictionaries."""
        return {
            "dictionary": self.dictionary,
            "table": _listed(self.table),
            "bodies": [
                {"name": body.name, "height": body.height, "markers": _listed(body.corners)} for body in self.bodies
            ],
        }


def _corners(markers: Any, where: str) -> dict[int, np.ndarray]:
    """Corners by number, of markers given as corners or as size, position and angle about z in degrees."""
    if not isinstance(markers, list) or len(markers) > _MOST_MARKERS:
        raise LoadError(f"{where}: expected a list of at most {_MOST_MARKERS} markers, found {markers!r:.60}")
    found: dict[int, np.ndarray] = {}
    for marker in markers:
        number = int(marker["number"])
        if number in found:
            raise LoadError(f"{where}: expected every marker once, found {number} twice")
        if "corners" in marker:
            found[number] = np.array(marker["corners"], float)
        else:
            x, y, z = (float(value) for value in marker["position"])
            center = RigidPose.planar(x, y, np.radians(float(marker.get("angle", 0.0))), z)
            found[number] = square(float(marker["size"]), center)
    return found


def _listed(corners: Mapping[int, np.ndarray]) -> list[dict[str, Any]]:
    return [{"number": number, "corners": np.asarray(four).tolist()} for number, four in corners.items()]
