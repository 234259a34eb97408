"""Calibration of cameras."""

import json
import subprocess
import sys

import numpy as np
import pytest

from closedform.cli import main
from closedform.errors import ConfigError, DataError, LoadError
from closedform.robot.twin.place import twin_cell
from closedform.vision.board import Board
from closedform.vision.calibration import calibrate, calibrate_corners
from closedform.vision.camera_file import load_intrinsics, save_intrinsics
from closedform.vision.markers import Markers
from closedform.vision.pinhole import project
from tests.vision.synthetic import INTRINSICS, board_poses, photograph

cv2 = pytest.importorskip("cv2")

CHARUCO, CHESS = Board(), Board(8, 6, 0.03, None)


def corners(rng, n=12, noise=0.1, spread=1.0):
    found = []
    for pose in board_poses(CHARUCO, rng, n, INTRINSICS):
        pixels = project(INTRINSICS, pose(CHARUCO.points))[0]
        pixels = (pixels - 300) * spread + 300 + rng.normal(scale=noise, size=pixels.shape)
        found.append((CHARUCO.points, pixels))
    return found


def check(found, tolerance):
    wanted = INTRINSICS.matrix
    assert found.matrix[0, 0] == pytest.approx(wanted[0, 0], rel=tolerance)
    assert found.matrix[1, 1] == pytest.approx(wanted[1, 1], rel=tolerance)
    points = np.column_stack([np.random.default_rng(0).uniform(-0.2, 0.2, (50, 2)), np.ones(50)])
    off = project(found, points)[0] - project(INTRINSICS, points)[0]
    assert np.abs(off - off.mean(0)).max() < 900 * tolerance


def test_a_camera_is_found_from_corners_with_noise():
    found = calibrate_corners(corners(np.random.default_rng(0)), (640, 480))
    assert 0.08 < found.error < 0.2 and found.errors.shape == (12,)
    check(found.intrinsics, 0.01)


@pytest.mark.parametrize("board", [CHARUCO, CHESS], ids=["charuco", "chessboard"])
def test_a_camera_is_found_from_pictures(board):
    rng = np.random.default_rng(1)
    pictures = [photograph(board, pose) for pose in board_poses(board, rng, 8, INTRINSICS)]
    found = calibrate([*pictures, np.full_like(pictures[0], 90)], board)
    assert len(found.used) >= 6 and 8 not in found.used and found.error < 0.3
    check(found.intrinsics, 0.02)


def test_pictures_that_do_not_determine_a_camera_are_refused():
    blank = np.full((480, 640), 90, np.uint8)
    with pytest.raises(
        DataError,
        match=r"expected at least 5 pictures that show a ChArUco board of 8 x 6 squares with "
        r"markers of DICT_5X5_100, found 0 of 3",
    ):
        calibrate([blank] * 3, CHARUCO)
    with pytest.raises(DataError, match="expected pictures of one size, found 320 x 240, 640 x 480"):
        calibrate([blank, blank[:240, :320]], CHARUCO)
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="expected the board in all parts of the picture"):
        calibrate_corners(corners(rng, spread=0.3), (640, 480))
    with pytest.raises(DataError, match=r"expected a reprojection error of at most 1\.0 pixels"):
        calibrate_corners(corners(rng, noise=6.0), (640, 480))


def test_boards_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="3 to 100 squares"):
        Board(2, 6)
    with pytest.raises(ConfigError, match=r"smaller than 0\.03 m, found 0\.04"):
        Board(8, 6, 0.03, 0.04)


def test_a_calibration_is_what_was_saved(tmp_path):
    save_intrinsics(tmp_path / "camera.json", INTRINSICS, note="of a test")
    again = load_intrinsics(tmp_path / "camera.json")
    assert again.size == (640, 480)
    np.testing.assert_array_equal(again.matrix, INTRINSICS.matrix)
    np.testing.assert_array_equal(again.distortion, INTRINSICS.distortion)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": [0, 5]}, "expected a size from 1"),
        ({"size": None}, "expected the calibration of a camera"),
        ({"matrix": [[1, 2], [3, 4]]}, r"expected a matrix of shape \(3, 3\)"),
        ({"distortion": [0, 0, 0, 0, float("nan")]}, "expected finite numbers"),
        ({"matrix": "x"}, "expected the calibration of a camera"),
    ],
)
def test_calibrations_that_make_no_sense_are_refused(tmp_path, change, message):
    save_intrinsics(tmp_path / "camera.json", INTRINSICS, **change)
    with pytest.raises(LoadError, match=message):
        load_intrinsics(tmp_path / "camera.json")


def test_the_command_prints_a_board_and_calibrates_from_pictures(tmp_path, capsys):
    main(["calibrate", "--print-board", str(tmp_path / "board.png")])
    assert "255 x 195 mm" in capsys.readouterr().out
    printed = cv2.imread(str(tmp_path / "board.png"), cv2.IMREAD_GRAYSCALE)
    found = CHARUCO.find(printed)
    assert found is not None and len(found[0]) == 35
    folder = tmp_path / "pictures"
    folder.mkdir()
    for index, pose in enumerate(board_poses(CHARUCO, np.random.default_rng(2), 6, INTRINSICS)):
        cv2.imwrite(str(folder / f"{index}.png"), photograph(CHARUCO, pose))
    main(["calibrate", str(folder), "-o", str(tmp_path / "camera.json"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["error_pixels"] < 0.4 and len(said["errors"]) == said["n_pictures"] >= 5
    assert load_intrinsics(tmp_path / "camera.json").size == (640, 480)
    main(["calibrate", str(folder), "-o", str(tmp_path / "camera.json")])
    assert "reprojection error: 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a folder of pictures, --print-board FILE, or --print-markers CELL FILE"),
        (["--print-markers", "nowhere.json", "a.png"], "nowhere.json: expected a description of a cell"),
        (["nowhere"], "nowhere: expected a folder of pictures, found No such file or directory"),
        (["."], "expected pictures (.png"),
        (["--print-board", "board.svg"], "expected a PNG file"),
        (["nowhere", "--dictionary", "9x9"], "unknown marker dictionary '9x9'"),
    ],
)
def test_the_command_says_in_one_line_what_is_wrong(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["calibrate", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1


def test_the_markers_of_a_cell_are_printed_in_their_size(tmp_path, capsys):
    cell = twin_cell()
    cell.save(tmp_path / "cell.json")
    main(["calibrate", "--print-markers", str(tmp_path / "cell.json"), str(tmp_path / "markers.png")])
    assert "to be printed 190 x" in capsys.readouterr().out
    sheet = cv2.imread(str(tmp_path / "markers.png"), cv2.IMREAD_GRAYSCALE)
    found = Markers(cell.dictionary, enlarged=1).find(sheet)
    assert set(found) == {*range(7), *range(10, 14)}
    for number, corners in found.items():
        assert np.linalg.norm(corners[1] - corners[0]) == pytest.approx(240 if number < 7 else 600, abs=2)


def test_opencv_is_imported_only_where_it_is_used():
    code = "import sys, closedform.cli, closedform.vision.marker_tracker; assert 'cv2' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
