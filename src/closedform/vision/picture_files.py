"""Pictures in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from closedform.errors import LoadError
from closedform.vision.opencv import import_cv2

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")


def picture_paths(folder: Path) -> list[Path]:
    """The pictures of a folder by name; raises `LoadError` if there are none."""
    try:
        found = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in SUFFIXES)
    except OSError as error:
        raise LoadError(f"{folder}: expected a folder of pictures, found {error.strerror}") from error
    if not found:
        raise LoadError(f"{folder}: expected pictures ({', '.join(SUFFIXES)}), found none")
    return found


def read_picture(path: Path) -> np.ndarray:
    """A picture (height, width, 3) RGB uint8."""
    cv2 = import_cv2("reading pictures")
    try:
        data = np.frombuffer(Path(path).read_bytes(), np.uint8)
    except OSError as error:
        raise LoadError(f"{path}: expected a picture, found {error.strerror}") from error
    pixels = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    if pixels is None:
        raise LoadError(f"{path}: expected a picture, found something else")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
