"""FakeUr: a stand-in for the controller box of a UR, to which the unmodified ur_rtde connects.

It speaks RTDE, takes the control script that ur_rtde uploads (and does what that script does, without reading it), and
answers the dashboard's questions. What moves behind it is anything with `state`, `servo` and `stop`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from closedform.robot.drivers.rtde_packets import pack, packet, read_packet, type_of, unpack
from closedform.robot.drivers.ur import DASHBOARD, RTDE, SCRIPT
from closedform.robot.realtime import run_first

_SERVOJ, _SERVO_STOP, _STOP_SCRIPT, _NOTHING = 11, 16, 255, 0
_CONTINUOUS = (9, 10, _SERVOJ, 12)  # which the script follows without saying that it is done
_READY, _DONE = 1, 2  # what the script says
_POWERED, _RUNNING = 1, 2  # bits of the robot's status
_NORMAL, _PROTECTIVE = 1, 4 + 1024  # bits of the safety status
_PRIORITY = 70
_MODES = {"NO_CONTROLLER": -1, "POWER_OFF": 3, "IDLE": 5, "RUNNING": 7}


class FakeBody(Protocol):
    """What moves: joints that can be servoed."""

    def state(self) -> Any:
        """With `joints` and `velocities` (6,)."""
        ...

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Moves toward joint angles (6,)."""
        ...

    def stop(self) -> None:
        """Comes to a halt."""
        ...


