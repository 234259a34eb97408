"""Scenes that can only be rendered: their pictures, and how a mouse steers a hand in space."""

import base64
import io

import numpy as np
import pytest

from closedform.errors import DataError
from closedform.evaluation.steering import Steering
from closedform.studio import Pilot
from closedform.studio.picture import data_address
from tests.studio.toys import Filmed, make_filmed_session, make_session


def image_of(address):
    Image = pytest.importorskip("PIL.Image")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def test_a_picture_arrives_as_it_was():
    image = np.zeros((20, 30, 3), np.uint8)
    image[:, :15] = (200, 40, 10)
    assert np.abs(image_of(data_address(image)).astype(int) - image)[:, [4, 25]].max() < 12
    assert max(image_of(data_address(image, 10)).shape) == 10


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.zeros((4, 4, 4), np.uint8)])
def test_what_is_no_picture_is_refused(image):
    with pytest.raises(DataError, match=r"expected an image \(height, width, 3\) of uint8"):
        data_address(image)


def test_the_hand_begins_where_it_is_and_follows_mouse_and_wheel():
    environment = Filmed()
    environment.reset(0)
    start = environment.place
    steering = Steering(environment)
    assert np.allclose(steering.action((0.5, 0.5, 0.3, 0))[:3], start)
    moved = steering.action((0.6, 0.7, 0.35, 0))
    assert np.allclose(moved[:3] - start, [2.0, 1.0, 0.5])  # down in the picture, right, up
    environment.step(moved)
    steering.let_go()
    assert np.allclose(steering.action((0.1, 0.1, 0.0, 0))[:3], moved[:3])


def test_the_gripper_stays_as_it_was_until_its_key_is_pressed():
    environment = Filmed()
    environment.reset(0)
    environment.step(np.array([0, 0, 0, 1.0]))  # the policy closed it
    steering = Steering(environment)
    assert steering.action((0, 0, 0, 0))[3] == 1
    assert steering.action((0, 0, 0, 1))[3] == -1


def test_a_stretch_over_a_picture_becomes_an_episode_with_a_thumbnail():
    session = make_filmed_session()
    for i in range(6):
        session.step((0.5, 0.5, 0.02 * i, 0))
    session.step(None)
    (take,) = session.collection.takes
    assert len(take.episode) == 6 and session.driver == "policy"
    assert image_of(take.summary(None)["picture"]).shape == (48, 64, 3)
    assert session.frame()["poses"] == {} and session.insight is not None


def test_it_is_solved_with_wheel_and_key():
    session = make_filmed_session()
    for i in range(10):
        session.step((0.5, 0.5, 0.06 * i, int(i > 7)))
    assert session.outcome == "success" and session.collection.takes[0].success


def test_pictures_are_published_once_for_each_state():
    pilot = Pilot(lambda background: make_filmed_session(background=background))
    told = []
    pilot._publish = lambda kind, content: told.append(kind)
    for _ in range(3):
        pilot._tell()
    assert told.count("picture") == 1 and told.count("frame") == 3
    pilot.close()


def test_a_scene_that_is_drawn_sends_no_pictures():
    pilot = Pilot(lambda background: make_session(background=background))
    told = []
    pilot._publish = lambda kind, content: told.append(kind)
    pilot._tell()
    assert "picture" not in told
    pilot.close()
