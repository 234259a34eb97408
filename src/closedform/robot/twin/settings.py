"""TwinSettings: what a cell does to a policy, as numbers that can be varied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from closedform.settings import Range, check_settings, parse_settings


class Conditions(NamedTuple):
    """What was drawn for one episode.

    Attributes:
        friction: between T and table.
        stick_friction: between T and stick.
        mass: of the T, in kilograms.
        offset: (2,) meters by which the table is not where the calibration says.
        angle: radians by which it is turned, about the middle of the workplane.
    """

    friction: float
    stick_friction: float
    mass: float
    offset: np.ndarray
    angle: float


@dataclass(frozen=True)
class TwinSettings:
    """The twin's parameters; those that are ranges are drawn for each episode from its seed.

    Attributes:
        friction: between T and table.
        stick_friction: between T and stick.
        mass: of the T, in kilograms.
        noise: standard deviation of a pixel, in gray levels of 255.
        blur: standard deviation of the lens's blur, in pixels.
        exposure: seconds that a picture is exposed, over which what moves is smeared.
        latency: seconds from the middle of an exposure until the picture can be had.
        fps: pictures a second.
        dropout: probability that a marker is hidden in a picture, by a reflection or a hand.
        calibration_mm: distance by which the table is not where the calibration says, in a random direction.
        calibration_deg: likewise the angle, to either side.
        margin: of the workspace around the square, in meters.
    """

    friction: Range = (0.3, 0.5)
    stick_friction: Range = (0.05, 0.15)
    mass: Range = (0.15, 0.25)
    noise: float = 4.0
    blur: float = 0.6
    exposure: float = 0.005
    latency: float = 0.05
    fps: float = 30.0
    dropout: float = 0.05
    calibration_mm: float = 0.0
    calibration_deg: float = 0.0
    margin: float = 0.06

    def __post_init__(self) -> None:
        check_settings(self, _BOUNDS, "the twin")

    @classmethod
    def parse(cls, text: str) -> TwinSettings:
        """Reads settings such as `latency=0.1,friction=0.3..0.6`; those not named are as by default."""
        return parse_settings(cls, text, "the twin")

    def draw(self, seed: int) -> Conditions:
        """What the episode of a seed is like."""
        rng = np.random.default_rng([0x7717, seed])
        friction, stick, mass = (rng.uniform(*span) for span in (self.friction, self.stick_friction, self.mass))
        direction = rng.uniform(-np.pi, np.pi)
        offset = 1e-3 * self.calibration_mm * np.array([np.cos(direction), np.sin(direction)])
        return Conditions(friction, stick, mass, offset, np.radians(self.calibration_deg) * rng.choice([-1, 1]))


_BOUNDS: dict[str, Range] = {
    "friction": (0.01, 2.0),
    "stick_friction": (0.0, 2.0),
    "mass": (0.01, 5.0),
    "noise": (0.0, 100.0),
    "blur": (0.0, 20.0),
    "exposure": (0.0, 0.1),
    "latency": (0.0, 1.0),
    "fps": (1.0, 400.0),
    "dropout": (0.0, 1.0),
    "calibration_mm": (0.0, 100.0),
    "calibration_deg": (0.0, 45.0),
    "margin": (0.0, 0.1),
}
