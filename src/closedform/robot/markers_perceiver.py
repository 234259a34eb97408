"""MarkersPerceiver: the state, and the poses of bodies that carry markers, from the images of one calibrated camera."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Entry, Layout
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.arm_setup import ArmSetup
from closedform.robot.workplane import Workplane
from closedform.vision.camera import Image, Intrinsics
from closedform.vision.camera_file import load_intrinsics
from closedform.vision.cell import Cell
from closedform.vision.extrinsics import find_camera
from closedform.vision.fit import fit_body
from closedform.vision.markers import Markers
from closedform.vision.perceiver import Perceiver, Progress, perceived_state, sample_images
from closedform.vision.pinhole import project

_N_IMAGES = 20  # that tell where the camera is
_MOVED = 3.0  # pixels


class MarkersPerceiver(Perceiver):
    """Observes the state and the pose of each body of a cell: position and angle on the table, or in space.

    A body whose markers are hidden stays where it was; one that was never seen is an error, and so is a marker on the
    table that is not where it was.

    Attributes:
        cell: the markers and bodies.
        intrinsics: of the camera.
        camera: takes points of the arm's base to the camera's frame.
        plane: in whose units positions are; the arm's base, in meters, by default.
    """

    kind = "markers"

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        cell: Cell,
        intrinsics: Intrinsics,
        camera: RigidPose,
        plane: Workplane,
    ):
        self.cell, self.intrinsics, self.camera, self.plane = cell, intrinsics, camera, plane
        self._markers = Markers(cell.dictionary)
        self._layout = Layout((*state_layout.entries, *(entry for body in cell.bodies for entry in _entries(body))))
        if np.linalg.det(plane.axes) < 0 and not all(body.planar for body in cell.bodies):
            raise ConfigError("markers: expected bodies with a height, as the workplane is mirrored, found one without")
        super().__init__(shapes, state_layout)

    @classmethod
    def fit(
        cls,
        demos: Demos,
        cameras: Sequence[str],
        *,
        progress: Progress | None = None,
        cell: Path | None = None,
        intrinsics: Path | None = None,
        setup: Path | None = None,
    ) -> Self:
        """Finds where the camera is.

        Args:
            demos: demonstrations with images.
            cameras: the name of one.
            progress: called with what is being done and the fraction done.
            cell: the file that describes the markers.
            intrinsics: the file of the camera's calibration.
            setup: the file that describes the arm, with the workplane that the policy's units are of.
        """
        if len(cameras) != 1:
            raise ConfigError(f"markers: expected one camera, found {', '.join(cameras) or 'none'}; choose one")
        if cell is None or intrinsics is None:
            raise ConfigError("markers: expected --cell and --intrinsics (docs/robot.md), found none")
        lens, markers = load_intrinsics(intrinsics), Cell.load(cell)
        if progress is not None:
            progress("finding the camera", 0.0)
        images = [Image(0.0, image) for _, _, image in sample_images(demos, cameras[0], _N_IMAGES)]
        camera = find_camera(markers, lens, images).pose
        plane = Workplane((0.0, 0.0, 0.0), scale=1.0) if setup is None else ArmSetup.load(setup).plane
        shape = images[0].pixels.shape
        return cls({cameras[0]: shape}, perceived_state(demos)[0], markers, lens, camera, plane)

    @property
    def layout(self) -> Layout:
        """The state, and each body's position and rotation."""
        return self._layout

    def reset(self) -> None:
        """Forgets where bodies were."""
        self._last: dict[str, RigidPose] = {}

    def see(self, images: Mapping[str, np.ndarray], state: np.ndarray) -> np.ndarray:
        """The state and the poses in the next image."""
        found = self._markers.find(next(iter(images.values())))
        self._check_table(found)
        poses = dict(self._last)
        for body in self.cell.bodies:
            fit = fit_body(body, self.intrinsics, self.camera, found)
            if fit is not None:
                poses[body.name] = fit.pose
            elif body.name not in poses:
                numbers = ", ".join(map(str, body.corners))
                raise DataError(f"expected one of the markers {numbers} of the body {body.name!r}, found none")
        self._last = poses
        return np.concatenate([state, *(self._numbers(body.planar, poses[body.name]) for body in self.cell.bodies)])

    def _check_table(self, found: Mapping[int, np.ndarray]) -> None:
        """Refuses an image in which most markers of the table are elsewhere."""
        seen = [number for number in self.cell.table if number in found]
        away = [
            float(np.abs(project(self.intrinsics, self.camera(np.asarray(self.cell.table[n])))[0] - found[n]).max())
            for n in seen
        ]
        if away and np.median(away) > _MOVED:
            raise DataError(
                f"expected the markers on the table where they were, found them {np.median(away):.1f} pixels away; has "
                "the camera moved?"
            )

    def _numbers(self, planar: bool, pose: RigidPose) -> np.ndarray:
        position = self.plane.from_base(pose.position) / self.plane.scale
        axes = self.plane.axes.T @ pose.rotation
        if planar:
            return np.array([*position[:2], np.arctan2(axes[1, 0], axes[0, 0])])
        return np.array([*position, *axes[:, 0], *axes[:, 1]])

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything, as it is in files."""
        facts = {"cell": self.cell.to_json(), "plane": asdict(self.plane), "size": list(self.intrinsics.size)}
        arrays = {
            "matrix": np.asarray(self.intrinsics.matrix, float),
            "distortion": np.asarray(self.intrinsics.distortion, float),
            "rotation": self.camera.rotation,
            "position": self.camera.position,
        }
        return facts, arrays

    @classmethod
    def from_parts(
        cls,
        shapes: Mapping[str, tuple[int, ...]],
        state_layout: Layout,
        facts: dict[str, Any],
        arrays: dict[str, np.ndarray],
    ) -> Self:
        """The inverse of `to_parts`."""
        expected = {"matrix": (3, 3), "distortion": (5,), "rotation": (3, 3), "position": (3,)}
        for name, shape in expected.items():
            if arrays[name].shape != shape or not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} of {arrays[name].shape}")
        width, height = (int(number) for number in facts["size"])
        if len(shapes) != 1 or next(iter(shapes.values()))[:2] != (height, width):
            raise ValueError("images of another size than the camera was calibrated with")
        lens = Intrinsics((width, height), np.array(arrays["matrix"]), np.array(arrays["distortion"]))
        camera = RigidPose(np.array(arrays["rotation"]), np.array(arrays["position"]))
        plane = Workplane(**{name: _tuple(value) for name, value in facts["plane"].items()})
        return cls(shapes, state_layout, Cell.from_json(facts["cell"], "the cell"), lens, camera, plane)


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _entries(body: Any) -> list[Entry]:
    if body.planar:
        return [Entry("position", 2, body.name), Entry("angle", 1, body.name)]
    return [Entry("position", 3, body.name), Entry("rotation6d", 6, body.name)]
