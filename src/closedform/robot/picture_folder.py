"""PictureFolder: a camera that plays the pictures of a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from closedform.errors import ConfigError, DataError
from closedform.robot.interfaces import Clock
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.picture_files import picture_paths, read_picture
from closedform.vision.video_camera import wrong_size


class PictureFolder:
    """Plays pictures in the order of their names, the last one forever.

    Args:
        folder: with the pictures.
        intrinsics: as calibrated; pictures of another size are refused.
        clock: by whose time they are played.
        fps: pictures a second.
    """

    def __init__(self, folder: Path, intrinsics: Intrinsics, clock: Clock, fps: float = 30.0):
        if not (np.isfinite(fps) and fps > 0):
            raise ConfigError(f"expected pictures a second above 0, found {fps}")
        self._paths, self._intrinsics, self._clock, self._fps = picture_paths(folder), intrinsics, clock, fps
        self._begun = clock.now()
        self._last: tuple[int, Image] | None = None

    @property
    def intrinsics(self) -> Intrinsics:
        """Size, camera matrix and distortion."""
        return self._intrinsics

    def grab(self) -> Image:
        """The picture that is due now."""
        index = min(int((self._clock.now() - self._begun) * self._fps + 1e-6), len(self._paths) - 1)
        if self._last is None or self._last[0] != index:
            pixels = read_picture(self._paths[index])
            if pixels.shape[1::-1] != tuple(self._intrinsics.size):
                raise DataError(f"{self._paths[index]}: found {wrong_size(pixels, self._intrinsics)}")
            self._last = index, Image(self._begun + index / self._fps, pixels)
        return self._last[1]

    def close(self) -> None:
        """Has nothing to release."""
