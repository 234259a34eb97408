"""Views: what the camera sees with markers, plan and alarms drawn on it, as a film or live in a browser."""

from __future__ import annotations

import contextlib
import http.server
import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from closedform.deploy.journal import png
from closedform.deploy.perception.marker_perception import MarkerPerception
from closedform.deploy.perception.opencv import import_cv2
from closedform.deploy.perception.projection import project
from closedform.deploy.runner import Step
from closedform.deploy.workplane import Workplane
from closedform.errors import ConfigError
from closedform.evaluation.video import encode, require_av
from closedform.files import check_writable, write_file

_GREEN, _ORANGE, _RED, _WHITE = (40, 200, 80), (255, 150, 30), (230, 40, 40), (255, 255, 255)
_PAGE = b"""<!doctype html><meta charset=utf-8><title>closedform run</title>
<body style="margin:0;background:#222"><img src="/stream" style="width:100%;max-width:1280px">"""
_BOUNDARY = b"picture"


class View(Protocol):
    """Shows steps."""

    def show(self, step: Step) -> None:
        """Shows a step."""
        ...

    def close(self) -> None:
        """Completes the film, or ends the page."""
        ...


class Drawing:
    """Draws on the camera's pictures.

    Args:
        perception: whose markers are outlined.
        plane: that the waypoints lie on.
    """

    def __init__(self, perception: MarkerPerception, plane: Workplane):
        self._tracker, self._plane = perception.tracker, plane
        self._cv2 = import_cv2("a view")

    def draw(self, step: Step) -> np.ndarray:
        """(height, width, 3) uint8: outlines of markers, waypoints, the mode and alarms."""
        cv2, tracker = self._cv2, self._tracker
        if step.image is None:
            return np.zeros((*tracker.intrinsics.size[::-1], 3), np.uint8)
        pixels = step.image.pixels.copy()
        for corners in tracker.found.values():
            cv2.polylines(pixels, [np.round(corners).astype(np.int32)], True, _GREEN, 1, cv2.LINE_AA)
        if step.command is not None and len(step.command.points):
            points = tracker.camera(self._plane.to_base(step.command.points))
            line = np.round(project(tracker.intrinsics, points)[0]).astype(np.int32)
            cv2.polylines(pixels, [line], False, _ORANGE, 2, cv2.LINE_AA)
            cv2.circle(pixels, tuple(map(int, line[0])), 5, _ORANGE, -1, cv2.LINE_AA)
        status, alarm = step.status, step.estimate.alarm or (step.command.alarm if step.command else "")
        text = f"{status.time:.1f} s  {status.mode.name}"
        if step.plan is not None:
            text += f"  distance {step.plan.distance:.2f}"
        self._write(pixels, text, 20, _WHITE)
        for row, words in enumerate(filter(None, (alarm, status.reason))):
            self._write(pixels, words, 42 + 22 * row, _RED)
        return pixels

    def _write(self, pixels: np.ndarray, text: str, y: int, color: tuple[int, int, int]) -> None:
        cv2, font = self._cv2, self._cv2.FONT_HERSHEY_SIMPLEX
        text = text.encode("ascii", "replace").decode()
        cv2.putText(pixels, text, (8, y), font, 0.5, (0, 0, 0), 3, cv2.LINE_AA)
        cv2.putText(pixels, text, (8, y), font, 0.5, color, 1, cv2.LINE_AA)


class Film:
    """Collects pictures and writes an mp4 file when it is closed."""

    def __init__(self, path: Path, drawing: Drawing, rate: float):
        require_av()
        check_writable(path)
        self._path, self._drawing, self._rate = path, drawing, rate
        self._frames: list[np.ndarray] = []

    def show(self, step: Step) -> None:
        """Adds a picture."""
        self._frames.append(self._drawing.draw(step))

    def close(self) -> None:
        """Writes the film."""
        if self._frames:
            write_file(self._path, encode(self._frames, self._rate))


class Page:
    """Shows the newest picture in a browser on this machine, at `address`.

    Args:
        drawing: makes the pictures.
        port: of the page; 0 takes any that is free.
    """

    def __init__(self, drawing: Drawing, port: int = 0):
        self._drawing, self._picture, self._number = drawing, b"", 0
        self._condition, self._closed = threading.Condition(), False
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise ConfigError(f"the view: expected a free port, found {port} taken ({error.strerror})") from error
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/"
        self._thread = threading.Thread(target=self._server.serve_forever, name="closedform-view", daemon=True)
        self._thread.start()

    def show(self, step: Step) -> None:
        """Shows a picture to everybody who looks."""
        with self._condition:
            self._picture, self._number = png(self._drawing.draw(step)), self._number + 1
            self._condition.notify_all()

    def close(self) -> None:
        """Ends the page."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        if request.path != "/stream":
            request.send_header("Content-Type", "text/html")
            request.end_headers()
            request.wfile.write(_PAGE)
            return
        request.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={_BOUNDARY.decode()}")
        request.end_headers()
        seen = 0
        with contextlib.suppress(OSError):  # whoever looked went away
            while True:
                with self._condition:
                    self._condition.wait_for(lambda seen=seen: self._closed or self._number > seen)
                    if self._closed:
                        return
                    picture, seen = self._picture, self._number
                head = b"--" + _BOUNDARY + b"\r\nContent-Type: image/png\r\nContent-Length: "
                request.wfile.write(head + str(len(picture)).encode() + b"\r\n\r\n" + picture + b"\r\n")
