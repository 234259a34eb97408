"""Features of images: moments move and turn with what is seen, and the projection keeps what tells the actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("cv2")

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.images import Images
from closedform.errors import ConfigError, DataError, LoadError, MissingExtraError
from closedform.geometry.layout import Layout
from closedform.vision.encoders import ENCODERS, make_encoder
from closedform.vision.features import FeaturesPerceiver, features_layout
from closedform.vision.perceiver import perceive_demos
from closedform.vision.projection import Projection
from closedform.vision.readout import Readout
from closedform.vision.saved_perceiver import load_perceiver, save_perceiver
from closedform.vision.torch_encoder import TorchEncoder
from closedform.vision.usual_scene import UsualScene
from tests.vision.scenes import HEIGHT, WIDTH, draw, poses

HAND = Layout.parse("hand position 2")
BUILT_IN = [name for name in ENCODERS if name != "lite0"]


def pictures(n: int, seed: int = 0) -> np.ndarray:
    return np.stack([draw(*pose) for pose in poses(n, seed)])


@dataclass(frozen=True)
class Drawn:
    shown: tuple[tuple[np.ndarray, np.ndarray], ...]

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        return (draw(*self.shown[number]) for number in numbers)


@pytest.fixture(scope="module")
def demos() -> Demos:
    """The disc, whose place is known, moves toward the block, whose place is not."""
    rng, episodes = np.random.default_rng(0), []
    for block, disc in poses(24, seed=1, apart=20):
        turn = rng.uniform(-1, 1)
        shown = tuple(
            (np.array([*block[:2], block[2] + s * turn]), disc + 0.5 * s * (block[:2] - disc))
            for s in np.linspace(0, 1, 10)
        )
        hand = np.array([one for _, one in shown])
        toward = np.tile(block[:2], (len(hand), 1))
        episodes.append(Episode(hand, toward, images={"image": Images(Drawn(shown), 0, len(shown))}))
    return Demos(episodes, HAND, HAND, rate=10.0)


def test_places_move_and_turn_with_what_is_seen():
    readout = Readout.learn(make_encoder("colors", pictures(40)), pictures(40))
    away = np.array([70.0, 60.0])
    start = readout(draw(np.array([30.0, 30.0, 0.3]), away)[None]).reshape(-1, 10)
    moved = readout(draw(np.array([42.0, 36.0, 0.3]), away)[None]).reshape(-1, 10)
    turned = readout(draw(np.array([30.0, 30.0, 0.3 + np.pi / 2]), away)[None]).reshape(-1, 10)
    block = int(np.argmax(np.linalg.norm(moved[:8, 1:3] - start[:8, 1:3], axis=1)))  # the map of its color
    by = (moved - start)[block, 1:3] / 2 * (WIDTH - 1, HEIGHT - 1)
    np.testing.assert_allclose(by, [12, 6], atol=1)
    np.testing.assert_allclose(moved[block, 3:], start[block, 3:], atol=0.003)  # around its own center, nothing changed
    scale = (WIDTH - 1) / (HEIGHT - 1)  # x and y go from -1 to 1, whatever the picture's shape
    xx, _, yy = start[block, 3:6]
    np.testing.assert_allclose(turned[block, [3, 5]], [yy / scale**2, xx * scale**2], rtol=0.25)  # else off by a half


@pytest.mark.parametrize(
    ("name", "order"), [("pixels", 0), *((one, n) for one in ("colors", "edges", "random") for n in (0, 1, 3))]
)
def test_what_is_usual_reads_as_nothing(name: str, order: int):
    shown = pictures(40)
    readout = Readout.learn(make_encoder(name, shown), shown, order)
    usual = np.median(shown, axis=0).astype(np.uint8)
    nothing, something = np.abs(readout(usual[None])).max(), np.abs(readout(shown[:5])).max()
    assert nothing < 0.1 * something
    np.testing.assert_allclose(readout(shown[:3]), np.concatenate([readout(one[None]) for one in shown[:3]]), atol=1e-6)


def test_the_projection_keeps_what_tells_the_actions_and_is_not_known():
    rng = np.random.default_rng(0)
    states = [rng.standard_normal((30, 2)) for _ in range(20)]
    hidden = [rng.standard_normal((30, 2)) for _ in range(20)]
    mix = rng.standard_normal((2, 10))
    features = [
        np.c_[h @ mix[:, :6] + 0.01 * rng.standard_normal((30, 6)), s @ mix[:, 6:]]
        for h, s in zip(hidden, states, strict=True)
    ]
    features = [np.c_[f, 5 * rng.standard_normal((30, 4))] for f in features]  # loud, and of no use
    actions = [h + s for h, s in zip(hidden, states, strict=True)]
    found = Projection.fit(features, states, actions, rank=2, horizon=2, on=("actions",))
    z = np.concatenate([found(f, s) for f, s in zip(features, states, strict=True)])
    h = np.concatenate(hidden)
    left = h - z @ np.linalg.lstsq(z, h, rcond=None)[0]
    assert np.square(left).sum() < 0.02 * np.square(h).sum()
    assert found.explained > 0.95
    noise = [rng.standard_normal((30, 14)) for _ in range(20)]
    assert Projection.fit(noise, states, actions, rank=2, horizon=2, on=("actions",)).explained < 0.02


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_saved_perceiver_sees_the_same(demos: Demos, tmp_path, name: str):
    short = Demos(demos.episodes[:6], HAND, HAND, rate=10.0)
    perceiver = FeaturesPerceiver.fit(short, ["image"], encoder=name)
    save_perceiver(perceiver, tmp_path / "saved")
    observation = {"image": draw(*poses(1, seed=9)[0]), "state": np.array([3.0, 4.0])}
    np.testing.assert_array_equal(
        load_perceiver(tmp_path / "saved").perceive(observation), perceiver.perceive(observation)
    )


def test_features_tell_where_the_hand_goes(demos: Demos):
    seen = perceive_demos(FeaturesPerceiver.fit(demos, ["image"]), demos)
    assert seen.observation_layout == features_layout(HAND, 12)
    np.testing.assert_array_equal(seen.all_observations()[:, :2], demos.all_observations())
    z, goal = seen.all_observations(), np.concatenate([episode.actions for episode in demos])
    z = np.c_[np.ones(len(z)), z]
    left = goal - z @ np.linalg.lstsq(z, goal, rcond=None)[0]
    assert np.square(left).sum() < 0.1 * np.square(goal - goal.mean(axis=0)).sum()


@pytest.fixture(scope="module")
def perceiver(demos: Demos) -> FeaturesPerceiver:
    return FeaturesPerceiver.fit(demos, ["image"])


def perceived(perceiver: FeaturesPerceiver, image: np.ndarray) -> np.ndarray:
    return perceiver.perceive({"image": image, "state": np.array([3.0, 4.0])})


@pytest.mark.parametrize("shift", [(3, 0), (-3, 1), (-6, 3), (5, -4)])
def test_a_moved_camera_is_refused(perceiver: FeaturesPerceiver, shift: tuple[int, int]):
    for one in pictures(8, seed=5):
        perceived(perceiver, one)
        large = np.pad(one, ((8, 8), (8, 8), (0, 0)), mode="edge")
        moved = large[8 + shift[0] : 8 + shift[0] + HEIGHT, 8 + shift[1] : 8 + shift[1] + WIDTH]
        with pytest.raises(DataError, match="has the camera moved"):
            perceived(perceiver, moved)


def test_other_light_noise_and_places_are_not_refused(perceiver: FeaturesPerceiver):
    rng = np.random.default_rng(0)
    for one in pictures(8, seed=6):
        for light in (0.6, 0.8, 1.1):
            noisy = light * one + rng.normal(0, 2, one.shape)
            assert np.isfinite(perceived(perceiver, np.clip(noisy, 0, 255).astype(np.uint8))).all()


def test_colors_in_another_order_and_things_in_the_way_are_refused(perceiver: FeaturesPerceiver):
    for one in pictures(8, seed=7):
        with pytest.raises(DataError, match="found BGR; reverse them"):
            perceived(perceiver, np.ascontiguousarray(one[..., ::-1]))
        hidden = one.copy()
        hidden[:30, :30] = (90, 20, 160)
        with pytest.raises(DataError, match="of the picture changed; has the camera moved, or is something in the way"):
            perceived(perceiver, hidden)


def test_a_camera_that_moves_in_the_demonstrations_may_move():
    rng = np.random.default_rng(0)
    moving = [np.roll(one, rng.integers(-30, 30, 2), (0, 1)) for one in rng.integers(0, 255, (40, 60, 80, 3), np.uint8)]
    scene = UsualScene.learn(moving)
    scene.check(np.roll(moving[0], 7, 0))


def test_an_image_of_another_size_in_demonstrations_is_named(demos: Demos):
    class Cut:
        def read(self, numbers):
            return (draw(*poses(1, seed=n)[0])[: 40 if n == 7 else HEIGHT] for n in numbers)

    bad = Episode(demos[0].observations, demos[0].actions, images={"image": Images(Cut(), 0, len(demos[0]))})
    many = [demos[i % 20] for i in range(60)]  # so that not all images are among those that are learned from
    mixed = Demos([*many, bad], HAND, HAND, rate=10.0)
    with pytest.raises(DataError, match=r"episode 60, step 7: expected a picture of 88x72 pixels, .* found 88x40"):
        FeaturesPerceiver.fit(mixed, ["image"])


def test_among_rotations_features_do_not_turn():
    turning = features_layout(Layout.parse("hand position 3, hand quaternion 4"), 12)
    assert turning.entries[-1].kind == "other"
    assert [entry.size for entry in features_layout(Layout.parse("hand position 3"), 12).entries[1:]] == [3] * 4


def test_bad_input(demos: Demos, tmp_path):
    with pytest.raises(ConfigError, match="expected an encoder of colors"):
        FeaturesPerceiver.fit(demos, ["image"], encoder="magic")
    with pytest.raises(ConfigError, match="multiple of 6"):
        FeaturesPerceiver.fit(demos, ["image"], rank=7)
    perceiver = FeaturesPerceiver.fit(Demos(demos.episodes[:6], HAND, HAND, rate=10.0), ["image"])
    facts, arrays = perceiver.to_parts()
    with pytest.raises(ValueError, match="a projection of"):
        FeaturesPerceiver.from_parts(perceiver.shapes, HAND, facts, {**arrays, "matrix": arrays["matrix"][1:]})
    with pytest.raises(ValueError, match="a background of"):
        FeaturesPerceiver.from_parts(
            perceiver.shapes, HAND, facts, {**arrays, "scene_0.background": arrays["scene_0.background"][1:]}
        )
    with pytest.raises(ValueError, match="not finite"):
        FeaturesPerceiver.from_parts(perceiver.shapes, HAND, facts, {**arrays, "offset": arrays["offset"] * np.nan})


def test_torch_modules_are_encoders_with_weights_from_a_file(demos: Demos, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    module = torch.nn.Conv2d(3, 6, 5, stride=4)
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    encoder = TorchEncoder(torch.nn.Conv2d(3, 6, 5, stride=4), tmp_path / "weights.safetensors")
    shown = pictures(2)
    with torch.no_grad():
        expected = module(torch.from_numpy(shown.transpose(0, 3, 1, 2).astype(np.float32) / 128 - 1)).numpy()
    np.testing.assert_allclose(encoder(shown), expected, atol=1e-6)
    perceiver = FeaturesPerceiver.fit(Demos(demos.episodes[:6], HAND, HAND, rate=10.0), ["image"], encoder=encoder)
    with pytest.raises(ConfigError, match="found a torch module"):
        save_perceiver(perceiver, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(LoadError, match=r"broken\.safetensors: expected the weights"):
        TorchEncoder(module, tmp_path / "broken.safetensors")


def test_a_pretrained_encoder_is_an_extra():
    try:
        encoder = make_encoder("lite0", pictures(2))
    except MissingExtraError as error:
        assert "lite0" in str(error)
    else:
        assert encoder(pictures(2)).shape == (2, 24, HEIGHT // 4, WIDTH // 4)
