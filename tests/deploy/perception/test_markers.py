"""Finding markers in pictures."""

import numpy as np
import pytest

from closedform.deploy.interfaces import Image, Intrinsics
from closedform.deploy.perception.cell import Cell
from closedform.deploy.perception.extrinsics import find_camera, locate_camera
from closedform.deploy.perception.markers import DICTIONARIES, Markers, draw_markers, marker_picture
from closedform.deploy.perception.tracker import MarkerTracker
from closedform.errors import ConfigError, DataError, LoadError
from closedform.twin.place import twin_cell
from tests.deploy.perception.synthetic import CAMERA, INTRINSICS, sight

pytest.importorskip("cv2")

CELL = twin_cell()


def page(dictionary, numbers, side=60) -> np.ndarray:
    """Markers side by side on gray."""
    pixels = np.full((480, 640), 150, np.uint8)
    for place, number in enumerate(numbers):
        top, left = 40 + 130 * (place // 4), 40 + 140 * (place % 4)
        tile = marker_picture(dictionary, number, side, side // 6)
        pixels[top : top + len(tile), left : left + len(tile)] = tile
    return pixels


@pytest.mark.parametrize("dictionary", DICTIONARIES)
def test_every_dictionary_is_found_with_corners_to_a_fraction_of_a_pixel(dictionary):
    found = Markers(dictionary).find(np.repeat(page(dictionary, (3, 7))[..., None], 3, axis=2))
    assert set(found) == {3, 7}
    first = np.array([[50, 50], [110, 50], [110, 110], [50, 110]]) - 0.5  # of its black square
    np.testing.assert_allclose(found[3], first, atol=0.3)
    drawn = draw_markers(np.zeros((480, 640, 3), np.uint8), found)
    assert drawn.any() and not drawn[300:].any()


def test_a_number_seen_twice_is_left_out():
    assert set(Markers("4x4_50").find(page("4x4_50", (5, 6, 5)))) == {6}


def test_markers_of_another_dictionary_are_said():
    other = page("6X6_250", (1, 2, 3, 4))
    with pytest.raises(DataError, match=r"expected markers of DICT_4X4_50, found 4 of DICT_6X6"):
        find_camera(CELL, INTRINSICS, [Image(0.0, other)])
    with pytest.raises(DataError, match=r"found 4 of DICT_6X6: name the dictionary that was printed"):
        MarkerTracker(CELL, INTRINSICS, CAMERA).update(Image(0.0, other))
    assert Markers("4X4_50").explain_absence(page("4x4_50", (1, 2))) is None
    assert Markers("4X4_50").explain_absence(np.full((480, 640), 90, np.uint8)) is None


def test_unknown_dictionaries_and_numbers_are_refused():
    with pytest.raises(ConfigError, match=r"unknown marker dictionary '9x9': expected one of DICT_4X4_50"):
        Markers("9x9")
    with pytest.raises(ConfigError, match="expected a marker number from 0 to 49 of DICT_4X4_50, found 50"):
        marker_picture("4x4_50", 50, 60)


def test_pictures_of_another_size_are_refused():
    small = Intrinsics((320, 240), INTRINSICS.matrix, INTRINSICS.distortion)
    with pytest.raises(DataError, match=r"found 640 x 480 pixels instead of the 320 x 240 that it was calibrated with"):
        MarkerTracker(CELL, small, CAMERA).update(Image(0.0, np.zeros((480, 640, 3), np.uint8)))


def test_the_camera_is_found_from_the_table_and_refused_where_markers_are_elsewhere():
    rng = np.random.default_rng(0)
    found = sight(CELL.table_body, CAMERA.inverse.after(CAMERA), rng, noise=0.15)
    where = locate_camera(CELL.table_body, INTRINSICS, found)
    assert where.n_markers == 4 and where.residual < 0.5
    np.testing.assert_allclose(where.pose.inverse.position, CAMERA.inverse.position, atol=5e-3)
    points = np.array([[0.3, -0.2, 0.0], [0.7, 0.2, 0.03]])
    np.testing.assert_allclose(where.pose(points)[:, :2], CAMERA(points)[:, :2], atol=0.4e-3)
    swapped = {**found, 10: found[11], 11: found[10]}
    with pytest.raises(DataError, match="measure their positions and sizes again"):
        locate_camera(CELL.table_body, INTRINSICS, {number: 1.3 * swapped[number] for number in (10, 11)})
    with pytest.raises(DataError, match="expected at least 2 of the 4 markers on the table in sight, found 12"):
        locate_camera(CELL.table_body, INTRINSICS, {12: found[12]})
    with pytest.raises(DataError, match=r"expected markers 10, 11, 12, 13 of DICT_4X4_50 on the table, found 1, 2"):
        find_camera(CELL, INTRINSICS, [Image(0.0, page("4x4_50", (1, 2)))])


def test_a_cell_is_what_was_saved(tmp_path):
    CELL.save(tmp_path / "cell.json")
    again = Cell.load(tmp_path / "cell.json")
    assert again.dictionary == CELL.dictionary and [body.name for body in again.bodies] == ["block"]
    assert again.bodies[0].height == 0.0 and set(again.table) == set(CELL.table)
    for number, corners in CELL.bodies[0].corners.items():
        np.testing.assert_array_equal(again.bodies[0].corners[number], corners)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "with 'bodies', found none"),
        ("[1]", "expected a description of a cell"),
        ('{"dictionary": "4x4_50", "table": 5, "bodies": []}', "expected a list of at most 1000 markers, found 5"),
        ('{"dictionary": "nope", "table": [], "bodies": []}', "unknown marker dictionary 'nope'"),
        (
            '{"dictionary": "4x4_50", "bodies": [], "table": [{"number": 1, "size": 0.1, "position": [0, 0, 0]}, '
            '{"number": 1, "size": 0.1, "position": [0, 0, 0]}]}',
            "expected every marker once, found 1 twice",
        ),
        (
            '{"dictionary": "4x4_50", "table": [{"number": 1, "size": 0.1, "position": [0, 0, 0]}], "bodies": '
            '[{"name": "a", "markers": [{"number": 1, "size": 0.1, "position": [0, 0, 0]}]}]}',
            "marker 1 of the body 'a': expected a number that is used once",
        ),
    ],
)
def test_cells_that_make_no_sense_are_refused(tmp_path, text, message):
    (tmp_path / "cell.json").write_text(text)
    with pytest.raises(LoadError, match=message):
        Cell.load(tmp_path / "cell.json")
