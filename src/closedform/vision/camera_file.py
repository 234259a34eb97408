"""Files that hold a camera's calibration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import LoadError
from closedform.files import read_json, write_file
from closedform.vision.camera import Intrinsics

_EXPECTED = "the calibration of a camera"
_MOST_PIXELS = 32768


def save_intrinsics(path: Path, intrinsics: Intrinsics, **facts: Any) -> None:
    """Writes a calibration as JSON, with more that is worth knowing about it."""
    data = {
        "size": list(intrinsics.size),
        "matrix": np.asarray(intrinsics.matrix).tolist(),
        "distortion": np.asarray(intrinsics.distortion).tolist(),
        **facts,
    }
    write_file(path, json.dumps(data, indent=1) + "\n")


def load_intrinsics(path: Path) -> Intrinsics:
    """Reads a calibration that `save_intrinsics` wrote."""
    data = read_json(path, _EXPECTED)
    try:
        width, height = (int(value) for value in data["size"])
        matrix, distortion = np.array(data["matrix"], float), np.array(data["distortion"], float)
    except KeyError as error:
        raise LoadError(f"{path}: expected {_EXPECTED} with {error}, found none") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise LoadError(f"{path}: expected {_EXPECTED}, found {error}") from error
    if not (0 < width <= _MOST_PIXELS and 0 < height <= _MOST_PIXELS):
        raise LoadError(f"{path}: expected a size from 1 to {_MOST_PIXELS} pixels, found {width} x {height}")
    if matrix.shape != (3, 3) or distortion.shape != (5,):
        shapes = f"{matrix.shape} and {distortion.shape}"
        raise LoadError(f"{path}: expected a matrix of shape (3, 3) and a distortion of (5,), found {shapes}")
    if not (np.isfinite(matrix).all() and np.isfinite(distortion).all() and matrix[0, 0] > 0 and matrix[1, 1] > 0):
        raise LoadError(f"{path}: expected finite numbers and focal lengths above 0, found others")
    return Intrinsics((width, height), matrix, distortion)
