"""Inverse kinematics: joints that hold the tool vertical at a point, or a clear line where there are none."""

from __future__ import annotations

import numpy as np

from closedform.errors import ArmError
from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import axis_angle_of
from closedform.robot.control_config import ControlConfig
from closedform.robot.controller import joint_velocity
from closedform.robot.kinematics import Kinematics
from closedform.robot.limits import Limits
from closedform.robot.workplane import Workplane

_STEPS = 300
_CLOSE = 1e-4  # meters and radians


def solve(kinematics: Kinematics, plane: Workplane, point: np.ndarray, start: np.ndarray, limits: Limits) -> np.ndarray:
    """Joints (6,) for the tip at a point (3,) of the workplane's frame, found from a start (6,) by small steps.

    Raises `ArmError` where the point cannot be reached within the joint limits.
    """
    position, joints = plane.to_base(point), np.array(start, np.float64)
    rotation = plane.tool_rotation(kinematics.pose(joints).rotation)
    config = ControlConfig()
    for _ in range(_STEPS):
        pose, jacobian = kinematics.jacobian(joints)
        off, turned = position - pose.position, axis_angle_of(rotation @ pose.rotation.T)
        if max(np.linalg.norm(off), np.linalg.norm(turned)) < _CLOSE:
            return joints
        goal = RigidPose(rotation, pose.position + off * min(1.0, 0.1 / max(float(np.linalg.norm(off)), 1e-12)))
        step = joint_velocity(pose, jacobian, goal, np.zeros(3), config) / config.gain
        step *= min(1.0, 0.2 / max(float(np.max(np.abs(step))), 1e-12))
        joints = np.clip(joints + step, limits.lower, limits.upper)
    raise ArmError(
        f"unreachable target: expected a point that the arm reaches with its tool vertical, found "
        f"({', '.join(f'{1e3 * number:.0f}' for number in position)}) mm in its base frame; move the workplane"
    )


def check_reachable(
    kinematics: Kinematics, plane: Workplane, lower: np.ndarray, upper: np.ndarray, start: np.ndarray, limits: Limits
) -> None:
    """Refuses a workspace, the box between two corners (3,), of which the arm cannot reach every corner."""
    joints = start
    for x, y, z in ((0, 0, 1), (0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 0, 1)):
        corner = np.where(np.array([x, y, z]) > 0, upper, lower)
        joints = solve(kinematics, plane, corner, joints, limits)
