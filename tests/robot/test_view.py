"""Views of a run, and files that describe an arm."""

import json
import tracemalloc
import urllib.request

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout
from closedform.errors import ArmError, ConfigError, DataError, LoadError
from closedform.robot.arm_setup import ArmSetup, demonstrated_positions
from closedform.robot.clocks import PacedClock, WallClock
from closedform.robot.command import Command, Mode, Status
from closedform.robot.interfaces import ArmState, Estimate
from closedform.robot.runner import RunStep
from closedform.robot.shared_camera import SharedCamera, picture_box, post
from closedform.vision.camera import Image, Intrinsics
from tests.robot.arms import PLANE, reaching_demos

SETUP = {
    "arm": "ur5e",
    "tool_length": 0.15,
    "origin": [0.3, 0.25, 0.01],
    "along_x": [0.7, 0.25, 0.01],
    "along_y": [0.3, -0.2, 0.01],
}


def write(folder, **changes):
    path = folder / "arm.json"
    path.write_text(json.dumps({key: value for key, value in {**SETUP, **changes}.items() if value is not None}))
    return path


def test_an_arm_is_read_from_its_file(tmp_path):
    setup = ArmSetup.load(write(tmp_path, margin=0.05, control={"speed": 0.2}))
    assert setup.config.speed == 0.2 and setup.kinematics.tool_length == 0.15
    assert np.allclose(setup.plane.axes, [[1, 0, 0], [0, -1, 0], [0, 0, 1]])
    policy = ClosedFormPolicy(reaching_demos(5))
    positions = demonstrated_positions(policy)
    hands = np.concatenate([episode.observations[:, :2] for episode in reaching_demos(5)])
    assert np.array_equal(positions, hands)
    space = setup.workspace(policy)
    assert np.allclose(space.lower[:2], 1e-3 * hands.min(axis=0) - 0.05)
    named = ArmSetup.load(write(tmp_path, region=[0, 10, 400, 300])).workspace(policy)
    assert np.allclose(named.lower[:2], [-0.03, -0.02]) and np.allclose(named.upper[:2], [0.43, 0.33])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"origin": None}, "with 'origin', found none"),
        ({"arm": "kuka"}, "unknown arm 'kuka'"),
        ({"origin": [0, 1]}, "three points of three numbers"),
        ({"tool_length": "long"}, "could not convert string to float"),
        ({"colour": "blue"}, "found 'colour'"),
        ({"region": [3, 0, 1, 1]}, "region: expected least x"),
        ({"control": {"sped": 1}}, "sped"),
        ({"control": {"speed": -1}}, "speed: expected a number above 0"),
        ({"control": 3}, "expected the description of an arm"),
    ],
)
def test_a_file_that_describes_no_arm_is_refused(tmp_path, changes, message):
    with pytest.raises(LoadError, match=message):
        ArmSetup.load(write(tmp_path, **changes))


def test_a_policy_without_demonstrations_needs_a_region(tmp_path):
    class Other:
        observation_layout, action_layout = Layout.plain(2), Layout.plain(2)

    with pytest.raises(DataError, match="a Other does not know where its demonstrations were: expected a 'region'"):
        demonstrated_positions(Other())  # pyright: ignore[reportArgumentType]


class Tracker:
    """What a drawing needs of a tracker: a camera one meter above the middle of the workplane."""

    intrinsics = Intrinsics((64, 48), np.array([[50.0, 0, 31.5], [0, 50, 23.5], [0, 0, 1]]), np.zeros(5))
    found = {1: np.array([[5.0, 5], [15, 5], [15, 15], [5, 15]])}  # noqa: RUF012

    def camera(self, points):
        middle = PLANE.to_base(np.array([0.256, 0.256, 0.0]))
        return (points - middle) * np.array([1, -1, -1]) + np.array([0, 0, 1.0])


class Seeing:
    tracker = Tracker()


