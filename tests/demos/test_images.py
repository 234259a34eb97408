"""Images in demonstrations: read where they are, one after the other, and written back; damage is said in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from closedform.cli import main
from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.formats.image_files import encode_image
from closedform.demos.images import Images, as_image
from closedform.demos.load import load_demos, save_demos
from closedform.errors import DataError, LoadError

pytest.importorskip("cv2")
LENGTHS = (7, 5, 9)


class Made:
    """Images that are made when they are read; counts how many were."""

    def __init__(self, seed: int):
        self.seed, self.count = seed, 0

    def __str__(self) -> str:
        return "made"

    def read(self, numbers):
        for number in numbers:
            self.count += 1
            yield made(self.seed, number)


def made(seed: int, number: int) -> np.ndarray:
    """A smooth image, which a video keeps almost as it is."""
    y, x = np.mgrid[:48, :64]
    return np.stack([2 * x + 9 * number, 3 * y + 20 * seed, 100 + 0 * x + 5 * number], -1).astype(np.uint8)


@pytest.fixture
def demos() -> Demos:
    rng = np.random.default_rng(0)
    return Demos(
        [
            Episode(rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), images={"top": Images(Made(i), 0, n)})
            for i, n in enumerate(LENGTHS)
        ],
        rate=10.0,
    )


def write_pngs(folder, lengths=LENGTHS) -> None:
    for seed, n in enumerate(lengths):
        (folder / f"episode_{seed:06d}").mkdir(parents=True)
        for number in range(n):
            (folder / f"episode_{seed:06d}" / f"{number}.png").write_bytes(encode_image(made(seed, number)))


def check(found: Demos, camera: str, tolerance: int = 0) -> None:
    assert found.cameras == (camera,)
    for seed, episode in enumerate(found):
        images = episode.images[camera]
        assert len(images) == LENGTHS[seed]
        for number, image in enumerate(images):
            assert image.dtype == np.uint8
            assert np.abs(image.astype(int) - made(seed, number)).max() <= tolerance
        assert np.abs(images[-1].astype(int) - made(seed, LENGTHS[seed] - 1)).max() <= tolerance
        (second, last) = images.at([1, 4])
        assert np.abs(second.astype(int) - made(seed, 1)).max() <= tolerance
        assert np.abs(last.astype(int) - made(seed, 4)).max() <= tolerance


def test_nothing_is_read_before_it_is_needed(demos: Demos):
    source = demos[0].images["top"].source
    part = demos.where(np.arange(demos.n_steps) % 7 < 5)[0].images["top"]
    assert len(part) == 5
    assert isinstance(source, Made)
    assert source.count == 0
    np.testing.assert_array_equal(part[2:][1], made(0, 3))
    assert source.count == 1


@pytest.mark.parametrize("name", ["some.zarr", "some.zarr.zip"])
def test_zarr_keeps_them_exactly(demos: Demos, tmp_path, name: str):
    pytest.importorskip("zarr")
    save_demos(demos, tmp_path / name)
    found = load_demos(tmp_path / name)
    check(found, "top")
    np.testing.assert_array_equal(found.all_actions(), demos.all_actions())


def test_zarr_itself_reads_what_was_written(demos: Demos, tmp_path):
    zarr = pytest.importorskip("zarr")
    save_demos(demos, tmp_path / "some.zarr")
    images = zarr.open_group(str(tmp_path / "some.zarr"), mode="r")["data/top"]
    assert images.shape == (sum(LENGTHS), 48, 64, 3)
    np.testing.assert_array_equal(images[LENGTHS[0] + 2], made(1, 2))


def test_diffusion_policys_images_of_floating_point_numbers(demos: Demos, tmp_path):
    zarr = pytest.importorskip("zarr")
    group = zarr.create_group(str(tmp_path / "some.zarr"), zarr_format=2)
    images = np.concatenate([np.stack(list(episode.images["top"])) for episode in demos]).astype(np.float32)
    group.create_array("data/img", data=images, chunks=(4, 48, 64, 3))
    group.create_array("data/state", data=demos.all_observations())
    group.create_array("data/action", data=demos.all_actions())
    group.create_array("meta/episode_ends", data=np.cumsum(LENGTHS))
    check(load_demos(tmp_path / "some.zarr"), "img")


def test_lerobot_keeps_them_as_a_video(demos: Demos, tmp_path):
    pytest.importorskip("av")
    save_demos(demos, tmp_path / "some", "lerobot")
    found = load_demos(tmp_path / "some")
    assert not found.skipped
    check(found, "observation.images.top", tolerance=12)


def test_lerobot_v2_has_a_video_for_each_episode(demos: Demos, tmp_path):
    pytest.importorskip("av")
    from closedform.demos.formats.video_images import encode_video

    save_demos(demos, tmp_path / "some", "lerobot")
    name = "observation.images.top"
    for seed, episode in enumerate(demos):
        file = tmp_path / "some" / "videos" / "chunk-000" / name / f"episode_{seed:06d}.mp4"
        file.parent.mkdir(parents=True, exist_ok=True)
        encode_video(episode.images["top"], 10.0, file)
    info = tmp_path / "some" / "meta" / "info.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "codebase_version": "v2.1"}))
    check(load_demos(tmp_path / "some"), name, tolerance=12)


def test_lerobot_has_images_in_its_tables(demos: Demos, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    save_demos(Demos([(e.observations, e.actions) for e in demos], rate=10.0), tmp_path / "some", "lerobot")
    file = next((tmp_path / "some" / "data").rglob("*.parquet"))
    rows = [
        {"bytes": encode_image(made(i, n)), "path": None} for i, length in enumerate(LENGTHS) for n in range(length)
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = parquet.read_table(file)
    parquet.write_table(table.append_column("observation.image", pa.array(rows, kind)), file)
    info = tmp_path / "some" / "meta" / "info.json"
    content = json.loads(info.read_text())
    content["features"]["observation.image"] = {"dtype": "image", "shape": [48, 64, 3], "names": None}
    info.write_text(json.dumps(content))
    check(load_demos(tmp_path / "some"), "observation.image")


def test_robomimic(demos: Demos, tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "some.hdf5", "w") as file:
        for i, episode in enumerate(demos):
            group = file.create_group(f"data/demo_{i}")
            group["obs/robot0_eef_pos"], group["actions"] = episode.observations, episode.actions
            group["obs/agentview_image"] = np.stack(list(episode.images["top"]))
    check(load_demos(tmp_path / "some.hdf5"), "agentview_image")


def test_a_folder_of_image_files(demos: Demos, tmp_path):
    plain = Demos([(episode.observations, episode.actions) for episode in demos])
    save_demos(plain, tmp_path / "plain")
    write_pngs(tmp_path / "pngs")
    check(load_demos(tmp_path / "plain", images=tmp_path / "pngs"), "image")
    assert load_demos(tmp_path / "plain", images=tmp_path / "pngs", episodes=[2])[0].images["image"][3][0, 0, 1] == 40
    write_pngs(tmp_path / "plain" / "images" / "top")
    check(load_demos(tmp_path / "plain"), "top")


def test_image_files_that_do_not_fit(demos: Demos, tmp_path):
    plain = Demos([(episode.observations, episode.actions) for episode in demos])
    write_pngs(tmp_path / "few", (7, 5, 8))
    with pytest.raises(LoadError, match=r"few: an episode has as many images as actions, found 8 of 'image' and 9"):
        load_demos(plain, images=tmp_path / "few")
    write_pngs(tmp_path / "two", (7, 5))
    with pytest.raises(LoadError, match=r"expected the images of episode 2 in episode_000002, found none"):
        load_demos(plain, images=tmp_path / "two")
    write_pngs(tmp_path / "bad")
    (tmp_path / "bad" / "episode_000001" / "3.png").write_bytes(b"no image")
    found = load_demos(plain, images=tmp_path / "bad")
    with pytest.raises(LoadError, match=r"3\.png: expected an image, found something else or a damaged file"):
        list(found[1].images["image"])


def lerobot(demos: Demos, tmp_path):
    pytest.importorskip("av")
    save_demos(demos, tmp_path / "some", "lerobot")
    return next((tmp_path / "some" / "videos").rglob("*.mp4"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "expected a complete video, found"),
        (lambda data: data[: len(data) // 2], "expected a complete video, found"),
        (lambda data: b"no video at all" * 100, "expected a complete video, found"),
        (None, "expected a video, found nothing there; was it downloaded"),
    ],
)
def test_damaged_videos(demos: Demos, tmp_path, damage, message: str):
    video = lerobot(demos, tmp_path)
    if damage is None:
        video.unlink()
    else:
        video.write_bytes(damage(video.read_bytes()))
    found = load_demos(tmp_path / "some")  # the numbers are there
    with pytest.raises(LoadError, match=message):
        list(found[2].images["observation.images.top"])


def test_a_video_with_overwritten_images(demos: Demos, tmp_path):
    video = lerobot(demos, tmp_path)
    data = bytearray(video.read_bytes())
    at = data.index(b"mdat") + 4
    data[at + 900 : at + 2900] = bytes(2000)
    video.write_bytes(data)
    with pytest.raises(LoadError, match=r"expected a complete video, found|expected an image at"):
        for episode in load_demos(tmp_path / "some"):
            list(episode.images["observation.images.top"])


def test_a_video_that_is_too_short(demos: Demos, tmp_path):
    from closedform.demos.formats.video_images import encode_video

    video = lerobot(demos, tmp_path)
    encode_video(demos[0].images["top"], 10.0, video)
    found = load_demos(tmp_path / "some")
    assert len(list(found[0].images["observation.images.top"])) == LENGTHS[0]
    with pytest.raises(LoadError, match=r"expected an image at 1\.200 s, found its end; is it complete\?"):
        list(found[2].images["observation.images.top"])


def test_as_many_images_as_steps():
    with pytest.raises(DataError, match="as many images as actions, found 4 of 'top' and 5 actions"):
        Episode(np.zeros((5, 1)), np.zeros((5, 1)), images={"top": Images(Made(0), 0, 4)})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((3, 48, 64), np.uint8), "move the channels last"),
        (np.zeros((48, 64), np.uint8), r"expected \(height, width, 3\)"),
        (np.zeros((48, 64, 3), np.int32), "expected uint8, found int32"),
        (np.full((48, 64, 3), 0.5), "found 0.5 to 0.5; multiply by 255"),
        (np.full((48, 64, 3), np.nan), "from 0 to 255, found nan"),
        (np.full((48, 64, 3), 300.0), "from 0 to 255, found 300"),
    ],
)
def test_arrays_that_are_no_images(image: np.ndarray, message: str):
    with pytest.raises(LoadError, match=message):
        as_image(image, "there")


def test_images_that_are_not_used_are_told(demos: Demos, tmp_path, capsys):
    save_demos(demos, tmp_path / "some.zarr")
    main(["fit", str(tmp_path / "some.zarr"), "-o", str(tmp_path / "policy")])
    assert f"images of {', '.join(demos.cameras)} are not used; closedform perceive makes" in capsys.readouterr().err
