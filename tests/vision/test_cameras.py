"""Cameras that read pictures from OpenCV and from folders."""

import numpy as np
import pytest

from closedform.errors import ArmError, ConfigError, DataError, LoadError
from closedform.robot.clocks import LockstepClock
from closedform.robot.picture_folder import PictureFolder
from closedform.vision.camera import Intrinsics
from closedform.vision.video_camera import VideoCamera

cv2 = pytest.importorskip("cv2")

INTRINSICS = Intrinsics((64, 48), np.diag([50.0, 50.0, 1.0]), np.zeros(5))


@pytest.fixture
def folder(tmp_path):
    for index in range(4):
        pixels = np.zeros((48, 64, 3), np.uint8)
        pixels[..., 2] = 50 * index  # red, as OpenCV orders colors
        cv2.imwrite(str(tmp_path / f"{index:03d}.png"), pixels)
    return tmp_path


def test_a_folder_plays_its_pictures_by_the_clock(folder):
    clock = LockstepClock(100.0)
    camera = PictureFolder(folder, INTRINSICS, clock, fps=10)
    seen = []
    for tick in range(12):
        clock.sleep_until(100 + tick * 0.05)
        image = camera.grab()
        assert clock.now() - 0.1 < image.time <= clock.now() + 1e-6 or tick > 7
        assert image.pixels[0, 0, 1:].tolist() == [0, 0]
        seen.append(int(image.pixels[0, 0, 0]))
    assert seen == [0, 0, 50, 50, 100, 100, 150, 150, 150, 150, 150, 150]
    assert camera.grab() is camera.grab()
    camera.close()


def test_a_folder_of_anything_else_is_refused(folder, tmp_path):
    clock = LockstepClock()
    other = Intrinsics((640, 480), INTRINSICS.matrix, INTRINSICS.distortion)
    with pytest.raises(DataError, match="64 x 48 pixels instead of the 640 x 480 that it was calibrated with"):
        PictureFolder(folder, other, clock).grab()
    with pytest.raises(LoadError, match="expected a folder of pictures"):
        PictureFolder(tmp_path / "nowhere", INTRINSICS, clock)
    with pytest.raises(ConfigError, match="pictures a second above 0"):
        PictureFolder(folder, INTRINSICS, clock, fps=0)
    (folder / "000.png").write_bytes(b"no picture")
    with pytest.raises(LoadError, match="expected a picture, found something else"):
        PictureFolder(folder, INTRINSICS, clock).grab()


class Capture:
    """Stands in for OpenCV's: so many pictures of a size, then none."""

    def __init__(self, shape=(48, 64, 3), count=10**9, opened=True):
        self.shape, self.left, self.opened, self.asked, self.released = shape, count, opened, {}, False

    def __call__(self, source):
        return self

    def isOpened(self):
        return self.opened

    def set(self, what, value):
        self.asked[what] = value

    def read(self):
        self.left -= 1
        pixels = np.zeros(self.shape, np.uint8)
        pixels[..., 2] = 200
        return (True, pixels) if self.left >= 0 else (False, None)

    def release(self):
        self.released = True


def test_a_camera_is_asked_for_its_size_and_delivers_rgb_with_the_time_of_exposure(monkeypatch):
    capture = Capture()
    monkeypatch.setattr(cv2, "VideoCapture", capture)
    camera = VideoCamera(0, INTRINSICS, latency=1000.0)
    image = camera.grab()
    assert image.pixels[0, 0].tolist() == [200, 0, 0] and camera.intrinsics is INTRINSICS
    assert capture.asked[cv2.CAP_PROP_FRAME_WIDTH] == 64 and capture.asked[cv2.CAP_PROP_FRAME_HEIGHT] == 48
    import time

    assert image.time < time.monotonic() - 999
    camera.close()
    assert capture.released


@pytest.mark.parametrize(
    ("capture", "message"),
    [
        (Capture(opened=False), "expected one that can be opened, found none"),
        (Capture(count=0), "expected pictures, found none any more: it was disconnected"),
        (Capture(shape=(96, 128, 3)), "128 x 96 pixels instead of the 64 x 48 that it was calibrated with"),
    ],
)
def test_a_camera_that_does_not_deliver_is_said_in_one_line(monkeypatch, capture, message):
    monkeypatch.setattr(cv2, "VideoCapture", capture)
    with pytest.raises(ArmError, match=message):
        VideoCamera("/dev/video9", INTRINSICS).close()
        raise ArmError("nothing was said")


def test_opencv_has_nothing_to_add_about_a_camera_that_is_not_there(capfd):
    with pytest.raises(ArmError, match="the camera 9: expected one that can be opened, found none"):
        VideoCamera(9, INTRINSICS)
    assert capfd.readouterr().err == ""


def test_a_camera_that_is_unplugged_says_so_at_the_next_picture(monkeypatch):
    capture = Capture(count=3)
    monkeypatch.setattr(cv2, "VideoCapture", capture)
    camera = None
    with pytest.raises(ArmError, match="it was disconnected"):
        camera = VideoCamera(0, INTRINSICS)
        camera._thread.join(5)
        camera.grab()
    if camera is not None:
        camera.close()
