"""Operational-space control of robosuite's arms: its OSC_POSE controller without the overhead.

robosuite evaluates the whole model up to four times per physics step and reads its state through Python objects. Here a
physics step is one evaluation and the torques are compiled: three to five times faster, with the same motion up to
rounding and the tolerance of the contact solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.kernels.jit import jit

_NULLSPACE_STIFFNESS = 10.0  # robosuite's, critically damped


class _Gains(NamedTuple):
    """The gains and limits of a controller.

    Attributes:
        kp, kd: (6,), stiffness and damping.
        rest: (n,), the rest positions of the joints.
        low, high: (n,), the torque limits of the motors.
    """

    kp: np.ndarray
    kd: np.ndarray
    rest: np.ndarray
    low: np.ndarray
    high: np.ndarray


@jit()
def _torques(jacobian, mass, hand, goal, joints, velocities, bias, gains):
    """Khatib's operational-space torques, with position and rotation decoupled and joints pulled to rest positions.

    Args:
        jacobian: (6, n), of the hand's position and rotation.
        mass: (n, n)
        hand, goal: the current and the desired `RigidPose` of the hand.
        joints, velocities, bias: (n,), `bias` being the torques that compensate gravity.
        gains: `_Gains`.
    """
    axes, position = hand
    goal_axes, goal_position = goal
    kp, kd, rest, low, high = gains
    moving = jacobian @ velocities
    turn = np.zeros(3)
    for c in range(3):
        for a in range(3):
            b, d = (a + 1) % 3, (a + 2) % 3
            turn[a] += 0.5 * (axes[b, c] * goal_axes[d, c] - axes[d, c] * goal_axes[b, c])
    onto_hand = jacobian @ np.linalg.inv(mass)
    inverse_inertia = onto_hand @ jacobian.T
    wrench = np.empty(6)
    wrench[:3] = np.linalg.solve(
        np.ascontiguousarray(inverse_inertia[:3, :3]), (goal_position - position) * kp[:3] - moving[:3] * kd[:3]
    )
    wrench[3:] = np.linalg.solve(np.ascontiguousarray(inverse_inertia[3:, 3:]), turn * kp[3:] - moving[3:] * kd[3:])
    damping = 2.0 * np.sqrt(_NULLSPACE_STIFFNESS)
    relaxing = mass @ (_NULLSPACE_STIFFNESS * (rest - joints) - damping * velocities)
    wrench -= np.linalg.solve(inverse_inertia, onto_hand @ relaxing)
    return np.minimum(np.maximum(jacobian.T @ wrench + relaxing + bias, low), high)


class RobosuiteArm:
    """One arm of a robosuite environment; must be created again after each reset."""

    def __init__(self, robot: Any):
        controller = robot.controller
        self.robot, self.model, self.data = robot, controller.sim.model._model, controller.sim.data._data
        self.site = controller.sim.model.site_name2id(controller.eef_name)
        self.joints = slice(controller.qpos_index[0], controller.qpos_index[-1] + 1)
        self.dofs = slice(controller.qvel_index[0], controller.qvel_index[-1] + 1)
        self.motors = np.array(robot._ref_joint_actuator_indexes)
        self.finger_motors = np.array(robot._ref_joint_gripper_actuator_indexes)
        self.jacobian = np.zeros((6, self.model.nv))
        self.mass = np.zeros((self.model.nv, self.model.nv))
        limits = [np.array(limit, np.float64) for limit in robot.torque_limits]
        gains = [np.array(gain, np.float64) for gain in (controller.kp, controller.kd, controller.initial_joint)]
        self.gains = _Gains(*gains, *limits)
        low, high = self.model.actuator_ctrlrange[self.finger_motors].T
        self.fingers_middle, self.fingers_reach = (high + low) / 2, (high - low) / 2

    @property
    def pose(self) -> RigidPose:
        """The hand's pose, in the frame that actions command."""
        return RigidPose(self.data.site_xmat[self.site].reshape(3, 3).copy(), self.data.site_xpos[self.site].copy())

    def control(self, goal: RigidPose, closing: float) -> None:
        """Sets the motor torques for one physics step; the model's positions and velocities must be up to date."""
        mujoco: Any = import_module("mujoco")
        data, dofs = self.data, self.dofs
        mujoco.mj_jacSite(self.model, data, self.jacobian[:3], self.jacobian[3:], self.site)
        mujoco.mj_fullM(self.model, self.mass, data.qM)
        data.ctrl[self.motors] = _torques(
            np.ascontiguousarray(self.jacobian[:, dofs]),
            np.ascontiguousarray(self.mass[dofs, dofs]),
            RigidPose(data.site_xmat[self.site].reshape(3, 3), data.site_xpos[self.site]),
            goal,
            data.qpos[self.joints],
            data.qvel[dofs],
            data.qfrc_bias[dofs],
            self.gains,
        )
        gripper = self.robot.gripper
        moved = gripper.current_action + np.array([-1.0, 1.0]) * gripper.speed * np.sign(closing)
        gripper.current_action = np.clip(moved, -1.0, 1.0)
        data.ctrl[self.finger_motors] = self.fingers_middle + self.fingers_reach * gripper.current_action


def step_together(arms: list[RobosuiteArm], goals: list[tuple[RigidPose, float]], n_physics_steps: int) -> None:
    """Moves all arms of a scene toward their goals, each a pose and whether to close the gripper."""
    mujoco: Any = import_module("mujoco")
    model, data = arms[0].model, arms[0].data
    for _ in range(n_physics_steps):
        mujoco.mj_step1(model, data)
        for arm, goal in zip(arms, goals, strict=True):
            arm.control(*goal)
        mujoco.mj_step2(model, data)
