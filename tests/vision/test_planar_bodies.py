"""Bodies in pictures: found where they are, followed, and never silently wrong."""

from __future__ import annotations

import numpy as np
import pytest

from closedform.errors import DataError
from closedform.vision import PlanarBodies, PlaneView, SeenPose, Tracker
from tests.vision.scenes import background, draw, poses


@pytest.fixture(scope="module")
def bodies() -> PlanarBodies:
    return PlanarBodies.learn([draw(*pose) for pose in poses(80, seed=0)])


def center(bodies: PlanarBodies) -> tuple[np.ndarray, float]:
    """The block's origin as seen from its template, and the angle between the two, from one picture."""
    block, disc = np.array([44.0, 40.0, 0.0]), np.array([10.0, 10.0])
    seen = bodies.find(draw(block, disc))[0]
    cos, sin = np.cos(seen.angle), np.sin(seen.angle)
    away = block[:2] - (seen.x, seen.y)
    return np.array([cos * away[0] + sin * away[1], cos * away[1] - sin * away[0]]), seen.angle


def errors(bodies: PlanarBodies, seen: SeenPose, block: np.ndarray) -> tuple[float, float]:
    """Of position in pixels, and of angle in degrees."""
    origin, turn = center(bodies)
    cos, sin = np.cos(seen.angle), np.sin(seen.angle)
    found = np.array([seen.x + cos * origin[0] - sin * origin[1], seen.y + sin * origin[0] + cos * origin[1]])
    return float(np.hypot(*(found - block[:2]))), abs(np.degrees(np.angle(np.exp(1j * (seen.angle - turn - block[2])))))


def test_finds_an_l_and_a_disc_and_nothing_else(bodies: PlanarBodies):
    assert [body.template.is_round for body in bodies.bodies] == [False, True]


def test_finds_poses_to_a_fraction_of_a_pixel(bodies: PlanarBodies):
    found = [errors(bodies, bodies.find(draw(*pose))[0], pose[0]) for pose in poses(40, seed=1, apart=20)]
    away, turned = np.transpose(found)
    assert np.median(away) < 0.2
    assert away.max() < 0.5
    assert np.median(turned) < 1
    assert turned.max() < 3


def test_a_body_that_another_one_hides_in_part(bodies: PlanarBodies):
    for block, _ in poses(20, seed=2):
        cos, sin = np.cos(block[2]), np.sin(block[2])
        corner = block[:2] + np.array([[cos, -sin], [sin, cos]]) @ (-6, 6)
        seen = bodies.find(draw(block, corner))[0]
        away, turned = errors(bodies, seen, block)
        assert away < 1
        assert turned < 6
        assert seen.visible < 0.95


def test_follows_a_motion_and_finds_what_jumps(bodies: PlanarBodies):
    tracker = Tracker(bodies)
    for step in range(30):
        block = np.array([20 + 1.5 * step, 30 + 0.5 * step, 0.1 * step])
        seen = tracker.follow(draw(block, np.array([10.0, 60.0])))[0]
        assert errors(bodies, seen, block)[0] < 0.5
    jumped = np.array([20.0, 50.0, -2.0])
    assert errors(bodies, tracker.follow(draw(jumped, np.array([70.0, 20.0])))[0], jumped)[0] < 0.5


def test_a_body_that_is_gone_stays_without_confidence(bodies: PlanarBodies):
    tracker = Tracker(bodies)
    before = tracker.follow(draw(np.array([40.0, 40.0, 1.0]), np.array([10.0, 10.0])))[0]
    after = tracker.follow(background())[0]
    assert after[:3] == before[:3]
    assert after.confidence == 0


@pytest.mark.parametrize("light", [0.7, 0.85, 1.1])
def test_another_light(bodies: PlanarBodies, light: float):
    for block, disc in poses(10, seed=3, apart=20):
        picture = np.clip(draw(block, disc) * light, 0, 255).astype(np.uint8)
        assert errors(bodies, bodies.find(picture)[0], block)[0] < 0.7


def test_noise(bodies: PlanarBodies):
    rng = np.random.default_rng(4)

    def taken(pose: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        return np.clip(draw(*pose) + 6 * rng.standard_normal((72, 88, 3)), 0, 255).astype(np.uint8)

    noisy = PlanarBodies.learn([taken(pose) for pose in poses(80, seed=0)])
    found = [errors(noisy, noisy.find(taken(pose))[0], pose[0])[0] for pose in poses(20, seed=5, apart=20)]
    assert np.median(found) < 0.7


def test_a_moved_camera_is_noticed(bodies: PlanarBodies):
    picture = draw(np.array([40.0, 40.0, 1.0]), np.array([10.0, 60.0]))
    with pytest.raises(DataError, match=r"found it 8.0 pixels from its place; has the camera moved\?"):
        bodies.find(np.roll(picture, 8, axis=0))


def test_another_scene_is_noticed(bodies: PlanarBodies):
    picture = draw(np.array([40.0, 40.0, 1.0]), np.array([10.0, 60.0]))
    picture[20:60, 60:] = (90, 160, 30)
    with pytest.raises(DataError, match=r"found \d+% of the picture changed; .* or is something in the way\?"):
        bodies.find(picture)


@pytest.mark.parametrize(
    ("picture", "message"),
    [
        (np.zeros((72, 88, 3), np.uint8), "found a black one"),
        (
            np.full((96, 96, 3), 200, np.uint8),
            "of 88x72 pixels, as in the demonstrations, found 96x96",
        ),
        (np.ones((72, 88, 3)), "of uint8, found .* of float64"),
        (np.full((3, 72, 88), 200, np.uint8), "move the channels last"),
    ],
)
def test_pictures_that_do_not_fit(bodies: PlanarBodies, picture: np.ndarray, message: str):
    with pytest.raises(DataError, match=message):
        bodies.find(picture)


def test_a_place_that_a_body_covers_most_of_the_time():
    rng, made = np.random.default_rng(11), poses(100, seed=10)
    often = [
        (np.array([*rng.normal((40, 13), 0.5), rng.normal(0, 0.05)]) if rng.uniform() < 0.6 else block, disc)
        for block, disc in made
    ]
    found = PlanarBodies.learn([draw(*pose) for pose in often])
    assert [body.template.is_round for body in found.bodies] == [False, True]
    np.testing.assert_allclose(found.background.picture, background(), atol=30)


def test_too_few_pictures_and_pictures_without_bodies():
    with pytest.raises(DataError, match="expected at least 20 pictures"):
        PlanarBodies.learn([background()] * 5)
    with pytest.raises(DataError, match="found none"):
        PlanarBodies.learn([background()] * 30)


def test_a_known_position_tells_units_and_which_way_is_up():
    made = poses(60, seed=7)
    up = np.array([[0.01, 0.0], [0.0, -0.01]])  # meters, y up
    view = PlaneView.learn([draw(*pose) for pose in made], np.array([pose[1] for pose in made]) @ up)
    assert view.known == 1
    assert view.similarity.mirrored
    assert view.similarity.matrix == pytest.approx(up, abs=2e-4)
    turned = [
        view.pose(view.bodies.find(draw(np.array([44.0, 36.0, a]), np.array([8.0, 8.0])))[0])[2] for a in (0, 0.3)
    ]
    assert turned[1] - turned[0] == pytest.approx(-0.3, abs=0.05)


def test_a_position_that_no_body_has_is_refused():
    made = poses(60, seed=8)
    unrelated = np.random.default_rng(0).uniform(size=(60, 2))
    with pytest.raises(DataError, match="found none that follows it"):
        PlaneView.learn([draw(*pose) for pose in made], unrelated)
