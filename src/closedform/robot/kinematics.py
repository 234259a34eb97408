"""Kinematics of six-joint arms given by Denavit-Hartenberg numbers, and those of the Universal Robots family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.rigid_pose import RigidPose

_TURN = np.pi / 180


class ArmModel(NamedTuple):
    """The published numbers of an arm.

    Attributes:
        a, d, alpha: (6,) Denavit-Hartenberg numbers (the standard convention), in meters and radians.
        speed: (6,) the greatest speed of each joint in radians a second.
    """

    a: tuple[float, ...]
    d: tuple[float, ...]
    alpha: tuple[float, ...]
    speed: tuple[float, ...]


def _ur(d1: float, a2: float, a3: float, d4: float, d5: float, d6: float, *degrees: float) -> ArmModel:
    quarter = np.pi / 2
    speed = tuple(_TURN * number for number in degrees)
    return ArmModel((0, a2, a3, 0, 0, 0), (d1, 0, 0, d4, d5, d6), (quarter, 0, 0, quarter, -quarter, 0), speed)


MODELS: dict[str, ArmModel] = {
    "ur3": _ur(0.1519, -0.24365, -0.21325, 0.11235, 0.08535, 0.0819, 180, 180, 180, 360, 360, 360),
    "ur5": _ur(0.089159, -0.425, -0.39225, 0.10915, 0.09465, 0.0823, 180, 180, 180, 180, 180, 180),
    "ur10": _ur(0.1273, -0.612, -0.5723, 0.163941, 0.1157, 0.0922, 120, 120, 180, 180, 180, 180),
    "ur3e": _ur(0.15185, -0.24355, -0.2132, 0.13105, 0.08535, 0.0921, 180, 180, 180, 360, 360, 360),
    "ur5e": _ur(0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996, 180, 180, 180, 180, 180, 180),
    "ur7e": _ur(0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996, 180, 180, 180, 180, 180, 180),
    "ur10e": _ur(0.1807, -0.6127, -0.57155, 0.17415, 0.11985, 0.11655, 120, 120, 180, 180, 180, 180),
    "ur12e": _ur(0.1807, -0.6127, -0.57155, 0.17415, 0.11985, 0.11655, 120, 120, 180, 180, 180, 180),
    "ur16e": _ur(0.1807, -0.4784, -0.36, 0.17415, 0.11985, 0.11655, 120, 120, 180, 180, 180, 180),
    "ur20": _ur(0.2363, -0.862, -0.7287, 0.201, 0.1593, 0.1543, 120, 120, 150, 210, 210, 210),
    "ur30": _ur(0.2363, -0.637, -0.5037, 0.201, 0.1593, 0.1543, 120, 120, 150, 210, 210, 210),
}


@dataclass(frozen=True)
class Kinematics:
    """Where the tool is for given joints, and how it moves with them.

    Poses are those of the tool's tip in the base frame.

    Attributes:
        model: the arm, a name in `MODELS` or its numbers.
        tool_length: meters from the flange to the tip, along the flange's z axis.
    """

    model: ArmModel
    tool_length: float = 0.0

    @classmethod
    def of(cls, name: str, tool_length: float = 0.0) -> Kinematics:
        """The kinematics of an arm of the UR family, such as `ur5e`."""
        if name not in MODELS:
            raise ConfigError(f"unknown arm {name!r}: expected {', '.join(MODELS)}")
        return cls(MODELS[name], tool_length)

    def __post_init__(self):
        if not 0 <= self.tool_length <= 1:
            raise ConfigError(f"tool_length: expected 0 to 1 meter, found {self.tool_length!r}")
        lengths = {len(numbers) for numbers in self.model}
        if lengths != {6}:
            raise ConfigError(f"expected an arm of 6 joints, found numbers for {sorted(lengths)}")
        alpha = np.array(self.model.alpha)
        object.__setattr__(self, "_turns", (np.cos(alpha).round(16), np.sin(alpha).round(16)))

    def _chain(self, joints: np.ndarray) -> tuple[list[list[float]], list[list[float]], np.ndarray, np.ndarray]:
        """Axis and origin of each joint, and the tip's rotation and position, all in the base frame.

        Plain numbers instead of arrays: six small products are several times as fast that way.
        """
        cos_alpha, sin_alpha = (numbers.tolist() for numbers in self._turns)  # pyright: ignore[reportAttributeAccessIssue]
        a, d = self.model.a, self.model.d
        cosines, sines = np.cos(joints).tolist(), np.sin(joints).tolist()
        x, y, z, p = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]
        axes, origins = [], []
        for i in range(6):
            axes.append(z)
            origins.append(p)
            c, s, ca, sa, ai, di = cosines[i], sines[i], cos_alpha[i], sin_alpha[i], a[i], d[i]
            turned = [c * x[k] + s * y[k] for k in range(3)]
            across = [c * y[k] - s * x[k] for k in range(3)]
            p = [p[k] + ai * turned[k] + di * z[k] for k in range(3)]
            x, y, z = (
                turned,
                [ca * across[k] + sa * z[k] for k in range(3)],
                [ca * z[k] - sa * across[k] for k in range(3)],
            )
        tip = np.array([p[k] + self.tool_length * z[k] for k in range(3)])
        return axes, origins, np.array([x, y, z]).T, tip

    def pose(self, joints: np.ndarray) -> RigidPose:
        """The tip's pose for joint angles (6,)."""
        _, _, rotation, position = self._chain(joints)
        return RigidPose(rotation, position)

    def jacobian(self, joints: np.ndarray) -> tuple[RigidPose, np.ndarray]:
        """The tip's pose and (6, 6), its linear (first three rows) and angular velocity for each joint's speed."""
        axes, origins, rotation, position = self._chain(joints)
        jacobian = np.empty((6, 6))
        px, py, pz = position.tolist()
        for i, ((zx, zy, zz), (ox, oy, oz)) in enumerate(zip(axes, origins, strict=True)):
            rx, ry, rz = px - ox, py - oy, pz - oz
            jacobian[:, i] = (zy * rz - zz * ry, zz * rx - zx * rz, zx * ry - zy * rx, zx, zy, zz)
        return RigidPose(rotation, position), jacobian
