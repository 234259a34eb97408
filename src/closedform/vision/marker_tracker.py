"""MarkerTracker: the poses of all bodies of a cell, from a camera's pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from closedform.errors import DataError
from closedform.geometry.rigid_pose import RigidPose
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.cell import Cell
from closedform.vision.fit import PoseFit, fit_body
from closedform.vision.markers import Markers
from closedform.vision.pose_filter import FilterConfig, PoseFilter
from closedform.vision.video_camera import wrong_size


class PoseEstimate(NamedTuple):
    """The pose of a body at a time, and how far to trust it.

    Attributes:
        pose: takes points of the body's frame to the world's; None if it was never seen.
        age: seconds since the exposure of the last picture that it was seen in.
        residual: of the last fit, in pixels.
        n_markers: of the last fit.
        deviation: standard deviation of the position in the last fit, in meters.
        lost: None, or one line that says for how long the body was not seen.
    """

    pose: RigidPose | None
    age: float
    residual: float
    n_markers: int
    deviation: float
    lost: str | None


class MarkerTracker:
    """Follows the bodies of a cell.

    `update` takes pictures as they come; `at` predicts every body to a time, which makes up for latency and for
    pictures in which a body was not seen.

    Args:
        cell: the cell's markers and bodies.
        intrinsics: of the camera.
        camera: takes points of the world to the camera's frame; see `find_camera`.
        config: of the filters.
    """

    def __init__(self, cell: Cell, intrinsics: Intrinsics, camera: RigidPose, config: FilterConfig | None = None):
        self.cell, self.intrinsics, self.camera = cell, intrinsics, camera
        self._markers = Markers(cell.dictionary)
        self._filters = {body.name: PoseFilter(config) for body in cell.bodies}
        self._fits: dict[str, PoseFit] = {}
        self.found: dict[int, np.ndarray] = {}
        self._seen_any = False

    def reset(self) -> None:
        """Forgets where everything was."""
        for one in self._filters.values():
            one.reset()
        self._fits, self.found = {}, {}

    def update(self, image: Image) -> dict[str, PoseFit]:
        """Takes a picture in.

        Args:
            image: of the size that the camera was calibrated with.

        Returns:
            The poses in this picture by body, before filtering; those that could not be found are left out.
        """
        check_size(image, self.intrinsics)
        return self.update_found(image.time, self._markers.find(image.pixels), image)

    def update_found(
        self, time: float, found: Mapping[int, np.ndarray], image: Image | None = None
    ) -> dict[str, PoseFit]:
        """Takes the markers of a picture in; see `Markers.find` and `update`."""
        self.found = dict(found)
        if found:
            self._seen_any = True
        elif not self._seen_any and image is not None:
            reason = self._markers.explain_absence(image.pixels)
            if reason:
                raise DataError(reason)
        fits = {}
        for body in self.cell.bodies:
            fit = fit_body(body, self.intrinsics, self.camera, found)
            if fit is None:
                continue
            fits[body.name] = fit
            if self._filters[body.name].update(time, fit.pose, fit.deviations):
                self._fits[body.name] = fit
        return fits

    def at(self, time: float) -> dict[str, PoseEstimate]:
        """The poses of all bodies, predicted for a time."""
        return {name: self._estimate(name, one, time) for name, one in self._filters.items()}

    def _estimate(self, name: str, one: PoseFilter, time: float) -> PoseEstimate:
        fit = self._fits.get(name)
        if fit is None or one.time is None:
            return PoseEstimate(None, np.inf, np.inf, 0, np.inf, f"{name} was never seen")
        age = max(time - one.time, 0.0)
        lost = f"{name} was not seen for {age:.2f} s" if one.lost(time) else None
        return PoseEstimate(one.at(time), age, fit.residual, fit.n_markers, float(fit.deviations[0]), lost)


def check_size(image: Image, intrinsics: Intrinsics) -> None:
    """Refuses a picture of another size than the camera was calibrated with."""
    if image.pixels.shape[1::-1] != tuple(intrinsics.size):
        raise DataError(f"the camera: found {wrong_size(image.pixels, intrinsics)}; set that size, or calibrate again")