class FakeUr:
    """A controller box on an address of this machine; every test takes one of its own, such as 127.0.0.17.

    Args:
        host: the address to listen on; the ports are those of a real one.
        body: what moves.
        frequency: of the states that it sends.
        realtime: whether to ask for real-time scheduling of what a real box does in real time.

    Attributes:
        mode: `RUNNING`, `IDLE`, `POWER_OFF` or `NO_CONTROLLER`.
        remote: whether it is in remote control.
        protective: whether it is in a protective stop; see `protective_stop`.
        locked: whether unlocking is refused, as within five seconds of a real protective stop.
        running: whether the control script runs.
        commands: (joints, time) of every `servoj` that arrived.
        log: what happened, in words.
    """

    def __init__(self, host: str, body: FakeBody, frequency: float = 125.0, *, realtime: bool = False):
        self.host, self.body, self._frequency, self._realtime = host, body, frequency, realtime
        self.mode, self.remote, self.protective, self.locked, self.running = "RUNNING", True, False, False, False
        self.commands: list[tuple[np.ndarray, float]] = []
        self.log: list[str] = []
        self._said = _READY
        self._lock, self._closed = threading.RLock(), False
        self._listeners: list[socket.socket] = []
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begun = time.monotonic()

    def start(self) -> FakeUr:
        """Listens on the three ports."""
        self._closed = False
        for port, serve in ((DASHBOARD, self._dashboard), (SCRIPT, self._script), (RTDE, self._rtde)):
            listener = socket.create_server((self.host, port), reuse_port=False)
            self._listeners.append(listener)
            self._spawn(self._accept, listener, serve)
        return self

    def stop(self) -> None:
        """Drops all connections and listens no more: the cable is pulled."""
        with self._lock:
            self._closed = True
            for connection in (*self._listeners, *self._connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            self._listeners, self._connections, self.running = [], [], False
        for thread in self._threads:
            thread.join(5.0)
        self._threads = []

    def __enter__(self) -> FakeUr:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def protective_stop(self) -> None:
        """Stops the arm and the script, as after a collision."""
        with self._lock:
            self.protective, self.running = True, False
            self.body.stop()
            self.log.append("protective stop")

    def _spawn(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True, name="closedform-fake-ur")
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            while not self._closed:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._connections.append(connection)
                self._spawn(self._serve, serve, connection)

    def _serve(self, serve: Callable[[socket.socket], None], connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError), connection:
            serve(connection)

    def _dashboard(self, connection: socket.socket) -> None:
        connection.sendall(b"Connected: Universal Robots Dashboard Server\n")
        for line in connection.makefile("r", encoding="utf-8"):
            connection.sendall(f"{self._answer(line.strip())}\n".encode())

    def _answer(self, question: str) -> str:
        with self._lock:
            safety = "PROTECTIVE_STOP" if self.protective else "NORMAL"
            if question == "stop":
                self.running = False
            if question == "unlock protective stop" and self.protective:
                if self.locked:
                    return "Cannot unlock protective stop until 5s after occurrence."
                self.protective = False
                self.log.append("unlocked")
                return "Protective stop releasing"
            answers = {
                "PolyscopeVersion": "URSoftware 5.11.6.1010000 (Aug 01 2022)",
                "get serial number": "20225500001",
                "get robot model": "UR5",
                "is in remote control": str(self.remote).lower(),
                "robotmode": f"Robotmode: {self.mode}",
                "safetymode": f"Safetymode: {safety}",
                "safetystatus": f"Safetystatus: {safety}",
                "running": f"Program running: {str(self.running).lower()}",
                "close safety popup": "closing safety popup",
                "stop": "Stopped",
            }
            return answers.get(question, f"could not understand: '{question}'")

    def _script(self, connection: socket.socket) -> None:
        text = b""
        while chunk := connection.recv(65536):
            text += chunk
            if text.rstrip().endswith(b"end"):
                with self._lock:
                    self.running, self._said = self.remote and not self.protective and self.mode == "RUNNING", _READY
                    self.log.append(f"script of {len(text) // 1000} kB")
                text = b""

    def _rtde(self, connection: socket.socket) -> None:
        if self._realtime:
            run_first(_PRIORITY)
        stream = connection.makefile("rb")
        inputs: dict[int, list[str]] = {}
        outputs: list[str] = []
        while True:
            kind, content = read_packet(stream)
            if kind == "V":
                connection.sendall(packet("V", b"\1"))
            elif kind == "v":
                connection.sendall(packet("v", struct.pack(">4I", 5, 11, 6, 1010000)))
            elif kind in "OI":
                names = [name for name in content[8 if kind == "O" else 0 :].decode().split(",") if name]
                number = 0 if kind == "O" else len(inputs) + 1
                if kind == "O":
                    outputs, number = names, 1
                else:
                    inputs[number] = names
                types = ",".join(type_of(name) for name in names)
                connection.sendall(packet(kind, bytes([number]) + types.encode()))
            elif kind == "S":
                connection.sendall(packet("S", b"\1"))
                self._spawn(self._serve, lambda c, names=outputs: self._send_states(c, names), connection)
            elif kind == "P":
                connection.sendall(packet("P", b"\1"))
            elif kind == "U":
                self._obey(unpack(inputs[content[0]], content[1:]))

    def _send_states(self, connection: socket.socket, names: list[str]) -> None:
        if self._realtime:
            run_first(_PRIORITY)
        due = time.monotonic()
        while not self._closed:
            connection.sendall(packet("U", b"\1" + pack(names, self._values())))
            due = max(due + 1 / self._frequency, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))

    def _values(self) -> dict[str, Any]:
        with self._lock:
            state = self.body.state()
            return {
                "timestamp": time.monotonic() - self._begun,
                "actual_q": state.joints,
                "actual_qd": state.velocities,
                "target_q": state.joints,
                "robot_mode": _MODES[self.mode],
                "safety_mode": 3 if self.protective else 1,
                "robot_status_bits": _POWERED + _RUNNING * self.running,
                "safety_status_bits": _PROTECTIVE if self.protective else _NORMAL,
                "runtime_state": 2 if self.running else 1,
                "speed_scaling": 1.0,
                "output_int_register_0": self._said,
            }

    def _obey(self, values: dict[str, Any]) -> None:
        """Does what the control script does with what is written to the registers."""
        with self._lock:
            command = values.get("input_int_register_0")
            if command == _NOTHING:
                self._said = _READY
            if not self.running or command in (None, _NOTHING):
                return
            if command == _SERVOJ:
                joints = np.array([values[f"input_double_register_{i}"] for i in range(6)])
                within = values["input_double_register_8"]
                self.commands.append((joints, time.monotonic()))
                self.body.servo(joints, within)
            elif command == _SERVO_STOP:
                self.body.stop()
                self.log.append("servo stop")
            elif command == _STOP_SCRIPT:
                self.running = False
                self.log.append("script stopped")
            if command not in _CONTINUOUS:
                self._said = _DONE
