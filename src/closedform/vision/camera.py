"""Camera: what delivers pictures, and what is known of its lens."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np


class Intrinsics(NamedTuple):
    """A pinhole camera with OpenCV's distortion.

    Attributes:
        size: width and height in pixels.
        matrix: (3, 3) camera matrix.
        distortion: (5,) k1, k2, p1, p2, k3.
    """

    size: tuple[int, int]
    matrix: np.ndarray
    distortion: np.ndarray


class Image(NamedTuple):
    """A picture and when it was taken: `pixels` (height, width, 3) RGB uint8, `time` of exposure in seconds."""

    time: float
    pixels: np.ndarray


class Camera(Protocol):
    """A camera that delivers its newest picture."""

    @property
    def intrinsics(self) -> Intrinsics:
        """Size, camera matrix and distortion."""
        ...

    def grab(self) -> Image:
        """The newest picture; the same one again if there is none newer."""
        ...

    def close(self) -> None:
        """Releases the camera."""
        ...
