"""Encoder: maps of pictures, a picture's worth of numbers for each thing that it looks for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np


class Encoder(ABC):
    """Maps of pictures; `kind` is its name in saved files."""

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """An encoder for pictures (N, H, W, 3) like these."""

    @abstractmethod
    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """(N, H, W, 3) of uint8 -> (N, C, h, w) of float32."""

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What is saved: a dictionary for JSON, and arrays."""
        return {}, {}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """The inverse of `to_parts`."""
        return cls()
