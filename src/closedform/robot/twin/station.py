"""Station: all parts of the twin, as a runner needs them."""

from __future__ import annotations

import numpy as np

from closedform.demos.catalog import PUSHT_OBSERVATIONS
from closedform.evaluation.pusht import start_state
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.clocks import LockstepClock
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.interfaces import ArmState, Clock, Estimate
from closedform.robot.inverse import solve
from closedform.robot.marker_perception import MarkerPerception
from closedform.robot.twin.arm import TwinArm
from closedform.robot.twin.block import coverage, distance_to, start_pose
from closedform.robot.twin.camera import TwinCamera
from closedform.robot.twin.place import HOME, KINEMATICS, PLANE, SIDE, STICK_RADIUS, twin_cell
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.world import World
from closedform.vision.camera import Image
from closedform.vision.extrinsics import find_camera
from closedform.vision.marker_tracker import MarkerTracker

_CLEAR = 0.003  # meters between stick and T at the start
_N_PICTURES = 5  # that the camera's place is found from


class Station:
    """The twin's world, arm, camera and perception on one clock; `place` begins an episode of Push-T.

    Args:
        settings: of the twin.
        clock: a `LockstepClock` by default.
        pictures: whether there are a camera and perception; their attributes are missing otherwise.
        config: of the controller, for the height of the tool and the workspace.

    Attributes:
        world, arm: the physics, and the arm (connected).
        camera, perception: pictures, and Push-T's observations from them; the camera's place is found from the markers
            on the table.
        truth: Push-T's observations from the simulator.
        kinematics, plane, workspace: of the arm's tool.
    """

    camera: TwinCamera
    perception: MarkerPerception

    def __init__(
        self,
        settings: TwinSettings | None = None,
        clock: Clock | None = None,
        *,
        pictures: bool = True,
        config: ControlConfig | None = None,
    ):
        self.settings, self.clock = settings or TwinSettings(), clock or LockstepClock()
        self.config = config or ControlConfig()
        self.world = World(self.settings, self.clock)
        self.arm = TwinArm(self.world)
        self.arm.connect()
        self.kinematics, self.plane = KINEMATICS, PLANE
        reach = np.array([[0.0, 0.0], [SIDE, SIDE]]) / PLANE.scale
        self.workspace = Workspace.around(PLANE, reach, self.settings.margin, self.config)
        self.truth = TruePerception(self)
        self._has_pictures = pictures
        if pictures:
            self._look()

    def place(self, seed: int, state: np.ndarray | None = None) -> None:
        """Begins an episode at rest.

        Args:
            seed: of friction, mass, noise and, by default, of the start state.
            state: (5,) of gym-pusht; Diffusion Policy's for the seed if None. A stick that would stand in the T is
                moved beside it.
        """
        drawn = self.settings.draw(seed)
        state = start_state(seed) if state is None else np.asarray(state, float)
        block = start_pose(state) * [PLANE.scale, PLANE.scale, 1.0]
        stick = self._beside(PLANE.scale * state[:2], block)
        limits = self.config.limits(KINEMATICS)
        joints = solve(KINEMATICS, PLANE, np.array([*stick, self.config.height]), HOME, limits)
        self.world.reset(drawn, block, joints, seed)
        self.arm.connect()
        self.arm.recover()
        if self._has_pictures:
            middle = PLANE.to_base(np.array([SIDE / 2, SIDE / 2, 0.0]))
            turn = RigidPose.planar(0.0, 0.0, drawn.angle)
            wrong = RigidPose(turn.rotation, middle - turn.rotation @ middle + np.array([*drawn.offset, 0.0]))
            self.perception.tracker.camera = self._found.after(wrong.inverse)
            self.perception.reset()

    def follow(self, clock: Clock) -> None:
        """Lets the world follow another clock, from the next `place` on."""
        self.clock = self.world.clock = clock

    def observation(self) -> np.ndarray:
        """The true observation (5,) of Push-T now: the stick's position, and the T's position and angle."""
        tip = PLANE.from_base(KINEMATICS.pose(self.arm.state().joints).position)
        x, y, angle = self.world.block()
        return np.array([*tip[:2] / PLANE.scale, x / PLANE.scale, y / PLANE.scale, angle % (2 * np.pi)])

    def coverage(self) -> float:
        """The fraction of the outline that the T really covers now."""
        return coverage(*self.world.block())

    def close(self) -> None:
        """Releases the camera."""
        if self._has_pictures:
            self.camera.close()

    def _look(self) -> None:
        self.camera, cell, pictures = TwinCamera(self.world), twin_cell(), []
        for seed in range(_N_PICTURES):
            self.world.reset(self.settings.draw(seed), np.array([SIDE / 2, SIDE / 2, np.pi / 4]), HOME, seed)
            pictures.append(self.camera.grab())
        self._found = find_camera(cell, self.camera.intrinsics, pictures).pose
        tracker = MarkerTracker(cell, self.camera.intrinsics, self._found)
        self.perception = MarkerPerception(PUSHT_OBSERVATIONS, "agent", tracker, KINEMATICS, PLANE)

    def _beside(self, stick: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Where the stick can stand (2,): where it should, or beside the T."""
        for _ in range(4):  # one step leads into the T's other part, at most
            distance, away = distance_to(stick, block)
            missing = STICK_RADIUS + _CLEAR - distance
            if missing <= 0:
                break
            stick = stick + missing * away
        return np.clip(stick, self.workspace.lower[:2], self.workspace.upper[:2])


class TruePerception:
    """Push-T's observations from the simulator, behind the interface of perception.

    Args:
        station: whose state is observed.
    """

    observation_layout = PUSHT_OBSERVATIONS

    def __init__(self, station: Station):
        self._station = station

    def reset(self) -> None:
        """Has nothing to forget."""

    def observe(self, image: Image | None, state: ArmState) -> Estimate:
        """The true observation now."""
        return Estimate(state.time, self._station.observation(), 0.0, state.time)
