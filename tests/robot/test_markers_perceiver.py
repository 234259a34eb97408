"""Bodies from markers as a perceiver: poses on the table, the same after saving; a moved camera is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")

import cv2

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.images import Images
from closedform.errors import ConfigError, DataError
from closedform.geometry.layout import Layout
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.markers_perceiver import MarkersPerceiver
from closedform.vision.camera import Intrinsics
from closedform.vision.camera_file import save_intrinsics
from closedform.vision.cell import Cell
from closedform.vision.marked_body import MarkedBody, square
from closedform.vision.markers import marker_picture
from closedform.vision.perceiver import perceive_demos
from closedform.vision.pinhole import project
from closedform.vision.saved_perceiver import load_perceiver, save_perceiver

LENS = Intrinsics((320, 240), np.array([[300.0, 0, 160], [0, 300.0, 120], [0, 0, 1]]), np.zeros(5))
CAMERA = RigidPose(np.diag([1.0, -1.0, -1.0]), np.array([0.0, 0.0, 0.6]))  # 0.6 m above the table, looking down
TABLE = {10 + i: square(0.06, RigidPose.planar(x, y, 0.0)) for i, (x, y) in enumerate([(-0.25, -0.17), (0.25, 0.17)])}
CELL = Cell("DICT_4X4_50", TABLE, (MarkedBody("block", {0: square(0.06, RigidPose.planar(0, 0, 0))}, 0.0),))
HAND = Layout.parse("hand position 2")


def photograph(pose: np.ndarray, camera: RigidPose = CAMERA) -> np.ndarray:
    picture = np.full((240, 320), 230, np.uint8)
    placed = {**TABLE, 0: RigidPose.planar(*pose)(CELL.bodies[0].corners[0])}
    for number, corners in placed.items():
        marker = marker_picture("DICT_4X4_50", number, 120, 20)
        inner = np.array([[20, 20], [139, 20], [139, 139], [20, 139]], np.float32)
        matrix = cv2.getPerspectiveTransform(inner, project(LENS, camera(corners))[0].astype(np.float32))
        size = (320, 240)
        inside = cv2.warpPerspective(np.full_like(marker, 255), matrix, size, flags=cv2.INTER_AREA) > 127
        picture = np.where(inside, cv2.warpPerspective(marker, matrix, size, flags=cv2.INTER_AREA), picture)
    return np.repeat(picture[..., None], 3, axis=2)


class Photographs:
    def __init__(self, poses: np.ndarray):
        self.poses = poses

    def read(self, numbers):
        return (photograph(self.poses[number]) for number in numbers)


@pytest.fixture(scope="module")
def poses() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.uniform(-0.1, 0.1, (12, 2)), rng.uniform(-3, 3, 12)])


@pytest.fixture(scope="module")
def demos(poses) -> Demos:
    hand = np.zeros((12, 2))
    return Demos([Episode(hand, hand, images={"top": Images(Photographs(poses), 0, 12)})], HAND, HAND)


@pytest.fixture(scope="module")
def perceiver(demos, tmp_path_factory) -> MarkersPerceiver:
    folder = tmp_path_factory.mktemp("cell")
    CELL.save(folder / "cell.json")
    save_intrinsics(folder / "camera.json", LENS)
    return MarkersPerceiver.fit(demos, ["top"], cell=folder / "cell.json", intrinsics=folder / "camera.json")


def test_poses_are_those_of_the_scene(demos, perceiver, poses):
    seen = perceive_demos(perceiver, demos)
    assert seen.observation_layout == Layout.parse("hand position 2, block position 2, block angle")
    found = seen[0].observations[:, 2:]
    assert np.abs(found[:, :2] - poses[:, :2]).max() < 0.002
    assert np.degrees(np.abs(np.angle(np.exp(1j * (found[:, 2] - poses[:, 2]))))).max() < 2


def test_a_saved_one_perceives_the_same(perceiver, poses, tmp_path):
    save_perceiver(perceiver, tmp_path / "seen")
    given = {"top": photograph(poses[3]), "state": np.zeros(2)}
    expected = perceiver.fresh().perceive(given)
    np.testing.assert_array_equal(load_perceiver(tmp_path / "seen").perceive(given), expected)


def test_a_hidden_body_stays_where_it_was(perceiver, poses):
    one = perceiver.fresh()
    given = {"top": photograph(poses[0]), "state": np.zeros(2)}
    before = one.perceive(given)
    away = {**given, "top": photograph(np.array([5.0, 5.0, 0.0]))}
    np.testing.assert_array_equal(one.perceive(away), before)
    with pytest.raises(DataError, match="expected one of the markers 0 of the body 'block', found none"):
        perceiver.fresh().perceive(away)


def test_a_moved_camera_is_refused(perceiver, poses):
    moved = RigidPose(CAMERA.rotation, CAMERA.position + np.array([0.02, 0.0, 0.0]))
    with pytest.raises(DataError, match=r"found them \d+\.\d pixels away; has the camera moved\?"):
        perceiver.fresh().perceive({"top": photograph(poses[0], moved), "state": np.zeros(2)})


def test_files_are_needed(demos):
    with pytest.raises(ConfigError, match="expected --cell and --intrinsics"):
        MarkersPerceiver.fit(demos, ["top"])
