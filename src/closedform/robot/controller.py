"""Controller: the mathematics of a tick, from timed waypoints to joint angles; no clock, no input or output."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import axis_angle_of
from closedform.robot.command import Command, Mode
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.interfaces import ArmState
from closedform.robot.kinematics import Kinematics
from closedform.robot.reference import ReferencePoint

_AHEAD = 0.03  # meters by which the reference may be ahead of the commands
_GAP = 0.5  # seconds between ticks after which an arm that got no commands stands still
_STEEP = 0.5  # radians by which the tool may be tilted when the controller starts


class Tick(NamedTuple):
    """What a tick decided.

    Attributes:
        joints: (6,) to command; equal to the last ones when standing still.
        send: whether to send them; not to an arm that stopped by itself.
    """

    joints: np.ndarray
    send: bool


class Controller:
    """Follows timed waypoints with the tool held vertical; halts smoothly, with a reason, when anything is wrong.

    All commands obey the limits of the joints, their speeds and their accelerations, whatever waypoints, stops and
    delays come; the tests draw them at random. The same calls give the same commands, to the bit.

    Args:
        kinematics: of the arm.
        config: speeds, accelerations and what halts it.
        workspace: where the tool may be.

    Attributes:
        mode, reason, stops, sequence: as in `Status`.
        joints, velocities: (6,) commanded last.
    """

    def __init__(self, kinematics: Kinematics, config: ControlConfig, workspace: Workspace):
        self.kinematics, self.config, self.workspace = kinematics, config, workspace
        self.limits = config.limits(kinematics)
        self.mode, self.reason, self.stops, self.sequence = Mode.HOLD, "", 0, 0
        self.joints, self.velocities = np.zeros(6), np.zeros(6)
        self._reference: ReferencePoint | None = None
        self._rotation = np.eye(3)
        self._alarm_since: float | None = None
        self._started, self._ticked = False, np.inf

    @property
    def moving(self) -> bool:
        """Whether the last command moved a joint."""
        return bool(np.any(self.velocities))

    @property
    def target(self) -> np.ndarray | None:
        """(3,), where the reference is in the workplane's frame; None while it does not follow waypoints."""
        return None if self._reference is None else self._reference.position

    def tool(self, joints: np.ndarray) -> np.ndarray:
        """(3,), the tip in the workplane's frame for joints (6,)."""
        return self.workspace.plane.from_base(self.kinematics.pose(joints).position)

    def start_problem(self, state: ArmState) -> str | None:
        """Why the arm must not be started as it is, in words, or None."""
        problem = state.stopped or self.limits.check(state.joints)
        if problem is not None:
            return problem
        pose = self.kinematics.pose(state.joints)
        outside = self.workspace.outside(self.workspace.plane.from_base(pose.position), self.config.tolerance)
        if outside is not None:
            return f"the tool is outside the workspace: {outside}"
        tilt = float(np.arccos(np.clip(-pose.rotation[:, 2] @ self.workspace.plane.axes[:, 2], -1, 1)))
        if tilt > _STEEP:
            return f"the tool is tilted by {np.degrees(tilt):.0f} degrees: it has to point at the table"
        return None

    def tick(self, time: float, command: Command | None, state: ArmState) -> Tick:
        """Decides on the joints for the next period.

        Args:
            time: now.
            command: the newest one, or None before the first.
            state: of the arm.
        """
        gap, self._ticked = time - self._ticked, time
        if state.stopped or not self._started or gap > _GAP:
            if not np.isfinite(state.joints).all():
                return self._halted_tick(f"the arm reports joints that are not numbers: {state.joints}")
            self._take(state.joints)
        problem = self._problem(time, command, state)
        if gap > _GAP and not state.stopped:
            problem = f"the controller stood still for {gap:.1f} s"
        wanted = Mode.HOLD if command is None else command.mode
        if command is not None:
            self.sequence = command.sequence
        if self.mode == Mode.HALT:
            resumed = command is not None and command.resumes == self.stops and problem is None
            if resumed and wanted in (Mode.RUN, Mode.HOLD):
                self.mode, self.reason = Mode.HOLD, ""
        elif problem is not None and (self.mode == Mode.RUN or wanted == Mode.RUN or state.stopped):
            self.halt(problem)
        elif wanted in (Mode.HALT, Mode.END):
            self.halt((command.reason if command else "") or "told to stop")
        if self.mode != Mode.HALT:
            self.mode = Mode.RUN if wanted == Mode.RUN else Mode.HOLD
        if state.stopped or gap > _GAP:
            return Tick(self.joints.copy(), False)
        if self.mode == Mode.RUN and command is not None:
            self._follow(time, command)
        else:
            self._brake()
        return Tick(self.joints.copy(), True)

    def halt(self, reason: str) -> None:
        """Halts, smoothly, for a reason; the first one counts until somebody resumes."""
        if self.mode != Mode.HALT:
            self.mode, self.reason, self.stops = Mode.HALT, reason, self.stops + 1

    def refuse(self, reason: str) -> None:
        """Stays halted, or halts, for a new reason: the arm could not be recovered."""
        self.mode, self.reason, self.stops = Mode.HALT, reason, self.stops + 1

    def _halted_tick(self, reason: str) -> Tick:
        self.halt(reason)
        return Tick(self.joints.copy(), False)

    def _take(self, joints: np.ndarray) -> None:
        """Starts over from where the arm is, at rest."""
        self.joints, self.velocities = np.array(joints, np.float64), np.zeros(6)
        self._reference, self._started = None, True

    def _problem(self, time: float, command: Command | None, state: ArmState) -> str | None:
        """Why the arm must not follow waypoints now, in words, or None."""
        config = self.config
        alarm = "" if command is None else command.alarm
        self._alarm_since = None if not alarm else time if self._alarm_since is None else self._alarm_since
        if state.stopped:
            return state.stopped
        if not (np.isfinite(state.joints).all() and np.isfinite(state.velocities).all()):
            return "the arm reports joints that are not numbers"
        if time - state.time > config.state_timeout:
            return f"no news of the arm for {config.state_timeout:g} s"
        if state.time - time > config.state_timeout:
            return f"the arm's time is {state.time - time:.3g} s ahead"
        if command is None or command.mode != Mode.RUN:
            return None
        if time - command.issued > config.plan_timeout:
            return f"no fresh plan for {config.plan_timeout:g} s"
        if command.issued - time > config.plan_timeout:
            return f"a plan from {command.issued - time:.3g} s ahead"
        if not len(command.times) or not (np.isfinite(command.times).all() and np.isfinite(command.points).all()):
            return "a plan without waypoints, or with some that are not numbers"
        if self._alarm_since is not None and time - self._alarm_since > config.alarm_patience:
            return f"an alarm lasted for {config.alarm_patience:g} s: {alarm}"
        behind = float(np.max(np.abs(state.joints - self.joints)))
        if behind > config.tracking:
            return f"the arm does not follow: a joint is {behind:.2f} rad from its command"
        outside = self.workspace.outside(self.tool(state.joints), config.tolerance)
        return None if outside is None else f"the tool left the workspace: {outside}"

    def _follow(self, time: float, command: Command) -> None:
        config, plane = self.config, self.workspace.plane
        pose, jacobian = self.kinematics.jacobian(self.joints)
        here = plane.from_base(pose.position)
        if self._reference is None:
            self._reference = ReferencePoint(
                config, self.workspace, np.clip(here, self.workspace.lower, self.workspace.upper)
            )
            self._rotation = plane.tool_rotation(pose.rotation)
        reference = self._reference
        reference.step(*reference.target(time, command.times, command.points))
        reference.wait_for(here, _AHEAD)
        self._move(joint_velocity(pose, jacobian, self._goal(reference), self._forward(reference), config))

    def _goal(self, reference: ReferencePoint) -> RigidPose:
        return RigidPose(self._rotation, self.workspace.plane.to_base(reference.position))

    def _forward(self, reference: ReferencePoint) -> np.ndarray:
        """(3,), the reference's velocity in the base frame: the feed-forward."""
        return self.workspace.plane.axes @ reference.velocity

    def _brake(self) -> None:
        """Slows all joints down along their present direction, as fast as their accelerations allow."""
        self._reference = None
        steps = float(np.max(np.abs(self.velocities) / (self.limits.acceleration * self.config.period)))
        self._move(np.zeros(6) if steps <= 1 else self.velocities * (1 - 1 / steps))

    def _move(self, wanted: np.ndarray) -> None:
        dt = self.config.period
        self.velocities = self.limits.next_velocity(self.joints, self.velocities, wanted, dt)
        self.joints = self.joints + dt * self.velocities


def joint_velocity(
    pose: RigidPose, jacobian: np.ndarray, goal: RigidPose, forward: np.ndarray, config: ControlConfig
) -> np.ndarray:
    """(6,), the joint velocity that follows a goal, by damped least squares.

    Args:
        pose: of the tip.
        jacobian: (6, 6) there.
        goal: where the tip is to be after the next period.
        forward: (3,) velocity of the goal in the base frame; the feed-forward, without which the tip lags behind.
        config: gain, period and the singular value from which on to damp (Nakamura and Hanafusa 1986).
    """
    twist = np.empty(6)
    twist[:3] = forward + config.gain * (goal.position - forward * config.period - pose.position)
    twist[3:] = config.gain * axis_angle_of(goal.rotation @ pose.rotation.T)
    left, values, right = np.linalg.svd(jacobian)
    smallest = float(values[-1])
    damped = (config.singular**2 - smallest**2) if smallest < config.singular else 0.0
    return right.T @ (values / (values * values + damped) * (left.T @ twist))
