"""The environments `twin` and `twin_truth`: Push-T with the twin's arm, at 10 Hz over 200 Hz, in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.deploy.clocks import LockstepClock
from closedform.deploy.command import Command, Mode
from closedform.deploy.control_config import ControlConfig, Workspace
from closedform.deploy.controller import Controller
from closedform.deploy.interfaces import Estimate
from closedform.deploy.inverse import solve
from closedform.deploy.perception.cell import Cell
from closedform.deploy.perception.extrinsics import find_camera
from closedform.deploy.perception.marker_perception import MarkerPerception
from closedform.deploy.perception.opencv import import_cv2
from closedform.deploy.perception.rigid_pose import RigidPose
from closedform.deploy.perception.tracker import Tracker
from closedform.errors import ConfigError
from closedform.evaluation.environment import StepResult
from closedform.evaluation.pusht import THRESHOLD, start_state
from closedform.twin.arm import TwinArm
from closedform.twin.block import coverage, distance_to, start_pose
from closedform.twin.camera import TwinCamera, make_renderer, render
from closedform.twin.place import CAMERA_SIZE, HOME, KINEMATICS, PLANE, SIDE, STICK_RADIUS, twin_cell
from closedform.twin.settings import TwinSettings
from closedform.twin.world import World, load_mujoco

_CLEAR = 0.003  # meters between stick and T at the start
_N_PICTURES = 5  # that the camera's place is found from


class TwinTruth:
    """Push-T on the twin's table, with the T's pose from the simulator; nothing is rendered.

    A pixel of Push-T is a millimeter. Actions are the targets of the 200 Hz controller, which moves the stick as
    gym-pusht moves its agent, at 0.5 m/s at most; friction and mass are drawn for each seed. There are no walls.
    Start states are those of gym-pusht (a stick that would stand in the T is moved beside it), score and success too.

    Args:
        settings: of the twin.
    """

    observation_layout = PUSHT_OBSERVATIONS
    action_layout = PUSHT_ACTIONS
    max_steps = 300
    rate = 10.0

    def __init__(self, settings: TwinSettings | None = None):
        self.settings = settings or TwinSettings()
        self._clock = LockstepClock()
        self.world = World(self.settings, self._clock)
        self.arm = TwinArm(self.world)
        self.arm.connect()
        self._config = ControlConfig()
        reach = np.array([[0.0, 0.0], [1e3 * SIDE, 1e3 * SIDE]])
        self._workspace = Workspace.around(PLANE, reach, self.settings.margin, self._config)
        self._renderer: Any = None
        self._controller: Controller | None = None

    @classmethod
    def check_installed(cls) -> None:
        """Raises `MissingExtraError` without MuJoCo or OpenCV."""
        load_mujoco()
        import_cv2("the twin")

    def reset(self, seed: int) -> np.ndarray:
        """Starts from Diffusion Policy's start state for a seed; evaluations use seeds from 100000."""
        return self.start(start_state(seed), seed)

    def start(self, state: np.ndarray, seed: int = 0) -> np.ndarray:
        """Starts from a state (5,) of gym-pusht, with the friction, mass and noise of a seed."""
        self._conditions = self.settings.draw(seed)
        block = start_pose(np.asarray(state, float)) * [1e-3, 1e-3, 1.0]
        stick = self._beside(1e-3 * np.asarray(state[:2], float), block)
        limits = self._config.limits(KINEMATICS)
        joints = solve(KINEMATICS, PLANE, np.array([*stick, self._config.height]), HOME, limits)
        self.world.reset(self._conditions, block, joints, seed)
        self.arm.recover()
        self._controller = Controller(KINEMATICS, self._config, self._workspace)
        self._n_steps = 0
        self._begin()
        return self._observe()

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the stick's target to a position (2,) for a tenth of a second."""
        self._move(np.asarray(action, float))
        covered = coverage(*self.world.block())
        success = covered > THRESHOLD
        return StepResult(self._observe(), min(covered / THRESHOLD, 1.0), success, success)

    def render(self) -> np.ndarray:
        """The scene as the camera sees it, without its flaws but with shadows."""
        if self._renderer is None:
            self._renderer = make_renderer(self.world, CAMERA_SIZE)
        self.world.advance()
        return render(self.world, self._renderer, self.world.data, shadows=True)

    def close(self) -> None:
        """Releases the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _move(self, target: np.ndarray) -> None:
        controller, clock, period = self._controller, self._clock, self._config.period
        if controller is None:
            raise ConfigError("expected a running episode, found none: call reset before step")
        now = clock.now()
        self._n_steps += 1
        point = PLANE.to_points(target, self._config.height)
        command = Command(self._n_steps, now, Mode.RUN, np.array([now]), point[None])
        for tick in range(round(1 / (self.rate * period))):
            decided = controller.tick(clock.now(), command, self.arm.state())
            if decided.send:
                self.arm.servo(decided.joints, period)
            clock.sleep_until(now + (tick + 1) * period)

    def _begin(self) -> None:
        """Begins to look at a new episode."""

    def _observe(self) -> np.ndarray:
        tip = PLANE.from_base(KINEMATICS.pose(self.arm.state().joints).position)
        x, y, angle = self.world.block()
        return np.array([1e3 * tip[0], 1e3 * tip[1], 1e3 * x, 1e3 * y, angle % (2 * np.pi)])

    def _beside(self, stick: np.ndarray, block: np.ndarray) -> np.ndarray:
        """Where the stick can stand (2,): where it should, or beside the T."""
        for _ in range(4):  # one step leads into the T's other part, at most
            distance, away = distance_to(stick, block)
            missing = STICK_RADIUS + _CLEAR - distance
            if missing <= 0:
                break
            stick = stick + missing * away
        return np.clip(stick, self._workspace.lower[:2], self._workspace.upper[:2])


class Twin(TwinTruth):
    """Push-T on the twin's table, with the T's pose from rendered pictures; see `TwinTruth`.

    The camera's place is found once from the markers on the table. While the T is lost from sight the stick stands
    still, as it does on a real arm. `estimate` says how good the last observation is.
    """

    def __init__(self, settings: TwinSettings | None = None):
        super().__init__(settings)
        self.camera = TwinCamera(self.world)
        self.cell: Cell = twin_cell()
        pictures = []
        for seed in range(_N_PICTURES):
            self.world.reset(self.settings.draw(seed), np.array([0.256, 0.256, np.pi / 4]), HOME, seed)
            pictures.append(self.camera.grab())
        self._found = find_camera(self.cell, self.camera.intrinsics, pictures).pose
        self.tracker = Tracker(self.cell, self.camera.intrinsics, self._found)
        self.perception = MarkerPerception(self.observation_layout, "agent", self.tracker, KINEMATICS, PLANE)
        self.estimate: Estimate | None = None

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the stick's target to a position (2,) for a tenth of a second."""
        lost = self.estimate is not None and self.estimate.alarm
        here = self.estimate.observation[:2] if self.estimate is not None else action
        return super().step(here if lost else action)

    def close(self) -> None:
        """Releases the renderers."""
        super().close()
        self.camera.close()

    def _begin(self) -> None:
        middle, drawn = PLANE.to_base(np.array([SIDE / 2, SIDE / 2, 0.0])), self._conditions
        turn = RigidPose.planar(0.0, 0.0, drawn.angle)
        offset = np.array([*drawn.offset, 0.0])
        wrong = RigidPose(turn.rotation, middle - turn.rotation @ middle + offset)
        self.tracker.camera = self._found.after(wrong.inverse)
        self.perception.reset()

    def _observe(self) -> np.ndarray:
        self.estimate = self.perception.observe(self.camera.grab(), self.arm.state())
        return self.estimate.observation


def make(settings: str) -> Twin:
    """The environment `twin:SETTINGS`; see `TwinSettings.parse`."""
    return Twin(TwinSettings.parse(settings))


def make_truth(settings: str) -> TwinTruth:
    """The environment `twin_truth:SETTINGS`."""
    return TwinTruth(TwinSettings.parse(settings))
