"""Calibration of a camera from pictures of a board, checked by its reprojection error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from closedform.errors import DataError
from closedform.vision.board import Board
from closedform.vision.camera import Intrinsics
from closedform.vision.opencv import import_cv2

LEAST = 5  # pictures
ACCEPTED = 1.0  # pixels of root mean square reprojection error
_SPREAD = 0.5  # of the picture's width and height that the corners of all pictures must span


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        intrinsics: the camera.
        error: root mean square reprojection error over all pictures used, in pixels.
        errors: (n,) of each picture used.
        used: their indices among the pictures given.
    """

    intrinsics: Intrinsics
    error: float
    errors: np.ndarray
    used: tuple[int, ...]


def calibrate(pictures: Sequence[np.ndarray], board: Board) -> Calibration:
    """Calibrates a camera.

    Args:
        pictures: (height, width, 3) RGB or (height, width) gray of uint8, all of one size; they should show the
            board near and far, tilted each way, and in every part of the picture.
        board: that they show.
    """
    sizes = {(picture.shape[1], picture.shape[0]) for picture in pictures}
    if len(sizes) > 1:
        found = ", ".join(f"{width} x {height}" for width, height in sorted(sizes))
        raise DataError(f"expected pictures of one size, found {found}")
    found = [board.find(picture) for picture in pictures]
    used = tuple(index for index, one in enumerate(found) if one is not None)
    if len(used) < LEAST:
        kind = "ChArUco board" if board.marker is not None else "chessboard"
        raise DataError(
            f"expected at least {LEAST} pictures that show a {kind} of {board.columns} x {board.rows} squares"
            f"{f' with markers of {board.dictionary}' if board.marker is not None else ''}, found {len(used)} of "
            f"{len(pictures)}"
        )
    return calibrate_corners([one for one in found if one is not None], sizes.pop(), used)


def calibrate_corners(
    corners: Sequence[tuple[np.ndarray, np.ndarray]], size: tuple[int, int], used: tuple[int, ...] | None = None
) -> Calibration:
    """Calibrates a camera from the corners of boards; raises `DataError` if they do not determine it.

    Args:
        corners: points (n, 3) of the board and where they are in the picture (n, 2), for each picture.
        size: width and height of the pictures.
        used: indices of the pictures, for the result.
    """
    cv2 = import_cv2("calibrating a camera")
    if len(corners) < LEAST:
        raise DataError(f"expected at least {LEAST} pictures of a board, found {len(corners)}")
    everywhere = np.concatenate([pixels for _, pixels in corners])
    span = np.ptp(everywhere, axis=0) / size
    if (span < _SPREAD).any():
        raise DataError(
            f"expected the board in all parts of the picture, found it in {span[0]:.0%} of its width and {span[1]:.0%} "
            f"of its height; take more pictures toward the edges"
        )
    points = [np.ascontiguousarray(one, np.float32) for one, _ in corners]
    pixels = [np.ascontiguousarray(one, np.float32).reshape(-1, 1, 2) for _, one in corners]
    try:
        _, matrix, distortion, turns, moves = cv2.calibrateCamera(points, pixels, size, None, None)
    except cv2.error as error:
        raise DataError(f"the camera cannot be calibrated from these pictures: {error}") from error
    matrix, distortion = np.asarray(matrix, float), np.asarray(distortion, float).ravel()[:5]
    squares = []
    for one, seen, turn, move in zip(points, pixels, turns, moves, strict=True):
        again = cv2.projectPoints(one, turn, move, matrix, distortion)[0]
        squares.append(((again - seen) ** 2).sum(-1).ravel())
    error = float(np.sqrt(np.concatenate(squares).mean()))
    if not error <= ACCEPTED or not np.isfinite(matrix).all():
        raise DataError(
            f"expected a reprojection error of at most {ACCEPTED} pixels, found {error:.2f}; hold the board flat and "
            f"still, and check its size"
        )
    errors = np.sqrt([one.mean() for one in squares])
    return Calibration(Intrinsics(size, matrix, distortion), error, errors, used or tuple(range(len(corners))))
