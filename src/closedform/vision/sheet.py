"""A sheet with all markers of a cell, to be printed."""

from __future__ import annotations

import numpy as np

from closedform.errors import ConfigError
from closedform.vision.cell import Cell
from closedform.vision.markers import marker_picture
from closedform.vision.opencv import import_cv2

DOTS = 10  # pixels a millimeter
_WIDTH = 190  # millimeters, which fit on A4 and on Letter
_LONGEST = 2000  # millimeters of a sheet, and the largest marker is as wide as one


def marker_sheet(cell: Cell) -> tuple[np.ndarray, tuple[float, float]]:
    """Draws the markers of a cell in their true size, side by side, each with a white border and its number.

    Args:
        cell: whose markers they are.

    Returns:
        The picture (height, width) uint8, and its width and height on paper in millimeters.
    """
    cv2 = import_cv2("drawing markers")
    groups = [cell.table, *(body.corners for body in cell.bodies)]
    sizes = {
        number: round(1e3 * float(np.linalg.norm(four[1] - four[0])), 2)
        for group in groups
        for number, four in group.items()
    }
    if not sizes:
        raise ConfigError("expected a cell with markers, found none")
    sheet = np.full((_LONGEST * DOTS, _WIDTH * DOTS), 255, np.uint8)
    left = top = row = 0
    for number, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        side, border = round(size * DOTS), round(size * DOTS / 8)
        tile = marker_picture(cell.dictionary, number, side, border)
        width, height = tile.shape[1] + 5 * DOTS, tile.shape[0] + 8 * DOTS
        if left + width > sheet.shape[1] and left:
            left, top, row = 0, top + row, 0
        if left + width > sheet.shape[1] or top + height > sheet.shape[0]:
            raise ConfigError(
                f"expected markers that fit on a sheet of {_WIDTH} x {_LONGEST} mm, found one of {size:.0f} mm"
            )
        sheet[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
        at = (left + border, top + tile.shape[0] + 5 * DOTS)
        cv2.putText(sheet, f"{number} ({size:g} mm)", at, cv2.FONT_HERSHEY_SIMPLEX, 1.2, 120, 2, cv2.LINE_AA)
        left, row = left + width, max(row, height)
    sheet = sheet[: top + row]
    return sheet, (sheet.shape[1] / DOTS, sheet.shape[0] / DOTS)
