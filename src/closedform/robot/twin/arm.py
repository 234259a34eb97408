"""TwinArm: the twin's arm behind the interface of a real one."""

from __future__ import annotations

import numpy as np

from closedform.errors import ArmError
from closedform.robot.interfaces import ArmState
from closedform.robot.twin.place import KINEMATICS
from closedform.robot.twin.world import World

_HALT = 0.1  # seconds


class TwinArm:
    """A UR5e whose joints are servoed toward their commands.

    Like the real one it stops by itself, and has to be unlocked, when a command would need a joint to move faster than
    it can.

    Args:
        world: the arm is in.
    """

    def __init__(self, world: World):
        self.world = world
        self._stopped: str | None = None
        self._connected = False

    @property
    def n_joints(self) -> int:
        """Six."""
        return 6

    def connect(self) -> None:
        """Connects."""
        self._connected = True

    def state(self) -> ArmState:
        """The state now."""
        self._check()
        return ArmState(*self.world.joints(), self._stopped)

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Moves toward joint angles (6,), to be reached after `dt` seconds."""
        self._check()
        joints = np.asarray(joints, float)
        if joints.shape != (6,) or not np.isfinite(joints).all() or not dt > 0:
            raise ArmError(f"expected 6 finite joint angles and a time above 0, found {joints} within {dt} s")
        if self._stopped:
            return
        self.world.advance()
        speeds = np.abs(joints - self.world.commanded) / dt
        over = np.flatnonzero(speeds > 1.01 * np.array(KINEMATICS.model.speed))
        if len(over):
            joint = int(over[0])
            self._stopped = f"protective stop: joint {joint + 1} was to move at {speeds[joint]:.1f} rad/s"
            self._halt()
            return
        self.world.command(joints, dt)

    def stop(self) -> None:
        """Comes to a smooth halt."""
        self._check()
        self._halt()

    def recover(self) -> None:
        """Unlocks the arm after a protective stop."""
        self._check()
        self._stopped = None

    def disconnect(self) -> None:
        """Halts and disconnects; does nothing if it is not connected."""
        if self._connected:
            self._halt()
            self._connected = False

    def _halt(self) -> None:
        _, joints, velocities = self.world.joints()
        self.world.command(joints + 0.5 * _HALT * velocities, _HALT)

    def _check(self) -> None:
        if not self._connected:
            raise ArmError("expected an arm that is connected, found one that is not: call connect first")
