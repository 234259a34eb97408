"""VideoCamera: a USB or network camera through OpenCV."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from closedform.errors import ArmError
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.opencv import import_cv2

_PATIENCE = 5.0  # seconds for the first picture


class VideoCamera:
    """Reads a camera in a thread, so that `grab` always returns the newest picture without waiting.

    Args:
        source: the number of a camera (0, 1, ...), a device, a file or an address, as OpenCV takes them.
        intrinsics: as calibrated; pictures of another size are refused.
        latency: seconds from the middle of an exposure until the picture arrives; measure it, see docs/robot.md.
        fps: pictures a second to ask for; None leaves it to the camera.
    """

    def __init__(self, source: int | str, intrinsics: Intrinsics, latency: float = 0.0, fps: float | None = None):
        self._cv2 = import_cv2("a camera")
        self._source, self._intrinsics, self._latency = source, intrinsics, latency
        self._capture = self._open(fps)
        self._condition = threading.Condition()
        self._image: Image | None = None
        self._failure: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="camera", daemon=True)
        self._thread.start()
        with self._condition:
            self._condition.wait_for(lambda: self._image is not None or self._failure is not None, _PATIENCE)
        if self._image is None:
            failure = self._failure or f"no picture within {_PATIENCE:g} s"
            self.close()
            raise ArmError(f"the camera {source!r}: expected pictures, found {failure}")

    @property
    def intrinsics(self) -> Intrinsics:
        """Size, camera matrix and distortion."""
        return self._intrinsics

    def grab(self) -> Image:
        """The newest picture; raises `ArmError` after the camera was disconnected."""
        with self._condition:
            if self._failure is not None or self._image is None:
                raise ArmError(f"the camera {self._source!r}: expected pictures, found {self._failure or 'none'}")
            return self._image

    def close(self) -> None:
        """Releases the camera."""
        self._closed = True
        if self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)
        self._capture.release()

    def _open(self, fps: float | None) -> Any:
        cv2, (width, height) = self._cv2, self._intrinsics.size
        logging = cv2.utils.logging
        level = logging.setLogLevel(logging.LOG_LEVEL_SILENT)  # it would print a page about a camera that is not there
        capture = cv2.VideoCapture(self._source)
        logging.setLogLevel(level)
        if not capture.isOpened():
            raise ArmError(f"the camera {self._source!r}: expected one that can be opened, found none")
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, height)
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        if fps is not None:
            capture.set(cv2.CAP_PROP_FPS, fps)
        return capture

    def _read(self) -> None:
        while not self._closed:
            found, pixels = self._capture.read()
            arrived = time.monotonic()
            with self._condition:
                if not found:
                    self._failure = "none any more: it was disconnected, or the file has ended"
                elif pixels.shape[1::-1] != tuple(self._intrinsics.size):
                    self._failure = wrong_size(pixels, self._intrinsics)
                else:
                    rgb = self._cv2.cvtColor(pixels, self._cv2.COLOR_BGR2RGB)
                    self._image = Image(arrived - self._latency, rgb)
                self._condition.notify_all()
                if self._failure is not None:
                    return


def wrong_size(pixels: np.ndarray, intrinsics: Intrinsics) -> str:
    """What was found instead of pictures of the calibrated size."""
    (height, width), (right, high) = pixels.shape[:2], intrinsics.size
    return f"{width} x {height} pixels instead of the {right} x {high} that it was calibrated with"
