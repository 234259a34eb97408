"""SharedCamera: pictures that another process takes, through shared memory."""

from __future__ import annotations

import struct

import numpy as np

from closedform.errors import ArmError
from closedform.robot.mailbox import Mailbox
from closedform.vision.camera import Image, Intrinsics

_HEAD = struct.Struct("=dII")  # time, height and width


def picture_box(size: tuple[int, int], name: str | None = None) -> Mailbox:
    """A mailbox for pictures of a size (width, height); see `Mailbox`."""
    return Mailbox(_HEAD.size + 3 * size[0] * size[1], name)


def post(box: Mailbox, image: Image) -> None:
    """Puts a picture into a mailbox."""
    height, width, _ = image.pixels.shape
    box.write(_HEAD.pack(image.time, height, width) + np.ascontiguousarray(image.pixels, np.uint8).tobytes())


class SharedCamera:
    """A camera whose pictures another process posts.

    Args:
        box: see `picture_box`; it is closed with the camera.
        intrinsics: of the camera.
    """

    def __init__(self, box: Mailbox, intrinsics: Intrinsics):
        self._box, self._intrinsics = box, intrinsics
        self._last: tuple[int, Image] | None = None

    @property
    def name(self) -> str:
        """Of the shared memory, by which other processes attach to it."""
        return self._box.name

    @property
    def intrinsics(self) -> Intrinsics:
        """Size, camera matrix and distortion."""
        return self._intrinsics

    def grab(self) -> Image:
        """The newest picture; the same one again if there is none newer."""
        found = self._box.read()
        if found is None:
            raise ArmError("the camera: expected pictures, found none")
        number, message = found
        if self._last is None or self._last[0] != number:
            time, height, width = _HEAD.unpack_from(message)
            pixels = np.frombuffer(message, np.uint8, offset=_HEAD.size).reshape(height, width, 3)
            self._last = number, Image(time, pixels)
        return self._last[1]

    def close(self) -> None:
        """Releases the memory."""
        self._box.close()
