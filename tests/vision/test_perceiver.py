"""Perceivers: images and a state become numbers with a layout, the same after saving; bad input is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, DataError, LoadError
from closedform.geometry.layout import Layout
from closedform.vision.bodies_perceiver import BodiesPerceiver
from closedform.vision.perceiver import perceive_demos, sample_images
from closedform.vision.saved_perceiver import load_perceiver, save_perceiver
from tests.vision.image_demos import UNIT, image_demos, motions
from tests.vision.scenes import background, draw


@pytest.fixture(scope="module")
def demos() -> Demos:
    return image_demos()


@pytest.fixture(scope="module")
def perceiver(demos: Demos) -> BodiesPerceiver:
    return BodiesPerceiver.fit(demos, ["image"])


def observation(pose: tuple[np.ndarray, np.ndarray]) -> dict[str, np.ndarray]:
    return {"image": draw(*pose), "state": UNIT * pose[1]}


def test_it_says_what_it_takes_and_returns(perceiver: BodiesPerceiver):
    assert repr(perceiver) == "BodiesPerceiver(image of 88x72 -> 5 numbers)"


def test_the_layout_names_the_hand_and_what_is_seen(perceiver: BodiesPerceiver):
    assert perceiver.layout == Layout.parse("hand position 2, seen position 2, seen angle")


def test_poses_are_in_the_units_of_the_hand(demos: Demos, perceiver: BodiesPerceiver):
    seen = perceive_demos(perceiver, demos)
    assert seen.observation_layout == perceiver.layout
    for episode, poses, before in zip(seen, motions(12, 12, 0), demos, strict=True):
        np.testing.assert_array_equal(episode.observations[:, :2], before.observations)
        true = UNIT * np.array([block[:2] for block, _ in poses])
        away = episode.observations[:, 2:4] - true  # the template's center is not the block's
        assert np.abs(np.linalg.norm(away, axis=1) - np.linalg.norm(away[0])).max() < 1.0 * UNIT
        turned = np.unwrap(episode.observations[:, 4]) - np.unwrap([block[2] for block, _ in poses])
        assert np.degrees(np.ptp(turned)) < 6


def test_saved_ones_perceive_the_same(perceiver: BodiesPerceiver, tmp_path):
    save_perceiver(perceiver, tmp_path / "seen")
    again = load_perceiver(tmp_path / "seen")
    pose = motions(1, 2, 5)[0][0]
    np.testing.assert_array_equal(again.perceive(observation(pose)), perceiver.fresh().perceive(observation(pose)))
    assert again.layout == perceiver.layout


@pytest.mark.parametrize("change", [("known", 7), ("hand", [0, 9]), ("noise", "x")])
def test_changed_files_are_refused(perceiver: BodiesPerceiver, tmp_path, change):
    save_perceiver(perceiver, tmp_path / "seen")
    config = tmp_path / "seen" / "config.json"
    content = json.loads(config.read_text())
    content["facts"][change[0]] = change[1]
    config.write_text(json.dumps(content))
    with pytest.raises(LoadError, match="checksum mismatch"):
        load_perceiver(tmp_path / "seen")
    from closedform.vision.saved_perceiver import _checksum

    content["config_crc32"] = _checksum(content)
    config.write_text(json.dumps(content))
    with pytest.raises(LoadError, match="expected a perceiver of format 1, found"):
        load_perceiver(tmp_path / "seen")


def test_a_damaged_file_is_refused(perceiver: BodiesPerceiver, tmp_path):
    save_perceiver(perceiver, tmp_path / "seen")
    path = tmp_path / "seen" / "perceiver.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(LoadError, match="checksum mismatch"):
        load_perceiver(tmp_path / "seen")


def test_names_of_images_and_states(perceiver: BodiesPerceiver):
    pose = motions(1, 2, 5)[0][0]
    image, state = draw(*pose), UNIT * pose[1]
    expected = perceiver.fresh().perceive({"image": image, "state": state})
    floats = (image.transpose(2, 0, 1) / 255).astype(np.float32)
    for other in (
        {"pixels": image, "agent_pos": state},
        {"observation.image": image, "observation.state": state},
        {"observation.image": floats[None], "observation.state": state[None]},
        {"observation.images.image": floats, "observation.state": state, "task": "push"},
    ):
        np.testing.assert_array_equal(perceiver.fresh().perceive(other), expected)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image": None}, "expected an image of the camera 'image', found state"),
        ({"state": None}, "expected the state as state, agent_pos, observation.state, found image"),
        ({"state": np.zeros(3)}, r"state: expected 2 numbers, found shape \(3,\)"),
        ({"state": np.array([0.0, np.nan])}, "state: expected finite numbers, found nan"),
        ({"image": np.full((96, 96, 3), 200, np.uint8)}, "of 88x72 pixels, as in the demonstrations, found 96x96"),
        ({"image": np.ones((72, 88, 3))}, "of uint8, found .* of float64; multiply by 255 and convert to uint8"),
        ({"image": np.full((3, 72, 88), 200, np.uint8)}, "move the channels last"),
        ({"image": np.full((72, 88), 200, np.uint8)}, r"expected a picture \(height, width, 3\)"),
        ({"image": np.zeros((72, 88, 3), np.uint8)}, "found a black one; is the camera covered?"),
    ],
)
def test_observations_that_do_not_fit(perceiver: BodiesPerceiver, changed: dict, message: str):
    given = {**observation(motions(1, 2, 5)[0][0]), **changed}
    with pytest.raises(DataError, match=message):
        perceiver.fresh().perceive({name: value for name, value in given.items() if value is not None})


def test_what_is_no_dictionary_is_refused(perceiver: BodiesPerceiver):
    with pytest.raises(DataError, match=r"expected an observation with images \(image, state\), found ndarray"):
        perceiver.perceive(np.zeros(2))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shift", [(0, 2), (2, 0), (0, -4), (-6, 3)])
def test_a_moved_camera_is_refused(perceiver: BodiesPerceiver, shift: tuple[int, int]):
    for pose in motions(4, 2, 6):
        given = observation(pose[0])
        large = np.pad(given["image"], ((8, 8), (8, 8), (0, 0)), mode="edge")
        given["image"] = large[8 + shift[0] : 80 + shift[0], 8 + shift[1] : 96 + shift[1]]
        with pytest.raises(DataError, match="has the camera moved"):
            perceiver.fresh().perceive(given)


def test_colors_in_another_order_are_refused(perceiver: BodiesPerceiver):
    for pose in motions(4, 2, 6):
        given = observation(pose[0])
        given["image"] = given["image"][..., ::-1]
        with pytest.raises(DataError, match="found BGR"):
            perceiver.fresh().perceive(given)


def test_a_first_image_without_a_body_is_refused(perceiver: BodiesPerceiver):
    hand = observation(motions(1, 2, 6)[0][0])["state"]
    empty, one = {"image": background(), "state": hand}, perceiver.fresh()
    for _ in range(2):  # also the second time: no pose is kept from the first
        with pytest.raises(DataError, match="expected the body 'seen' in the first image of an episode, found it now"):
            one.perceive(empty)
    seen = one.perceive(observation(motions(1, 2, 6)[0][0]))
    assert np.array_equal(one.perceive(empty)[2:], seen[2:])  # later it is hidden, and stays where it was


def test_a_black_image_in_demonstrations_is_named(demos: Demos):
    class Blackened:
        def read(self, numbers):
            return (np.zeros((72, 88, 3), np.uint8) if n == 4 else background() for n in numbers)

    from closedform.demos.episode import Episode
    from closedform.demos.images import Images

    bad = Episode(demos[0].observations, demos[0].actions, images={"image": Images(Blackened(), 0, len(demos[0]))})
    mixed = Demos([demos[1], bad], demos.observation_layout, demos.action_layout)
    with pytest.raises(DataError, match="episode 1, step 4: expected a picture of the scene, found a black one"):
        list(sample_images(mixed, "image", 100))


def test_demonstrations_without_what_is_needed(demos: Demos):
    with pytest.raises(DataError, match="images of the camera 'wrist', found image"):
        BodiesPerceiver.fit(demos, ["wrist"])
    with pytest.raises(ConfigError, match="expected one camera, found a, b"):
        BodiesPerceiver.fit(demos, ["a", "b"])
    plain = demos.with_layouts(Layout.plain(2), demos.action_layout)
    with pytest.raises(DataError, match="expected the position of a hand"):
        BodiesPerceiver.fit(plain, ["image"])


def test_masks_tell_the_bodies(demos: Demos):
    masks = {}
    for number, poses in enumerate(motions(12, 12, 0)):
        for step, (block, disc) in enumerate(poses):
            with_both, without = draw(block, disc).astype(int), background().astype(int)
            differs = np.abs(with_both - without).max(axis=-1) > 40
            masks[number, step] = np.where(differs, np.where(with_both[..., 2] > with_both[..., 0], 2, 1), 0)
    perceiver = BodiesPerceiver.fit(demos, ["image"], masks=masks)
    assert perceiver.layout == Layout.parse("hand position 2, seen position 2, seen angle")
    with pytest.raises(DataError, match="expected a mask of 88x72 whole numbers"):
        BodiesPerceiver.fit(demos, ["image"], masks={key: mask[1:] for key, mask in masks.items()})
