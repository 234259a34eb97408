"""Where a camera is, from the markers on the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from closedform.errors import DataError
from closedform.geometry.rigid_pose import RigidPose
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.cell import Cell
from closedform.vision.fit import fit_body
from closedform.vision.marked_body import MarkedBody
from closedform.vision.marker_tracker import check_size
from closedform.vision.markers import Markers

ACCEPTED = 1.5  # pixels: a worse residual means a wrong calibration, or markers that are not where the cell says
_AT_ORIGIN = RigidPose(np.eye(3), np.zeros(3))


class CameraPose(NamedTuple):
    """Where a camera is: `pose` takes points of the world to its frame; `residual` in pixels; markers used."""

    pose: RigidPose
    residual: float
    n_markers: int


def find_camera(cell: Cell, intrinsics: Intrinsics, images: Sequence[Image]) -> CameraPose:
    """Finds where a camera is from pictures that show the markers on the table; raises `DataError` if it cannot.

    Args:
        cell: the positions of the markers.
        intrinsics: of the camera.
        images: one or more pictures from the same place; corners are averaged over those that show them, which
            reduces noise.
    """
    markers, sights = Markers(cell.dictionary), dict[int, list[np.ndarray]]()
    for image in images:
        check_size(image, intrinsics)
        for number, corners in markers.find(image.pixels).items():
            sights.setdefault(number, []).append(corners)
    if not set(sights) & set(cell.table):
        reason = None if sights or not images else markers.explain_absence(images[-1].pixels)
        numbers = ", ".join(str(number) for number in cell.table)
        raise DataError(
            reason
            or f"expected markers {numbers} of {cell.dictionary} on the table, found "
            f"{', '.join(str(number) for number in sorted(sights)) or 'none'}"
        )
    mean = {number: np.median(found, axis=0) for number, found in sights.items()}
    return locate_camera(cell.table_body, intrinsics, mean)


def locate_camera(table: MarkedBody, intrinsics: Intrinsics, found: dict[int, np.ndarray]) -> CameraPose:
    """Finds where a camera is from the corners of markers; see `find_camera`."""
    fit = fit_body(table, intrinsics, _AT_ORIGIN, found)
    seen = sorted(set(table.corners) & set(found))
    if fit is None or fit.residual > ACCEPTED or fit.n_outliers >= fit.n_markers:
        off = "no place that fits most of them" if fit is None or fit.n_outliers else f"{fit.residual:.1f} pixels"
        raise DataError(
            f"the markers {', '.join(map(str, seen))} on the table: expected them within {ACCEPTED} pixels of where "
            f"the cell says, found {off}; measure their positions and sizes again, or calibrate the camera"
        )
    least = (len(table.corners) + 1) // 2
    if fit.n_markers < least:
        raise DataError(
            f"expected at least {least} of the {len(table.corners)} markers on the table in sight, found "
            f"{', '.join(map(str, seen))}; clear the view"
        )
    return CameraPose(fit.pose, fit.residual, fit.n_markers)