def step(alarm=""):
    state = ArmState(1.0, np.zeros(6), np.zeros(6))
    status = Status(1.0, 200, Mode.RUN, True, "", 0, 1, np.zeros(6), state)
    points = np.array([[0.256, 0.256, 0.0], [0.4, 0.256, 0.0]])
    command = Command(1, 1.0, Mode.RUN, np.array([1.0, 1.1]), points, alarm)
    image, estimate = Image(1.0, np.full((48, 64, 3), 90, np.uint8)), Estimate(1.0, np.zeros(4), 0.0, 1.0)
    return RunStep(image, estimate, command, status, None, 10)


def test_markers_waypoints_and_alarms_are_drawn():
    pytest.importorskip("cv2")
    from closedform.robot.view import Overlay

    drawing = Overlay(Seeing(), PLANE)  # pyright: ignore[reportArgumentType]
    pixels = drawing.draw(step())
    assert pixels.shape == (48, 64, 3)
    assert pixels[5, 10, 1] > 150 and pixels[5, 10, 0] < 90  # green, at the marker's edge
    assert pixels[28, 32, 0] > 200 and pixels[28, 32, 2] < 90  # orange, where the tool is to go
    alarmed = drawing.draw(step("far away"))
    assert (alarmed.astype(int) != pixels).any()
    assert drawing.draw(step()._replace(image=None)).shape == (48, 64, 3)


def test_a_film_is_written(tmp_path):
    pytest.importorskip("cv2")
    av = pytest.importorskip("av")
    from closedform.robot.view import Film, Overlay

    drawing = Overlay(Seeing(), PLANE)  # pyright: ignore[reportArgumentType]
    film = Film(tmp_path / "film.mp4", drawing, 10.0)
    pixels = np.random.default_rng(0).integers(0, 10, (480, 640, 3), np.uint8) + np.array([200, 90, 30], np.uint8)
    tracemalloc.start()
    for _ in range(8):
        film.show(step()._replace(image=Image(1.0, pixels)))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 2 * pixels.nbytes  # an hour of pictures as they are would fill the memory
    film.close()
    with av.open(str(tmp_path / "film.mp4")) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(frames) == 8 and np.abs(frames[0][300:].mean(axis=(0, 1)) - [204.5, 94.5, 34.5]).max() < 8


def test_a_browser_is_shown_the_newest_picture():
    pytest.importorskip("cv2")
    from closedform.robot.journal import png
    from closedform.robot.page import Page
    from closedform.robot.view import Overlay

    drawing = Overlay(Seeing(), PLANE)  # pyright: ignore[reportArgumentType]
    page = Page(drawing)
    try:
        with urllib.request.urlopen(page.address, timeout=30) as answer:
            assert b"/stream" in answer.read()
        page.show(step())
        with urllib.request.urlopen(page.address.replace("/?", "/stream?"), timeout=30) as answer:
            picture = png(drawing.draw(step()))
            assert answer.readline() == b"--picture\r\n"
            assert answer.readline() == b"Content-Type: image/png\r\n"
            assert answer.readline() == b"\r\n" and answer.read(len(picture)) == picture
            assert answer.read(13) == b"\r\n--picture\r\n"  # a browser shows it now
        with pytest.raises(ConfigError, match="expected a free port"):
            Page(drawing, port=page.port)
    finally:
        page.close()


def test_a_paced_clock_does_not_run_ahead():
    wall, clock, seen = WallClock(), PacedClock(), []
    begun = wall.now()
    clock.every(0.01, seen.append)
    clock.sleep_until(0.05)
    assert wall.now() - begun >= 0.05 - 1e-3 and clock.now() == 0.05 and len(seen) == 5


def test_pictures_of_another_process_are_seen():
    box = picture_box((8, 6))
    camera = SharedCamera(picture_box((8, 6), box.name), Tracker.intrinsics)
    with pytest.raises(ArmError, match="expected pictures, found none"):
        camera.grab()
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    post(box, Image(1.5, pixels))
    seen = camera.grab()
    assert seen.time == 1.5 and np.array_equal(seen.pixels, pixels) and camera.grab() is seen
    post(box, Image(2.0, 255 - pixels))
    assert camera.grab().time == 2.0 and camera.name == box.name
    camera.close()
    box.close()
