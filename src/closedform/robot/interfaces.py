"""What a policy needs of the world: an arm, a clock, and perception that makes observations of pictures."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from closedform.geometry.layout import Layout
from closedform.vision.camera import Image


class ArmState(NamedTuple):
    """What an arm reports of itself.

    Attributes:
        time: seconds of the arm's clock when it was measured.
        joints: (n,) angles in radians.
        velocities: (n,) in radians a second.
        stopped: None while the arm takes commands, or why it does not ("protective stop", ...).
    """

    time: float
    joints: np.ndarray
    velocities: np.ndarray
    stopped: str | None = None


class Arm(Protocol):
    """An arm whose joints can be servoed."""

    @property
    def n_joints(self) -> int:
        """The number of joints."""
        ...

    def connect(self) -> None:
        """Connects; raises `ArmError` with one clear line where the arm is not ready to move."""
        ...

    def state(self) -> ArmState:
        """The newest state."""
        ...

    def servo(self, joints: np.ndarray, dt: float) -> None:
        """Moves toward joint angles (n,), to be reached after `dt` seconds."""
        ...

    def stop(self) -> None:
        """Comes to a smooth halt."""
        ...

    def recover(self) -> None:
        """Unlocks the arm after a protective stop."""
        ...

    def disconnect(self) -> None:
        """Halts and disconnects; does nothing if it is not connected."""
        ...


class Clock(Protocol):
    """Time that passes by itself (the wall clock) or when somebody sleeps (lockstep)."""

    def now(self) -> float:
        """Seconds."""
        ...

    def sleep_until(self, time: float) -> None:
        """Returns when it is `time`."""
        ...


class Estimate(NamedTuple):
    """An observation made of pictures and of the arm's own state, and how good it is.

    Attributes:
        time: seconds; when the observation holds (now, if the camera's latency is compensated).
        observation: (D_o,), in the policy's units.
        error: how far off it may be, in meters (one standard deviation); infinite before everything was seen once.
        seen: the time of the oldest of the newest sights of each body; `time - seen` is how long one was not seen.
        alarm: what is wrong with it, or "".
    """

    time: float
    observation: np.ndarray
    error: float
    seen: float
    alarm: str = ""


class Perception(Protocol):
    """Makes observations of pictures and of the state of the arm."""

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        ...

    def reset(self) -> None:
        """Forgets what was seen: an episode begins."""
        ...

    def observe(self, image: Image | None, state: ArmState) -> Estimate:
        """The observation at `state.time`; the picture may be older, the same again, or None where there is none."""
        ...
