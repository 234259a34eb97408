"""UrArm: an arm of Universal Robots, through ur_rtde."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from closedform.errors import ArmError, ConfigError, MissingExtraError
from closedform.robot.interfaces import ArmState

DASHBOARD, SCRIPT, RTDE = 29999, 30003, 30004
_ANSWER = 2.0  # seconds in which a host has to answer
_UPLOAD = 5.0  # seconds in which the control script has to run
_SETTLED = 0.3  # seconds after an upload before which commands are ignored
_PROGRAM_RUNNING = 2  # bit of the robot's status
_STOPPING = 8.0  # rad/s^2 of `servoStop`


class UrArm:
    """A UR3 to UR30, servoed with `servoj`.

    The states of the arm come at 500 Hz on an e-Series. `servo` returns at once: the arm moves on while the next
    command is calculated, and holds its last target if none comes.

    Args:
        host: name or address of the robot.
        frequency: of the states and commands; 500 for an e-Series, 125 for a CB3.
        lookahead: seconds by which `servoj` smooths the path, 0.03 to 0.2.
        gain: of `servoj`, 100 to 2000.
        silence: seconds without a state after which the connection counts as lost.
        clock: of the times of states; the machine's monotonic one, as `WallClock`.
    """

    n_joints = 6

    def __init__(
        self,
        host: str,
        *,
        frequency: float = 500.0,
        lookahead: float = 0.05,
        gain: float = 500.0,
        silence: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
    ):
        if not 0.03 <= lookahead <= 0.2 or not 100 <= gain <= 2000:
            raise ConfigError(
                f"lookahead and gain: expected 0.03 to 0.2 s and 100 to 2000, found {lookahead!r} and {gain!r}"
            )
        self.host, self._frequency, self._lookahead, self._gain = host, frequency, lookahead, gain
        self._clock, self._silence = clock, silence
        self._control: Any = None
        self._receive: Any = None
        self._stamp, self._heard = -1.0, 0.0
        self._joints, self._velocities = np.zeros(6), np.zeros(6)

    def connect(self) -> None:
        """Connects and starts the control script; the robot must be switched on, ready, and in remote control."""
        control, receive = require_ur_rtde()
        for port in (DASHBOARD, SCRIPT, RTDE):
            _check_port(self.host, port)
        with _as_arm_errors(self.host):
            check_mode(Dashboard(self.host))
            self._receive = receive.RTDEReceiveInterface(self.host, self._frequency)
            self._control = control.RTDEControlInterface(self.host, self._frequency)
        self._wait_for_script()
        self._heard = self._clock()
        if self.state().stopped:
            problem = self.state().stopped
            self.disconnect()
            raise ArmError(f"the robot at {self.host} is not ready to move: {problem}")

    def state(self) -> ArmState:
        """The newest state; its time is when it arrived."""
        receive, now = self._connected(self._receive), self._clock()
        with contextlib.suppress(RuntimeError):  # says that the connection is lost, which the silence says as well
            stamp = receive.getTimestamp()
            if stamp != self._stamp:
                self._joints, self._velocities = np.array(receive.getActualQ()), np.array(receive.getActualQd())
                self._stamp, self._heard = stamp, now
        return ArmState(self._heard, self._joints, self._velocities, self._stopped(now))

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Moves toward joint angles (6,), to be reached after `dt` seconds."""
        control = self._connected(self._control)
        with _as_arm_errors(self.host):
            control.servoJ(joints.tolist(), 0.0, 0.0, dt, self._lookahead, self._gain)

    def stop(self) -> None:
        """Comes to a smooth halt; does nothing if the robot stopped by itself."""
        if self._control is not None and not self._stopped(self._clock()):
            with _as_arm_errors(self.host):
                self._control.servoStop(_STOPPING)

    def recover(self) -> None:
        """Unlocks the robot after a protective stop, or connects again, and starts the control script."""
        control, receive = self._connected(self._control), self._connected(self._receive)
        with _as_arm_errors(self.host):
            if not receive.isConnected() or self._clock() - self._heard > self._silence:
                _check_port(self.host, RTDE)
                self.disconnect()
                self.connect()
                return
            if receive.isEmergencyStopped():
                raise ArmError("the emergency stop is pressed: release it and switch the robot on by hand")
            if receive.isProtectiveStopped():
                dashboard = Dashboard(self.host)
                dashboard.ask("close safety popup")
                answer = dashboard.ask("unlock protective stop")
                if not answer.startswith("Protective stop releasing"):
                    raise ArmError(f"the robot at {self.host} stays stopped: {answer}")
                self._wait(lambda: not receive.isProtectiveStopped(), "the protective stop to be released")
            control.reuploadScript()
        self._wait_for_script()

    def disconnect(self) -> None:
        """Halts and disconnects; does nothing if it is not connected."""
        control, receive = self._control, self._receive
        with contextlib.suppress(ArmError):
            self.stop()
        self._control = self._receive = None
        for interface, last in ((control, "stopScript"), (receive, None)):
            with contextlib.suppress(RuntimeError):
                if interface is not None and interface.isConnected():
                    if last is not None:
                        getattr(interface, last)()
                    interface.disconnect()

    def _stopped(self, now: float) -> str | None:
        receive = self._receive
        running = self._script_runs()  # asked first: what stopped the script is then known as well
        if now - self._heard > self._silence or not receive.isConnected():
            return f"lost connection to {self.host}"
        if receive.isEmergencyStopped():
            return "emergency stop"
        if receive.isProtectiveStopped():
            return "protective stop"
        if not running:
            return "the control script on the robot ended"
        return None

    def _wait_for_script(self) -> None:
        self._wait(lambda: self._control.isProgramRunning() and self._script_runs(), "the control script to run")
        time.sleep(_SETTLED)

    def _script_runs(self) -> bool:
        """As the receiving connection says, which also says why not; the controlling one may be ahead of it."""
        return bool(self._receive.getRobotStatus() & _PROGRAM_RUNNING)

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _UPLOAD
        while not ready():
            if time.monotonic() > end:
                raise ArmError(f"the robot at {self.host}: expected {what} within {_UPLOAD:g} s, found that it did not")
            time.sleep(0.02)

    def _connected(self, interface: Any) -> Any:
        if interface is None:
            raise ArmError("the arm is not connected: call connect first")
        return interface


