"""Person: demonstrates Push-T in the studio, or watches the policy and takes over where it is stuck."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.studio.pusher import Pusher, error_of

PATIENCE = 60  # steps without progress, after which the person takes over
_PROGRESS = 3.0  # pixels of the error that count as progress


class Person:
    """Looks at the frames of a page, and says where to hold the mouse.

    Args:
        seed: of the person and the episode; see `Pusher`.
        patient: whether to let the policy drive until it makes no progress; otherwise the person drives from the start.

    Attributes:
        patient: as given.
    """

    def __init__(self, seed: Sequence[int], *, patient: bool):
        self._pusher, self.patient = Pusher(seed), patient
        self._drives, self._best, self._since = not patient, np.inf, 0

    def point(self, frame: dict[str, Any]) -> tuple[float, float] | None:
        """Where to hold the mouse at a frame; None to let go."""
        if frame["outcome"]:
            return None
        state = np.array([*frame["poses"]["agent"][:2], *frame["poses"]["block"]])
        error = float(np.linalg.norm(error_of(state[2:])))
        if error < self._best - _PROGRESS:
            self._best, self._since = error, frame["step"]
        if frame["step"] - self._since >= PATIENCE:
            self._drives = True
        if not self._drives:
            return None
        x, y = self._pusher.target(state)
        return float(x), float(y)
