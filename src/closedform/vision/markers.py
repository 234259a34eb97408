"""Markers: finds ArUco and AprilTag markers in pictures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from closedform.errors import ConfigError
from closedform.vision.opencv import import_cv2

DICTIONARIES = (  # family, and its sizes where it has several
    *(f"DICT_{bits}X{bits}_{count}" for bits in (4, 5, 6, 7) for count in (50, 100, 250, 1000)),
    "DICT_ARUCO_ORIGINAL",
    "DICT_ARUCO_MIP_36h12",
    *(f"DICT_APRILTAG_{name}" for name in ("16h5", "25h9", "36h10", "36h11")),
)
_LARGEST = tuple(name for name in DICTIONARIES if not name.endswith(("_50", "_100", "_250")))  # contain the others
_WEAK = "DICT_APRILTAG_16h5"  # so few bits that it is found in anything
_PURPOSE = "finding markers"


class Markers:
    """Finds the markers of one dictionary, with corners refined to a fraction of a pixel.

    Args:
        dictionary: one of `DICTIONARIES`, also without `DICT_` and in any case (`apriltag_36h11`).
        smallest: the smallest perimeter looked for, as a fraction of the picture's longer side.
        enlarged: the factor by which pictures are enlarged before, which finds smaller markers.
    """

    def __init__(self, dictionary: str = "DICT_4X4_50", smallest: float = 0.02, enlarged: int = 2):
        self.dictionary = dictionary_name(dictionary)
        cv2 = import_cv2(_PURPOSE)
        options = cv2.aruco.DetectorParameters()
        options.cornerRefinementMethod = cv2.aruco.CORNER_REFINE_SUBPIX
        options.cornerRefinementWinSize = 3
        options.relativeCornerRefinmentWinSize = 0.3
        options.cornerRefinementMaxIterations = 50
        options.cornerRefinementMinAccuracy = 0.01
        options.adaptiveThreshWinSizeMin, options.adaptiveThreshWinSizeMax = 5, 21
        options.adaptiveThreshWinSizeStep = 8
        options.minMarkerPerimeterRate = smallest
        options.perspectiveRemovePixelPerCell = 8
        self._cv2 = cv2
        self._detector = cv2.aruco.ArucoDetector(_dictionary(self.dictionary), options)
        self._options, self._enlarged = options, enlarged

    def find(self, pixels: np.ndarray) -> dict[int, np.ndarray]:
        """The markers in a picture.

        Args:
            pixels: (height, width, 3) RGB or (height, width) gray, uint8.

        Returns:
            The corners (4, 2) of each marker by its number, ordered as in `Body`. A number that is found twice is left
            out: one of the two is wrong, and nothing says which.
        """
        found = _unique(*self._detector.detectMarkers(self._gray(pixels))[:2])
        factor = self._enlarged  # the center of pixel 0 is at (factor - 1) / 2 of the enlarged picture
        return {number: (corners - (factor - 1) / 2) / factor for number, corners in found.items()}

    def explain_absence(self, pixels: np.ndarray) -> str | None:
        """One line on why `find` finds nothing, if the picture shows markers of another dictionary; else None."""
        gray, counts = self._gray(pixels), dict[str, int]()
        for name in _LARGEST:
            corners, numbers = self._cv2.aruco.ArucoDetector(_dictionary(name), self._options).detectMarkers(gray)[:2]
            counts[name] = len(_unique(corners, numbers))
        counts[_WEAK] //= 2
        best = max(counts, key=lambda name: counts[name])
        if not counts[best] or self.dictionary.startswith(best.removesuffix("_1000")):
            return None
        return (
            f"expected markers of {self.dictionary}, found {counts[best]} of {best.removesuffix('_1000')}: name the "
            f"dictionary that was printed"
        )

    def _gray(self, pixels: np.ndarray) -> np.ndarray:
        cv2, pixels = self._cv2, np.ascontiguousarray(pixels)
        gray = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
        if self._enlarged == 1:
            return gray
        return cv2.resize(gray, None, fx=self._enlarged, fy=self._enlarged, interpolation=cv2.INTER_CUBIC)


def dictionary_name(name: str) -> str:
    """The full name of a dictionary; raises `ConfigError` for an unknown one."""
    known = {one.upper(): one for one in DICTIONARIES}
    upper = name.upper()
    found = known.get(upper) or known.get(f"DICT_{upper}")
    if found is None:
        raise ConfigError(f"unknown marker dictionary {name!r:.60}: expected one of {', '.join(DICTIONARIES)}")
    return found


def marker_picture(dictionary: str, number: int, side: int, border: int = 0) -> np.ndarray:
    """The picture of a marker, to print or to render.

    Args:
        dictionary: see `Markers`.
        number: of the marker.
        side: of its black square, in pixels.
        border: of white around it, in pixels.

    Returns:
        (side + 2 border, side + 2 border) uint8
    """
    cv2, name = import_cv2("drawing markers"), dictionary_name(dictionary)
    found = _dictionary(name)
    if not 0 <= number < len(found.bytesList):
        raise ConfigError(f"expected a marker number from 0 to {len(found.bytesList) - 1} of {name}, found {number}")
    inner = cv2.aruco.generateImageMarker(found, number, side)
    return np.pad(inner, border, constant_values=255)


def draw_markers(pixels: np.ndarray, found: Mapping[int, np.ndarray]) -> np.ndarray:
    """A copy of a picture (height, width, 3) with the outlines and numbers of markers."""
    cv2, drawn = import_cv2("drawing markers"), np.array(pixels)
    for number, corners in found.items():
        cv2.polylines(drawn, [np.round(corners * 8).astype(np.int32)], True, (0, 200, 0), 1, cv2.LINE_AA, 3)
        at = tuple(int(value) for value in corners.mean(0).round())
        cv2.putText(drawn, str(number), at, cv2.FONT_HERSHEY_SIMPLEX, 0.35, (220, 30, 30), 1, cv2.LINE_AA)
    return drawn


def _unique(corners, numbers) -> dict[int, np.ndarray]:
    if numbers is None:
        return {}
    flat = [int(number) for number in np.ravel(numbers)]
    return {
        number: np.asarray(where, float).reshape(4, 2)
        for number, where in zip(flat, corners, strict=True)
        if flat.count(number) == 1
    }


def _dictionary(name: str):
    cv2 = import_cv2(_PURPOSE)
    return cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, name))