class Dashboard:
    """The dashboard server of a robot: a line asked, a line answered."""

    def __init__(self, host: str):
        self._host = host

    def ask(self, command: str) -> str:
        """The answer to a command."""
        try:
            with socket.create_connection((self._host, DASHBOARD), _ANSWER) as connection:
                lines = connection.makefile("r", encoding="utf-8", errors="replace")
                lines.readline()  # its greeting
                connection.sendall(f"{command}\n".encode())
                return lines.readline().strip()
        except OSError as error:
            raise ArmError(f"the robot at {self._host}: expected an answer to '{command}', found {error}") from error


def check_mode(dashboard: Dashboard) -> None:
    """Refuses a robot that is not switched on, not in remote control, or stopped, and says what to do about it."""
    mode = dashboard.ask("robotmode").removeprefix("Robotmode: ")
    if mode != "RUNNING":
        raise ArmError(
            f"wrong mode: expected a robot that is RUNNING, found {mode or 'no answer'}; switch it on and release its "
            "brakes on the teach pendant"
        )
    safety = dashboard.ask("safetystatus").removeprefix("Safetystatus: ")
    if safety not in ("NORMAL", "REDUCED"):
        raise ArmError(f"wrong mode: expected the safety status NORMAL, found {safety}; clear it on the teach pendant")
    remote = dashboard.ask("is in remote control")
    if remote.lower() == "false":
        raise ArmError(
            "wrong mode: expected remote control, found local control; switch it at the top right of the teach pendant"
        )


def _check_port(host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), _ANSWER).close()
    except OSError as error:
        raise ArmError(
            f"{host}: expected a robot that answers on port {port}, found {error.strerror or error}; is it "
            "switched on, and in this network?"
        ) from error


@contextlib.contextmanager
def _as_arm_errors(host: str) -> Iterator[None]:
    """Turns what ur_rtde raises into `ArmError`."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise ArmError(f"the robot at {host}: {error}") from error


def require_ur_rtde() -> tuple[Any, Any]:
    """The modules `rtde_control` and `rtde_receive`; raises `MissingExtraError` without them."""
    try:
        import rtde_control
        import rtde_receive
    except ImportError as error:
        raise MissingExtraError("ur_rtde", "ur", "the arm 'ur' (wheels: Python 3.11 and 3.12, x86-64)") from error
    return rtde_control, rtde_receive
