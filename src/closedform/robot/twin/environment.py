"""The environments `twin` and `twin_truth`: Push-T with the twin's arm, at 10 Hz over 200 Hz, in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.errors import ConfigError
from closedform.evaluation.environment import StepResult
from closedform.evaluation.pusht import THRESHOLD
from closedform.robot.clocks import LockstepClock
from closedform.robot.command import Command, Mode
from closedform.robot.controller import Controller
from closedform.robot.interfaces import Estimate
from closedform.robot.twin.camera import make_renderer, render
from closedform.robot.twin.place import CAMERA_SIZE
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station
from closedform.robot.twin.world import load_mujoco
from closedform.vision.opencv import import_cv2


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
    _pictures = False

    def __init__(self, settings: TwinSettings | None = None):
        self.station = Station(settings, pictures=self._pictures)
        self._renderer: Any = None
        self._controller: Controller | None = None

    @classmethod
    def check_installed(cls) -> None:
        """Raises `MissingExtraError` without MuJoCo or OpenCV."""
        load_mujoco()
        import_cv2("the twin")

    def reset(self, seed: int) -> np.ndarray:
        """Starts from Diffusion Policy's start state for a seed; evaluations use seeds from 100000."""
        return self._start(seed, None)

    def start(self, state: np.ndarray, seed: int = 0) -> np.ndarray:
        """Starts from a state (5,) of gym-pusht, with the friction, mass and noise of a seed."""
        return self._start(seed, np.asarray(state, float))

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the stick's target to a position (2,) for a tenth of a second."""
        self._move(np.asarray(action, float))
        covered = self.station.coverage()
        success = covered > THRESHOLD
        return StepResult(self._observe(), min(covered / THRESHOLD, 1.0), success, success)

    def render(self) -> np.ndarray:
        """The scene as the camera sees it, without its flaws but with shadows."""
        world = self.station.world
        if self._renderer is None:
            width, height = CAMERA_SIZE
            self._renderer = make_renderer(world, (2 * width, 2 * height))
        world.advance()
        large = render(world, self._renderer, world.data, shadows=True)
        parts = large.reshape(large.shape[0] // 2, 2, large.shape[1] // 2, 2, 3)
        return np.round(parts.mean(axis=(1, 3))).astype(np.uint8)  # smooth edges

    def close(self) -> None:
        """Releases the renderers."""
        self.station.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _start(self, seed: int, state: np.ndarray | None) -> np.ndarray:
        station = self.station
        station.follow(LockstepClock())  # from zero: differences of other times are rounded otherwise
        station.place(seed, state)
        self._controller = Controller(station.kinematics, station.config, station.workspace)
        self._n_steps = 0
        return self._observe()

    def _move(self, target: np.ndarray) -> None:
        station, controller = self.station, self._controller
        if controller is None:
            raise ConfigError("expected a running episode, found none: call reset before step")
        clock, config, now = station.clock, station.config, station.clock.now()
        self._n_steps += 1
        point = station.plane.to_points(target, config.height)
        command = Command(self._n_steps, now, Mode.RUN, np.array([now]), point[None])
        for tick in range(round(1 / (self.rate * config.period))):
            decided = controller.tick(clock.now(), command, station.arm.state())
            if decided.send:
                station.arm.servo(decided.joints, config.period)
            clock.sleep_until(now + (tick + 1) * config.period)

    def _observe(self) -> np.ndarray:
        return self.station.observation()


class Twin(TwinTruth):
    """Push-T on the twin's table, with the T's pose from rendered pictures; see `TwinTruth`.

    While the T is lost from sight the stick stands still, as it does on a real arm.

    Attributes:
        estimate: how good the last observation is.
    """

    _pictures = True
    estimate: Estimate

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the stick's target to a position (2,) for a tenth of a second."""
        here = self.estimate.observation[:2]
        return super().step(here if self.estimate.alarm else action)

    def _observe(self) -> np.ndarray:
        station = self.station
        self.estimate = station.perception.observe(station.camera.grab(), station.arm.state())
        return self.estimate.observation


def make(settings: str) -> Twin:
    """The environment `twin:SETTINGS`; see `TwinSettings.parse`."""
    return Twin(TwinSettings.parse(settings))


def make_truth(settings: str) -> TwinTruth:
    """The environment `twin_truth:SETTINGS`."""
    return TwinTruth(TwinSettings.parse(settings))
