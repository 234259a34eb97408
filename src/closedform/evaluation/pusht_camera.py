"""Pictures of Push-T as a camera takes them: with noise, a shadow, a pattern on the table, or in another light."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.evaluation.pusht import PICTURE_SIZE
from closedform.settings import check_settings, parse_settings

_BOUNDS = {"noise": (0.0, 60.0), "shadow": (0.0, 0.9), "pattern": (0.0, 0.9), "light": (0.3, 1.5)}
_WHITE = 250  # of 255: the table


@dataclass(frozen=True)
class CameraSettings:
    """What is different from the simulator's clean pictures.

    Attributes:
        noise: standard deviation of a pixel, in levels of 255.
        shadow: how much darker the right edge of the scene is than the left one, as a fraction.
        pattern: how much darker the darkest spots of a patterned table are, as a fraction.
        light: brightness while a policy runs, relative to that while its view was learned.
    """

    noise: float = 0.0
    shadow: float = 0.0
    pattern: float = 0.0
    light: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, _BOUNDS, "the camera")

    @classmethod
    def parse(cls, text: str) -> CameraSettings:
        """Reads settings such as `noise=8,light=0.8`; those not named are as by default."""
        return parse_settings(cls, text, "the camera")

    def take(self, clean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The picture that the camera takes of a scene whose clean picture is given."""
        if self == CameraSettings():
            return clean
        picture = clean.astype(np.float32)
        if self.pattern:
            table = (clean.min(axis=-1) >= _WHITE)[..., None]
            picture = np.where(table, picture * (1 - self.pattern * _spots()[..., None]), picture)
        dark = 1 - self.shadow * np.linspace(0, 1, clean.shape[1], dtype=np.float32)
        picture = picture * (self.light * dark[None, :, None]) + self.noise * rng.standard_normal(clean.shape)
        return np.clip(picture, 0, 255).astype(np.uint8)


def _spots() -> np.ndarray:
    """(96, 96), smooth spots from 0 to 1, always the same."""
    rng, grid = np.random.default_rng(7), np.arange(PICTURE_SIZE) / PICTURE_SIZE
    waves = sum(
        np.sin(2 * np.pi * (rng.uniform(1, 6) * grid[:, None] + rng.uniform(1, 6) * grid + rng.uniform()))
        for _ in range(8)
    )
    return ((waves - np.min(waves)) / np.ptp(waves)).astype(np.float32)
