"""PictureWatch: notices a camera that repeats its picture, and time stamps that are not of the present."""

from __future__ import annotations

import numpy as np

from closedform.errors import ArmError
from closedform.robot.interfaces import ArmState
from closedform.vision.camera import Image

_AHEAD = 0.1  # seconds by which clocks may differ
_MOVED = 0.01  # radians of a joint, which every picture of an arm shows


class PictureWatch:
    """Looks at pictures before perception does.

    A camera that froze may go on giving its picture new time stamps. Pictures of a real camera are never the same
    twice, those of a simulated one while nothing moves; so a picture that is the same to the bit although the arm has
    moved is that of the first time it was seen.
    """

    def __init__(self) -> None:
        self._first: tuple[Image, np.ndarray] | None = None
        self._moved = False

    def look(self, image: Image, state: ArmState, now: float) -> Image:
        """The picture, with the time that it is really of; an `ArmError` if it is from the future.

        Args:
            image: the newest one.
            state: of the arm.
            now: seconds of the clock that pictures are timed with.
        """
        if not image.time <= now + _AHEAD:
            raise ArmError(
                f"the camera: expected pictures of the present, found one from {image.time - now:.3g} s ahead; does "
                "its clock agree with this computer's?"
            )
        if self._first is None or not np.array_equal(self._first[0].pixels, image.pixels):
            self._first, self._moved = (image, state.joints), False
            return image
        first, joints = self._first
        self._moved = self._moved or bool(np.abs(state.joints - joints).max() > _MOVED)
        return first if self._moved else image

    def age(self, now: float) -> float:
        """Seconds since the picture that is repeated; 0 if none is."""
        return now - self._first[0].time if self._moved and self._first is not None else 0.0
