"""Board: what a camera is calibrated with, a chessboard or a ChArUco board."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.errors import ConfigError
from closedform.vision.markers import dictionary_name
from closedform.vision.opencv import import_cv2

_LEAST = 6  # corners of a ChArUco board that are worth a picture


@dataclass(frozen=True)
class Board:
    """A printed board.

    Attributes:
        columns, rows: the number of its squares.
        square: length of a square's edge in meters.
        marker: length of the edge of its markers in meters (ChArUco); None for a plain chessboard.
        dictionary: of its markers; see `Markers`.
    """

    columns: int = 8
    rows: int = 6
    square: float = 0.03
    marker: float | None = 0.022
    dictionary: str = "DICT_5X5_100"

    def __post_init__(self) -> None:
        if not (3 <= self.columns <= 100 and 3 <= self.rows <= 100):
            raise ConfigError(f"expected a board of 3 to 100 squares a side, found {self.columns} x {self.rows}")
        if not (np.isfinite(self.square) and self.square > 0):
            raise ConfigError(f"expected squares larger than 0 m, found {self.square}")
        if self.marker is not None and not 0 < self.marker < self.square:
            raise ConfigError(f"expected markers larger than 0 m and smaller than {self.square} m, found {self.marker}")
        object.__setattr__(self, "dictionary", dictionary_name(self.dictionary))

    @property
    def points(self) -> np.ndarray:
        """The inner corners (N, 3) in the board's frame, row by row."""
        x, y = np.meshgrid(np.arange(1, self.columns), np.arange(1, self.rows))
        flat = np.column_stack([x.ravel(), y.ravel(), np.zeros(x.size)])
        return self.square * flat

    def find(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The board's corners in a picture.

        Args:
            pixels: (height, width, 3) RGB or (height, width) gray, uint8.

        Returns:
            Points (n, 3) of the board and where they are in the picture (n, 2); None if it is not found.
        """
        cv2 = import_cv2("finding a board")
        gray = pixels if pixels.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
        if self.marker is None:
            found, corners = cv2.findChessboardCornersSB(gray, (self.columns - 1, self.rows - 1))
            return (self.points, corners.reshape(-1, 2).astype(float)) if found else None
        corners, numbers, _, _ = cv2.aruco.CharucoDetector(self._charuco()).detectBoard(gray)
        if numbers is None or len(numbers) < _LEAST:
            return None
        return self.points[np.ravel(numbers)], corners.reshape(-1, 2).astype(float)

    def picture(self, pixels_a_square: int = 100, border: int = 0) -> np.ndarray:
        """The board to print or to render, (height, width) uint8, with a white border of so many pixels."""
        if self.marker is None:
            dark = np.add.outer(np.arange(self.rows), np.arange(self.columns)) % 2 == 0
            drawn = np.where(dark, 0, 255).astype(np.uint8).repeat(pixels_a_square, 0).repeat(pixels_a_square, 1)
        else:
            size = (self.columns * pixels_a_square, self.rows * pixels_a_square)
            drawn = self._charuco().generateImage(size, marginSize=0, borderBits=1)
        return np.pad(drawn, border, constant_values=255)

    def _charuco(self) -> Any:
        cv2 = import_cv2("finding a board")
        dictionary = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, self.dictionary))
        return cv2.aruco.CharucoBoard((self.columns, self.rows), self.square, float(self.marker or 0), dictionary)
