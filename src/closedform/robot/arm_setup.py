"""ArmSetup: which arm it is, its tool, and where its workplane lies, as a file describes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import ConfigError, DataError, LoadError
from closedform.files import read_json
from closedform.geometry.layout import Layout
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.policy import Policy
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.kinematics import Kinematics
from closedform.robot.workplane import Workplane

_EXPECTED = "the description of an arm"
_KEYS = {"arm", "tool_length", "origin", "along_x", "along_y", "scale", "margin", "region", "control"}


@dataclass(frozen=True)
class ArmSetup:
    """An arm in its place.

    Attributes:
        kinematics: of the arm and its tool.
        plane: the workplane.
        config: of the controller.
        margin: meters around the demonstrated positions that the tool may use.
        region: (4,) least x, least y, greatest x, greatest y that the tool may use, in the policy's units, instead of
            what was demonstrated; None if that is known.
    """

    kinematics: Kinematics
    plane: Workplane
    config: ControlConfig
    margin: float = 0.03
    region: tuple[float, float, float, float] | None = None

    @classmethod
    def load(cls, path: Path) -> ArmSetup:
        """Reads a JSON file; docs/robot.md shows one."""
        data = read_json(path, _EXPECTED)
        try:
            unknown = sorted(set(data) - _KEYS)
            if unknown:
                raise ConfigError(f"expected {', '.join(sorted(_KEYS))}, found {unknown[0]!r}")
            kinematics = Kinematics.of(str(data["arm"]), float(data["tool_length"]))
            points = [[float(number) for number in data[key]] for key in ("origin", "along_x", "along_y")]
            plane = Workplane.touched(*points, scale=float(data.get("scale", 0.001)))
            region = tuple(float(number) for number in data["region"]) if data.get("region") is not None else None
            if region is not None and not (len(region) == 4 and region[0] < region[2] and region[1] < region[3]):
                raise ConfigError(f"region: expected least x, least y, greatest x and greatest y, found {region}")
            config = replace(ControlConfig(), **data.get("control", {}))
            return cls(kinematics, plane, config, float(data.get("margin", 0.03)), region)  # pyright: ignore[reportArgumentType]
        except KeyError as error:
            raise LoadError(f"{path}: expected {_EXPECTED} with {error}, found none") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise LoadError(f"{path}: expected {_EXPECTED}: {error}") from error

    def workspace(self, policy: Policy[Any]) -> Workspace:
        """Where the tool may be: the demonstrated positions, or the region that the file names, plus the margin."""
        if self.region is not None:
            return Workspace.around(self.plane, np.reshape(self.region, (2, 2)), self.margin, self.config)
        return Workspace.around(self.plane, demonstrated_positions(policy), self.margin, self.config)


def demonstrated_positions(policy: Policy[Any]) -> np.ndarray:
    """(n, 2), where the hand was in the demonstrations of a policy."""
    if not isinstance(policy, DemonstrationPolicy):
        raise DataError(
            f"a {type(policy).__name__} does not know where its demonstrations were: expected a 'region' in the "
            "description of the arm"
        )
    hand = policy.action_layout.entries[0].body
    columns = position_columns(policy.observation_layout, hand)
    if columns is None:
        return np.concatenate([episode.actions[:, :2] for episode in policy.store.episodes])
    return np.concatenate([episode.observations[:, columns] for episode in policy.store.episodes])


def position_columns(layout: Layout, body: str | None) -> slice | None:
    """Where the position (2,) of a body is in an observation; None if it is in none."""
    begin = 0
    for entry in layout.entries:
        if entry.body == body and body is not None and entry.kind == "position" and entry.size == 2:
            return slice(begin, begin + 2)
        begin += entry.size
    return None
