"""Push-T from pictures: the T is seen where it is, and demonstrations are perceived as the scene will be."""

from __future__ import annotations

import numpy as np
import pytest

from closedform.demos.demos import Demos
from closedform.demos.load import load_demos, save_demos
from closedform.errors import ConfigError
from closedform.evaluation.pusht_camera import CameraSettings

pytest.importorskip("gym_pusht")
pytest.importorskip("cv2")

from closedform.evaluation.pusht_pixels import PushTPixels, make


@pytest.fixture(scope="module")
def environment() -> PushTPixels:
    return PushTPixels()


def origin(environment: PushTPixels, observation: np.ndarray) -> np.ndarray:
    """The T's origin in units of its own frame: constant if it is seen where it is."""
    away, angle = environment.state[2:4] - observation[2:4], observation[4]
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return turn @ away


def test_the_t_is_seen_where_it_is(environment: PushTPixels):
    seen = np.array([origin(environment, environment.reset(seed)) for seed in range(40)])
    away = np.linalg.norm(seen - np.median(seen, axis=0), axis=1)
    assert np.median(away) < 1.5  # units of 512; a pixel is 5.3
    assert away.max() < 4


def test_the_same_seed_and_actions_give_the_same_episode(environment: PushTPixels):
    def episode() -> np.ndarray:
        first = environment.reset(3)
        return np.array([first, *(environment.step(np.array([200.0, 20.0 * i])).observation for i in range(10))])

    np.testing.assert_array_equal(episode(), episode())


def test_demonstrations_of_states_are_perceived(environment: PushTPixels, tmp_path):
    recorded = load_demos("pusht-embedded")
    short = Demos(recorded.episodes[:1], recorded.observation_layout, recorded.action_layout, recorded.rate)
    save_demos(short, tmp_path / "states", "folder")
    seen = environment.read(str(tmp_path / "states"))
    assert seen.observation_layout == environment.observation_layout
    states, found = short.episodes[0].observations, seen.episodes[0].observations
    np.testing.assert_array_equal(found[:, :2], states[:, :2])
    turned = np.unwrap(found[:, 4] - states[:, 4])
    assert np.degrees(np.ptp(turned)) < 6
    save_demos(seen, tmp_path / "seen", "folder")
    again = environment.read(str(tmp_path / "seen"))  # perceived only once
    np.testing.assert_array_equal(again.episodes[0].observations, found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [("noise=1000", "noise: expected 0 to 60"), ("fog=1", "expected a setting of the camera"), ("light=x", "a number")],
)
def test_settings_that_do_not_exist(settings: str, message: str):
    with pytest.raises(ConfigError, match=message):
        make(settings)


def test_a_camera_adds_what_it_is_told_to():
    clean, rng = np.full((96, 96, 3), 255, np.uint8), np.random.default_rng(0)
    assert CameraSettings().take(clean, rng) is clean
    shadowed = CameraSettings(shadow=0.5).take(clean, rng)
    assert shadowed[0, 0, 0] == 255
    assert shadowed[0, -1, 0] == 127
    assert np.ptp(CameraSettings(pattern=0.4).take(clean, rng)) > 80
