"""Views: what the camera sees with markers, plan and alarms drawn on it, as a film; `Page` shows it in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from closedform.evaluation.video import encode, require_av
from closedform.files import check_writable, write_file
from closedform.robot.marker_perception import MarkerPerception
from closedform.robot.runner import RunStep
from closedform.robot.workplane import Workplane
from closedform.vision.opencv import import_cv2
from closedform.vision.pinhole import project

_QUALITY = 90  # of a picture that waits to be a film's
_GREEN, _ORANGE, _RED, _WHITE = (40, 200, 80), (255, 150, 30), (230, 40, 40), (255, 255, 255)


class View(Protocol):
    """Shows steps."""

    def show(self, step: RunStep) -> None:
        """Shows a step."""
        ...

    def close(self) -> None:
        """Completes the film, or ends the page."""
        ...


class Overlay:
    """Draws on the camera's pictures.

    Args:
        perception: whose markers are outlined.
        plane: that the waypoints lie on.
    """

    def __init__(self, perception: MarkerPerception, plane: Workplane):
        self._tracker, self._plane = perception.tracker, plane
        self._cv2 = import_cv2("a view")

    def draw(self, step: RunStep) -> np.ndarray:
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
        text = f"step {step.number}  {status.mode.name}"
        if step.plan is not None:
            text += f"  distance {step.plan.distance:.2f}"
        elif step.command is not None:
            text += "  by hand"
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
    """Collects pictures and writes an mp4 file when it is closed.

    They are kept as JPEG until then: plain ones of an hour take 30 GB, and H.264 takes too long for a control step.
    """

    def __init__(self, path: Path, drawing: Overlay, rate: float):
        require_av()
        check_writable(path)
        self._path, self._drawing, self._rate = path, drawing, rate
        self._cv2 = import_cv2("a view")
        self._frames: list[np.ndarray] = []

    def show(self, step: RunStep) -> None:
        """Adds a picture."""
        cv2 = self._cv2
        self._frames.append(cv2.imencode(".jpg", self._drawing.draw(step), [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1])

    def close(self) -> None:
        """Writes the film."""
        if self._frames:
            frames = (self._cv2.imdecode(frame, self._cv2.IMREAD_COLOR) for frame in self._frames)
            write_file(self._path, encode(frames, self._rate))
