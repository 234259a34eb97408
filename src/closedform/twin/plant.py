"""Plant: the twin on the wall clock in a process of its own, behind a fake UR controller and a camera."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from closedform.demos.catalog import PUSHT_OBSERVATIONS
from closedform.deploy.clocks import WallClock
from closedform.deploy.control_config import ControlConfig, Workspace
from closedform.deploy.drivers.fake_ur import FakeUr
from closedform.deploy.interfaces import Image
from closedform.deploy.perception.extrinsics import find_camera
from closedform.deploy.perception.marker_perception import MarkerPerception
from closedform.deploy.perception.tracker import MarkerTracker
from closedform.deploy.shared_camera import SharedCamera, picture_box, post
from closedform.errors import ArmError, ClosedFormError
from closedform.twin.arm import TwinArm
from closedform.twin.camera import twin_intrinsics
from closedform.twin.place import CAMERA_SIZE, KINEMATICS, PLANE, SIDE, twin_cell
from closedform.twin.settings import TwinSettings
from closedform.twin.station import Station

SILENCE = 0.5  # seconds without a state after which the connection counts as lost
_SMOOTHED = 0.02  # seconds over which a command is approached, so that commands that arrive together do no harm
_STARTED = 120.0  # seconds
_N_PICTURES = 5  # that the camera's place is found from


class Plant:
    """The twin as a real cell looks to a program: a controller box on the network, and a camera.

    Only time tells it from the lockstep twin: it passes by itself. `place` begins an episode and puts the arm
    elsewhere, so that the arm's controller has to be started after it. The states of a simulated box on a busy machine
    may come late; `config` has patience.

    Args:
        host: loopback address of the controller box, such as 127.0.0.17.
        settings: of the twin.
        frequency: of the states that the box sends.

    Attributes:
        camera: its pictures; observations are made of them with `perception`.
        kinematics, plane, config, workspace: of the arm's controller.
    """

    def __init__(self, host: str, settings: TwinSettings | None = None, *, frequency: float = 500.0):
        self.host, self.settings, self.config = host, settings or TwinSettings(), ControlConfig(state_timeout=SILENCE)
        self.kinematics, self.plane = KINEMATICS, PLANE
        reach = np.array([[0.0, 0.0], [SIDE, SIDE]]) / PLANE.scale
        self.workspace = Workspace.around(PLANE, reach, self.settings.margin, self.config)
        box = picture_box(CAMERA_SIZE)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(host, self.settings, frequency, box.name, theirs),
            name="closedform-plant",
            daemon=True,
        )
        self.camera = SharedCamera(box, twin_intrinsics())
        try:
            self._process.start()
            theirs.close()
            self._answer(_STARTED)
            self.perception = self._look()
        except BaseException:
            self.close()
            raise

    def place(self, seed: int) -> None:
        """Begins an episode of Push-T."""
        self._ask("place", seed)

    def coverage(self) -> float:
        """The fraction of the outline that the T really covers now."""
        return float(self._ask("coverage"))

    def freeze(self, frozen: bool = True) -> None:
        """Lets the camera deliver no more pictures, or again."""
        self._ask("freeze", frozen)

    def protective_stop(self) -> None:
        """Stops the arm as after a collision."""
        self._ask("protective_stop")

    def commands(self) -> np.ndarray:
        """(n, 7), the joints of each `servoj` that arrived since `place`, and when."""
        return self._ask("commands")

    def facts(self) -> dict[str, Any]:
        """What another process needs to run a policy here; `box` is the name of the camera's shared memory."""
        return {
            "host": self.host,
            "box": self.camera.name,
            "intrinsics": self.camera.intrinsics,
            "cell": self.perception.tracker.cell,
            "camera": self.perception.tracker.camera,
            "kinematics": self.kinematics,
            "config": self.config,
            "workspace": self.workspace,
        }

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        if self._process.pid is not None:
            self._process.join(10.0)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
        self.camera.close()

    def _look(self) -> MarkerPerception:
        cell, pictures, end = twin_cell(), list[Image](), time.monotonic() + _STARTED
        while len(pictures) < _N_PICTURES and time.monotonic() < end:
            image = self.camera.grab()
            if not pictures or image.time > pictures[-1].time:
                pictures.append(image)
            time.sleep(0.02)
        found = find_camera(cell, self.camera.intrinsics, pictures)
        tracker = MarkerTracker(cell, self.camera.intrinsics, found.pose)
        return MarkerPerception(PUSHT_OBSERVATIONS, "agent", tracker, KINEMATICS, PLANE)

    def _ask(self, name: str, *arguments: Any) -> Any:
        self._pipe.send((name, arguments))
        return self._answer(_STARTED)

    def _answer(self, patience: float) -> Any:
        try:
            answer = self._pipe.recv() if self._pipe.poll(patience) else ArmError("the twin does not answer")
        except EOFError:
            answer = ArmError("the twin's process ended")
        if isinstance(answer, Exception):
            raise answer
        return answer


class _Body:
    """The twin's arm as what moves behind the controller box."""

    def __init__(self, arm: TwinArm):
        self._arm = arm

    def state(self) -> Any:
        """With joints and velocities."""
        return self._arm.state()

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Moves toward joints, as smoothly as `servoj` does."""
        self._arm.servo(joints, max(dt, _SMOOTHED))

    def stop(self) -> None:
        """Comes to a halt."""
        self._arm.stop()


def _serve(host: str, settings: TwinSettings, frequency: float, name: str, pipe: Connection) -> None:
    """What the process does: pictures and answers, beside the threads of the controller box."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    box = picture_box(CAMERA_SIZE, name)
    try:
        with contextlib.closing(Station(settings, WallClock())) as station:
            station.place(0)
            fake = FakeUr(host, _Body(station.arm), frequency, realtime=True)
            with fake:
                _publish(station, fake, box, pipe)
    except (ClosedFormError, OSError) as error:
        with contextlib.suppress(OSError):
            pipe.send(ArmError(f"the twin at {host}: {error}"))
    finally:
        box.close()


def _publish(station: Station, fake: FakeUr, box: Any, pipe: Connection) -> None:
    posted, frozen, told = -np.inf, False, False
    while True:
        image = station.camera.grab()
        if image.time > posted and not frozen:
            posted = image.time
            post(box, image)
        if not told:
            pipe.send("ready")
            told = True
        try:
            if not pipe.poll(0.005):
                continue
            question, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        if question == "freeze":
            (frozen,) = arguments
            pipe.send(None)
        else:
            pipe.send(_answer_to(question, arguments, station, fake))


def _answer_to(question: str, arguments: tuple[Any, ...], station: Station, fake: FakeUr) -> Any:
    if question == "place":
        station.place(*arguments)
        fake.commands.clear()
        return None
    if question == "coverage":
        return station.coverage()
    if question == "protective_stop":
        return fake.protective_stop()
    return np.array([[*joints, when] for joints, when in fake.commands]).reshape(-1, 7)
