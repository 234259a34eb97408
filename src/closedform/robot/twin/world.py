"""World: the physics of arm, T and table, which pass as a clock does."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, NamedTuple

import numpy as np

from closedform.errors import MissingExtraError
from closedform.evaluation.mujoco_library import import_mujoco
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.clocks import LockstepClock
from closedform.robot.interfaces import Clock
from closedform.robot.twin.place import HOME, PLANE
from closedform.robot.twin.scene import DAMPING, STIFFNESS, TIMESTEP, block_pose, make_scene
from closedform.robot.twin.settings import Conditions, TwinSettings

_LEAD = np.array(DAMPING) / np.array(STIFFNESS)  # seconds by which a servo's goal leads, so that it does not lag
_PAIRS = {"bar table": 0, "stem table": 0, "bar stick": 1, "stem stick": 1}  # which friction is theirs


class TwinFrame(NamedTuple):
    """What a camera saw: number and time of the exposure, (nq,) positions and (nv,) velocities of the model then."""

    number: int
    time: float
    positions: np.ndarray
    velocities: np.ndarray


class World:
    """Arm, T and table. Physics is calculated up to the clock's time whenever somebody looks or commands.

    With a `LockstepClock` the same calls give the same world, to the bit.

    Attributes:
        model, data: MuJoCo's.
        clock: what the world's time follows.
        settings: of latency and pictures a second.
    """

    def __init__(self, settings: TwinSettings | None = None, clock: Clock | None = None):
        self.settings, self.clock = settings or TwinSettings(), clock or LockstepClock()
        self.mujoco = load_mujoco()
        xml, files = make_scene()
        self.model: Any = self.mujoco.MjModel.from_xml_string(xml, files)
        self.data: Any = self.mujoco.MjData(self.model)
        self._masses = self.model.body("block").mass.copy(), self.model.body("block").inertia.copy()
        self._lock = threading.RLock()
        self.reset(self.settings.draw(0), np.array([0.256, 0.256, 0.0]), HOME)

    def reset(self, conditions: Conditions, block: np.ndarray, joints: np.ndarray, seed: int = 0) -> None:
        """Begins an episode at rest.

        Args:
            conditions: friction and mass.
            block: (3,), the T's x, y in meters and angle on the workplane.
            joints: (6,) of the arm.
            seed: of the camera's noise.
        """
        with self._lock:
            self.seed = seed
            self._apply(conditions)
            self.mujoco.mj_resetData(self.model, self.data)
            self.data.qpos[:3] = PLANE.to_base(np.array([block[0], block[1], 0.0]))
            self.data.qpos[3:7] = np.cos(block[2] / 2), 0.0, 0.0, np.sin(block[2] / 2)
            self.data.qpos[7:] = self.data.ctrl[:] = joints
            self.mujoco.mj_forward(self.model, self.data)
            self._begun, self._n_steps = self.clock.now(), 0
            self._from, self._to, self._since, self._within = np.array(joints), np.array(joints), 0.0, TIMESTEP
            settings = self.settings
            first = TwinFrame(0, self._begun - settings.latency, self.data.qpos.copy(), self.data.qvel.copy())
            self._frames: deque[TwinFrame] = deque([first], maxlen=int(settings.latency * settings.fps) + 3)
            if settings.latency > 0:
                self._expose()

    def advance(self) -> None:
        """Calculates physics up to the clock's time."""
        with self._lock:
            due = int((self.clock.now() - self._begun) / TIMESTEP + 1e-6)
            while self._n_steps < due:
                goal, velocity = self._goal(self._n_steps * TIMESTEP)
                self.data.ctrl[:] = goal + _LEAD * velocity
                self.mujoco.mj_step(self.model, self.data)
                self._n_steps += 1
                self._expose()

    def command(self, joints: np.ndarray, within: float) -> None:
        """Lets the arm's servos move to joints (6,) at constant speed within some seconds from now."""
        with self._lock:
            self.advance()
            now = self._n_steps * TIMESTEP
            self._from, _ = self._goal(now)
            self._to, self._since, self._within = np.array(joints, float), now, max(within, TIMESTEP)

    @property
    def commanded(self) -> np.ndarray:
        """(6,), where the servos are told to be now."""
        return self._goal(self._n_steps * TIMESTEP)[0]

    def joints(self) -> tuple[float, np.ndarray, np.ndarray]:
        """The time, and angles (6,) and velocities (6,) of the arm's joints now."""
        with self._lock:
            self.advance()
            return self.clock.now(), self.data.qpos[7:].copy(), self.data.qvel[6:].copy()

    def block(self) -> np.ndarray:
        """(3,), the T's x, y in meters and angle on the workplane now."""
        with self._lock:
            self.advance()
            return planar(self.data.qpos)

    def frame(self, time: float) -> TwinFrame:
        """The newest exposure that is not later than a time."""
        with self._lock:
            self.advance()
            return next((one for one in reversed(self._frames) if one.time <= time + 1e-9), self._frames[0])

    def _expose(self) -> None:
        """Remembers what a camera sees, if it is time for a picture."""
        now = self._n_steps * TIMESTEP
        number = int(now * self.settings.fps + 1e-6) + 1
        if number > self._frames[-1].number:
            self._frames.append(TwinFrame(number, self._begun + now, self.data.qpos.copy(), self.data.qvel.copy()))

    def _goal(self, now: float) -> tuple[np.ndarray, np.ndarray]:
        share = (now - self._since) / self._within
        if share >= 1 - 1e-9:
            return self._to, np.zeros(6)
        move = self._to - self._from
        return self._from + share * move, move / self._within

    def _apply(self, conditions: Conditions) -> None:
        for name, which in _PAIRS.items():
            self.model.pair(name).friction[:2] = max((conditions.friction, conditions.stick_friction)[which], 1e-5)
        mass, inertia = self._masses
        factor = conditions.mass / mass[0]
        self.model.body("block").mass[:], self.model.body("block").inertia[:] = mass * factor, inertia * factor
        self.mujoco.mj_setConst(self.model, self.data)


def planar(positions: np.ndarray) -> np.ndarray:
    """(3,), the T's x, y in meters and angle on the workplane, of the model's positions (nq,)."""
    pose = block_pose(positions[:3], positions[3:7])
    x, y, _ = PLANE.from_base(pose.position)
    turned = PLANE.axes.T @ pose.rotation[:, 0]
    return np.array([x, y, np.arctan2(turned[1], turned[0])])


def block_in_base(positions: np.ndarray) -> RigidPose:
    """The T's pose in the base frame, of the model's positions (nq,)."""
    return block_pose(positions[:3], positions[3:7])


def load_mujoco() -> Any:
    """MuJoCo; raises `MissingExtraError` without it."""
    try:
        return import_mujoco()
    except ImportError as error:
        raise MissingExtraError(error.name or "mujoco", "twin", "the twin") from error
