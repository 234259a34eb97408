"""The twin's pictures, and the poses found in them."""

from importlib.util import find_spec

import numpy as np
import pytest

from closedform.evaluation.environment import make_environment
from closedform.robot.twin.camera import TwinCamera
from closedform.robot.twin.environment import Twin
from closedform.robot.twin.place import true_camera, twin_cell
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station
from closedform.robot.twin.world import block_in_base
from closedform.vision.extrinsics import find_camera
from closedform.vision.markers import Markers
from closedform.vision.pinhole import project
from tests.robot.twin.gl import rendering

for needed in ("cv2", "mujoco"):
    if find_spec(needed) is None:  # importing mujoco here would choose its rendering library
        pytest.skip(f"there is no {needed} here: pip install 'closedform[twin]'", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("rendering")
__all__ = ["rendering"]  # a fixture


@pytest.fixture(scope="module")
def env(rendering):
    made = make_environment("twin")
    assert isinstance(made, Twin)
    yield made
    made.close()


def off(env: Twin, observation: np.ndarray) -> tuple[float, float]:
    """How far the observed block is from the true one, in millimeters and degrees."""
    true = env.station.observation()
    turn = (observation[4] - true[4] + np.pi) % (2 * np.pi) - np.pi
    return float(np.linalg.norm(observation[2:4] - true[2:4])), float(np.degrees(abs(turn)))


def test_a_block_at_rest_is_found_to_half_a_millimeter(env):
    errors = np.array([off(env, env.reset(seed)) for seed in range(100000, 100010)])
    assert np.sqrt(np.mean(errors**2, axis=0))[0] < 0.4 and errors[:, 0].max() < 1.0
    assert np.sqrt(np.mean(errors**2, axis=0))[1] < 0.4 and errors[:, 1].max() < 1.0
    assert env.estimate.alarm == "" and env.estimate.error < 1e-3


def test_the_same_seed_gives_the_same_pictures_and_observations(env):
    def play(env=env):
        seen = [env.reset(100003)]
        for step in range(6):
            seen.append(env.step(seen[0][2:4] + np.array([10.0 * step, 0.0])).observation)
        return np.array(seen), env.station.camera.grab().pixels.copy()

    first, pixels = play()
    env.reset(100001)
    again, same = play()
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(pixels, same)
    other = Twin()
    np.testing.assert_array_equal(first, play(other)[0])
    other.close()


def test_a_block_that_moves_is_followed_in_spite_of_latency(env):
    start = env.reset(100003)
    errors, behind = [], []
    for step in range(25):
        before = env.station.observation()
        result = env.step(env.station.observation()[2:4] + 60 * np.array([np.cos(step / 6), np.sin(step / 6)]))
        errors.append(off(env, result.observation)[0])
        behind.append(np.linalg.norm(env.station.observation()[2:4] - before[2:4]))
    assert np.linalg.norm(env.station.observation()[2:4] - start[2:4]) > 10
    assert np.median(errors) < 2.0 and np.mean(errors) < 0.5 * np.mean(behind) + 1.0


def test_pictures_are_as_old_as_the_latency_says(rendering):
    station = Station(TwinSettings.parse("latency=0.1,fps=20,noise=0,blur=0,dropout=0"))
    station.place(100000)
    begun = station.clock.now()
    for tick in range(1, 12):
        station.clock.sleep_until(begun + tick * 0.05 + 0.02)
        image = station.camera.grab()
        if tick > 2:
            assert image.time - begun == pytest.approx((tick - 2) * 0.05)
        assert station.camera.grab() is image
    station.close()


def test_markers_are_hidden_and_a_block_out_of_sight_is_lost(rendering):
    env = Twin(TwinSettings.parse("dropout=0"))
    try:
        observation = stands = env.reset(100000)
        object.__setattr__(env.station.settings, "dropout", 1.0)
        for step in range(9):
            stands = env.step(observation[:2] + np.array([0.0, 100.0])).observation
            found = Markers("4x4_50").find(env.station.camera.grab().pixels)
            assert set(found) == {10, 11, 12, 13} or step == 0
        assert env.estimate.alarm.startswith("block was not seen for 0.")
        for _ in range(3):
            env.step(stands[:2] + 100)
        assert (
            np.linalg.norm(env.station.observation()[:2] - stands[:2]) < 8
        )  # it does not follow while nothing is seen
    finally:
        env.close()


def test_a_wrong_calibration_shifts_what_is_seen(rendering):
    env = Twin(TwinSettings.parse("calibration_mm=8,calibration_deg=2"))
    try:
        errors = np.array([off(env, env.reset(seed)) for seed in range(100000, 100004)])
    finally:
        env.close()
    assert (np.abs(errors[:, 1] - 2) < 1).all() and (errors[:, 0] > 1).all() and (errors[:, 0] < 20).all()


def test_pictures_with_distortion_show_markers_where_they_are_projected(rendering):
    station = Station(TwinSettings.parse("noise=0,blur=0,dropout=0"))
    camera = TwinCamera(station.world, distortion=np.array([-0.15, 0.08, 0.001, -0.001, 0.0]))
    try:
        station.place(100004)
        image, cell = camera.grab(), twin_cell()
        found = Markers(cell.dictionary).find(image.pixels)
        pose = block_in_base(station.world.data.qpos)
        for number, corners in cell.bodies[0].corners.items():
            if number in found:
                expected = project(camera.intrinsics, true_camera()(pose(corners)))[0]
                assert np.abs(found[number] - expected).mean() < 0.6
        assert len(set(found) & set(cell.bodies[0].corners)) >= 5
        where = find_camera(cell, camera.intrinsics, [image])
        np.testing.assert_allclose(where.pose.inverse.position, true_camera().inverse.position, atol=8e-3)
    finally:
        camera.close()
        station.close()


def test_the_scene_is_drawn_for_videos(env):
    env.reset(100000)
    picture = env.render()
    assert picture.shape == (480, 640, 3) and picture.dtype == np.uint8 and picture.std() > 10
