"""Files that were made to mislead: each is refused in one line, before anything large is allocated."""

import json
import zipfile
import zlib
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from closedform import ClosedFormError, Demos, load_demos, save_demos
from closedform.cli.data import _numbers
from closedform.demos.formats import sizes
from closedform.demos.formats.parquet_footer import decoded_size
from tests.conftest import planar_demos

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def demos():
    return planar_demos(np.random.default_rng(0), n_episodes=3, n_steps=8)


def refused(source, message, **options):
    with pytest.raises(ClosedFormError, match=message) as caught:
        load_demos(source, **options)
    assert "\n" not in str(caught.value)


# HDF5


def robomimic(path):
    with h5py.File(path, "w") as file:
        file["data/demo_0/obs/object"] = np.ones((4, 2))
        file["data/demo_0/actions"] = np.ones((4, 1))
    return path


def minari(path):
    with h5py.File(path, "w") as file:
        file["episode_0/observations"] = np.ones((4, 2))
        file["episode_0/actions"] = np.ones((4, 1))
    return path


@pytest.mark.parametrize("make", [robomimic, minari])
@pytest.mark.parametrize("where", ["the root", "an episode", "an array", "a soft link to it"])
def test_links_to_other_files_are_refused(tmp_path, make, where):
    make(tmp_path / "other.hdf5")
    path = make(tmp_path / "demos.hdf5")
    episode, root = ("data/demo_0", "data") if make is robomimic else ("episode_0", "episode_0")
    with h5py.File(path, "a") as file:
        if where == "a soft link to it":
            file["elsewhere"] = h5py.ExternalLink("other.hdf5", f"{episode}/actions")
            del file[f"{episode}/actions"]
            file[f"{episode}/actions"] = h5py.SoftLink("/elsewhere")
        else:
            name = {"the root": root, "an episode": episode, "an array": f"{episode}/actions"}[where]
            del file[name]
            file[name] = h5py.ExternalLink("other.hdf5", name)
    refused(path, "expected '.*' to lie in this file, found a link to elsewhere")


@pytest.mark.parametrize("make", [robomimic, minari])
def test_links_inside_of_the_file_are_followed(tmp_path, make):
    path = make(tmp_path / "demos.hdf5")
    episode = "data/demo_0" if make is robomimic else "episode_0"
    with h5py.File(path, "a") as file:
        file.move(f"{episode}/actions", "kept/a")
        file[f"{episode}/actions"] = h5py.SoftLink("/kept/b")
        file["kept/b"] = h5py.SoftLink("a")
    np.testing.assert_array_equal(load_demos(path).all_actions(), np.ones((4, 1)))
    with h5py.File(path, "a") as file:
        del file["kept/a"]
        file["kept/a"] = h5py.SoftLink("/kept/b")
    refused(path, "link to elsewhere")


@pytest.mark.parametrize("make", [robomimic, minari])
@pytest.mark.parametrize("kind", ["external storage", "virtual"])
def test_numbers_of_other_files_are_refused(tmp_path, make, kind):
    secret = tmp_path / "secret"
    secret.write_bytes(np.full((4, 1), 42.0).tobytes())
    path = make(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        name = "data/demo_0/actions" if make is robomimic else "episode_0/actions"
        del file[name]
        if kind == "virtual":
            make(tmp_path / "other.hdf5")
            layout = h5py.VirtualLayout((4, 1), float)
            layout[:] = h5py.VirtualSource(tmp_path / "other.hdf5", name, (4, 1))
            file.create_virtual_dataset(name, layout)
        else:
            file.create_dataset(name, (4, 1), float, external=[(str(secret), 0, 32)])
    refused(path, "expected numbers in this file, found that they lie in other files")


@pytest.mark.parametrize("make", [robomimic, minari])
@pytest.mark.parametrize("chunks", [None, (2, 1)])
def test_what_was_never_written_is_not_zeros(tmp_path, make, chunks):
    path = make(tmp_path / "demos.hdf5")
    name = "data/demo_0/actions" if make is robomimic else "episode_0/actions"
    with h5py.File(path, "a") as file:
        del file[name]
        dataset = file.create_dataset(name, (4, 1), float, chunks=chunks)
        if chunks:
            dataset[:2] = 1
    refused(path, "expected (2 chunks, found 1|32 bytes, found 32) that were never written")
    with h5py.File(path, "a") as file:
        dataset: Any = file[name]
        dataset[...] = 0
    assert (load_demos(path).all_actions() == 0).all()


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"compression": "lzf"}, {"fletcher32": True}], ids=str)
def test_filters_that_come_with_hdf5_are_read(tmp_path, options):
    path = robomimic(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        file.create_dataset("data/demo_0/actions", data=np.arange(4.0)[:, None], shuffle=True, **options)
    np.testing.assert_array_equal(load_demos(path).all_actions()[:, 0], np.arange(4))


def test_filters_that_hdf5_would_load_are_refused(tmp_path):
    path = robomimic(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4, 1))
        properties.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((4, 1))
        created = h5py.h5d.create(file["data/demo_0"].id, b"actions", h5py.h5t.IEEE_F64LE, space, dcpl=properties)
        h5py.Dataset(created)[...] = 1
    refused(path, "expected filters that come with HDF5 .*, found number 32015")


def test_minari_groups_that_contain_themselves_are_refused(tmp_path):
    with h5py.File(tmp_path / "demos.hdf5", "w") as file:
        group = file.create_group("episode_0/observations")
        for name in "abcdefgh":
            group[name] = group
        file["episode_0/actions"] = np.ones((4, 1))
    refused(tmp_path / "demos.hdf5", "expected each group once")


# Size


def bomb_npz(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (("actions", np.zeros((2, 1))), ("episode_ends", np.array([2]))):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
        with archive.open("observations.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (6_000, 500)})
            for _ in range(6):
                file.write(bytes(4_000_000))
    return path


def bomb_npy(path):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": [("obs", "<f8")], "fortran_order": False, "shape": (10**9,)}
        )
    return path


def bomb_hdf5(path):
    robomimic(path)
    with h5py.File(path, "a") as file:
        del file["data/demo_0/obs/object"]
        file.create_dataset("data/demo_0/obs/object", (10**8, 10), "f4", chunks=(10**6, 10), compression="gzip")
    return path


def bomb_parquet(path):
    lerobot(path)
    n = 3_000_000
    table = {
        name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), pa.array([value])).cast(kind)
        for name, value, kind in (("observation.state", 0.0, pa.float64()), ("action", 0.0, pa.float64()))
    }
    table["episode_index"] = pa.array(np.zeros(n, np.int64))
    pq.write_table(pa.table(table), path / "data" / "chunk-000" / "file-000.parquet")
    return path


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (bomb_npz, "24.0 MB up to observations"),
        (bomb_npy, "8.0 GB up to bomb"),
        (bomb_hdf5, "4.0 GB up to /data/demo_0/obs/object"),
        (bomb_parquet, "72.0 MB up to file-000.parquet"),
    ],
)
def test_bombs_are_refused_with_the_size_they_would_have_had(tmp_path, monkeypatch, make, found):
    """The rule is tried at a hundredth of its size, so that making the files does not take long."""
    monkeypatch.setattr(sizes, "ALWAYS", sizes.ALWAYS // 100)
    path = make(tmp_path / "bomb")
    for module in ("numpy.frombuffer", "pyarrow.parquet.ParquetFile.read", "h5py.Dataset.__getitem__"):
        if make is not bomb_npz:  # whose other arrays come first
            monkeypatch.setattr(module, lambda *_, **__: pytest.fail("something was read"))
    refused(path, f"expected at most .* of numbers, .*, found {found}, from .* of files; .* set CLOSEDFORM_LARGEST")


def test_a_limit_can_be_set_and_is_the_memory_that_is_free(tmp_path, monkeypatch, demos):
    save_demos(demos, tmp_path / "demos")
    monkeypatch.setenv(sizes.VARIABLE, "1K")
    refused(tmp_path / "demos", "expected at most 1.0 kB of numbers, which is CLOSEDFORM_LARGEST")
    monkeypatch.setenv(sizes.VARIABLE, "1M")
    assert load_demos(tmp_path / "demos").n_steps == 24
    monkeypatch.setenv(sizes.VARIABLE, "much")
    refused(tmp_path / "demos", "expected bytes, such as 2000000000 or 20G, found 'much'")
    monkeypatch.delenv(sizes.VARIABLE)
    monkeypatch.setattr(sizes, "free_memory", lambda: 1000)
    refused(tmp_path / "demos", "expected at most 1.0 kB of numbers, which is the memory that is free")


def test_a_chunk_of_hdf5_that_decodes_to_more_than_its_place_is_refused(tmp_path):
    path = robomimic(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        dataset = file.create_dataset("data/demo_0/actions", (4, 1), float, chunks=(4, 1), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(20_000_000)))
    refused(path, "expected chunks of 32 bytes, found one of .* before it is decoded")


def test_the_footer_of_parquet_says_how_much_there_is(tmp_path):
    """Also where columns are lists, and where pyarrow itself would end the process: a footer with other statistics."""
    lists = pa.array([[1.0, 2.0, 3.0]] * 70, pa.list_(pa.float32()))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(140)), 2)
    table = pa.table({"a.b": lists, "a": np.arange(70), "fixed": fixed, "c": [True] * 70, "a.bc": np.zeros(70)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=20)
    for columns, expected in ((["a.b"], 70 * 3 * 4), (["fixed"], 70 * 2 * 8), (["c"], 70 * 8), (["c", "a.bc"], 1120)):
        assert decoded_size(tmp_path / "x.parquet", columns) == expected
    data = (tmp_path / "x.parquet").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(len(data) - 2000, len(data))] ^= 1 << rng.integers(8)
        (tmp_path / "y.parquet").write_bytes(damaged)
        try:
            assert decoded_size(tmp_path / "y.parquet", ["a.b"]) >= 0
        except ClosedFormError as error:
            assert "parquet" in str(error)


def test_a_damaged_heap_of_strings_does_not_hang(tmp_path, demos):
    """HDF5 itself looks for the next string for ever where one has no size."""
    save_demos(demos, tmp_path / "demos.hdf5")
    data = bytearray((tmp_path / "demos.hdf5").read_bytes())
    at = data.index(b"GCOL") + 16
    data[at : at + 16] = bytes(16)
    (tmp_path / "demos.hdf5").write_bytes(data)
    refused(tmp_path / "demos.hdf5", "found a damaged heap of them at byte")


def test_headers_that_promise_more_than_there_is_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, [("obs", float), ("act", float), ("episode", int)]))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"'shape': (4,)", b"'shape': (9,)"))
    refused(tmp_path / "a.npy", "expected 216 bytes of a.npy as its header says, found 96")


# LeRobot


def lerobot(path, **facts):
    (path / "meta").mkdir(parents=True)
    (path / "data" / "chunk-000").mkdir(parents=True)
    features = {"observation.state": {"dtype": "float64", "shape": [1]}, "action": {"dtype": "float64", "shape": [1]}}
    info = {"codebase_version": "v3.0", "fps": 10, "features": features} | facts
    (path / "meta" / "info.json").write_text(json.dumps(info))
    return path


def add_file(path, number, episodes, **columns):
    n = len(episodes)
    table = {"observation.state": np.arange(n) + 0.5, "action": np.zeros(n), "episode_index": episodes, **columns}
    pq.write_table(pa.table(table), path / "data" / "chunk-000" / f"file-{number:03d}.parquet")


FEATURES = {"observation.state": {"dtype": "float64", "shape": [1]}, "action": {"dtype": "float64", "shape": [1]}}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"fps": 10**400}, "steps a second between .*, found a number too large"),
        ({"fps": 0}, "steps a second between .*, found 0"),
        ({"fps": -5}, "found -5"),
        ({"fps": float("nan")}, "found nan"),
        ({"fps": float("inf")}, "found a number too large"),
        ({"fps": True}, "expected a number of steps a second, found True"),
        ({"fps": "10"}, "expected a number of steps a second, found '10'"),
        ({"features": FEATURES | {"action": {"shape": None}}}, "the shape of action in whole numbers, found None"),
        ({"features": FEATURES | {"action": {"shape": ["1"]}}}, "the shape of action in whole numbers"),
        ({"features": FEATURES | {"action": {"shape": [2**70]}}}, "the shape of action in whole numbers"),
        ({"features": FEATURES | {"action": {"shape": [2]}}}, "expected action of 2 numbers, found 1"),
        ({"features": [1]}, "description of features"),
        ({"features": FEATURES | {"x": 1}}, "described by a dictionary"),
        ({"codebase_version": ["v3.0"]}, "expected a version"),
        ({"total_frames": 7}, "expected 7 frames as info.json says, found 4"),
        ({"total_episodes": 7}, "expected 7 episodes as info.json says, found 2"),
        ({"closedform": {"action_layout": 5}}, "expected action_layout to be a layout"),
        ({"closedform": {"action_layout": [{"kind": [], "size": 1}]}}, "expected action_layout to be a layout"),
        ({"closedform": {"closedform_checksums": 5}}, "expected closedform_checksums"),
    ],
    ids=str,
)
def test_odd_descriptions_of_lerobot_are_refused(tmp_path, facts, message):
    path = lerobot(tmp_path / "lr", **facts)
    add_file(path, 0, [0, 0, 1, 1])
    refused(path, message)


@pytest.mark.parametrize("order", ["frame_index", "index", "timestamp", None])
def test_files_with_the_same_episode_are_not_mixed(tmp_path, order):
    path = lerobot(tmp_path / "lr")
    frames = {"frame_index": [0, 1, 2], "index": [0, 1, 2], "timestamp": [0.0, 0.1, 0.2]}
    columns = {order: frames[order]} if order else {}
    add_file(path, 0, [0, 0, 0], **columns)
    add_file(path, 1, [0, 0, 0], **columns)
    refused(path, "(expected each frame of episode 0 once|found episode 0 twice: file-000.parquet, file-001.parquet)")


def test_an_episode_that_goes_on_in_another_file_is_put_together(tmp_path):
    path = lerobot(tmp_path / "lr")
    add_file(path, 0, [1, 1, 0], frame_index=[2, 3, 0])
    add_file(path, 1, [0, 1, 1], frame_index=[1, 0, 1])
    found = load_demos(path)
    assert [episode.observations[:, 0].tolist() for episode in found] == [[2.5, 0.5], [1.5, 2.5, 0.5, 1.5]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"frame_index": [0, 1, 3, 0]}, "each frame of episode 0 once"),
        ({"frame_index": [1, 2, 3, 0]}, "each frame of episode 0 once"),
        ({"frame_index": [0, 1, np.nan, 0]}, "each frame of episode 0 once"),
        ({"index": [5, 5, 6, 7]}, "each frame of episode 0 once"),
        ({"timestamp": [0.0, 0.1, 0.1, 0]}, "each frame of episode 0 once"),
        ({"episode_index": [0, np.nan, 0, 1]}, "expected episode_index of whole numbers, found nan"),
        ({"episode_index": [0, 0.5, 0, 1]}, "expected episode_index of whole numbers, found 0.5"),
        ({"episode_index": [0, 1, 0, 1]}, "expected the frames of an episode together, found episode 0 twice"),
        ({"episode_index": ["a", "a", "a", "b"]}, "expected episode_index to be numbers"),
    ],
    ids=str,
)
def test_frames_that_are_lost_or_double_are_noticed(tmp_path, columns, message):
    path = lerobot(tmp_path / "lr")
    add_file(path, 0, columns.pop("episode_index", [0, 0, 0, 1]), **columns)
    refused(path, message)


def test_lengths_of_episodes_are_compared_with_the_table_of_episodes(tmp_path, demos):
    save_demos(demos, tmp_path / "lr", "lerobot")
    table = tmp_path / "lr" / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    pq.write_table(pa.table({"episode_index": [0, 1, 2], "length": [8, 7, 8]}), table)
    refused(tmp_path / "lr", "expected 7 frames as meta/episodes says of episode 1, found 8 frames")
    table.unlink()
    lines = [json.dumps({"episode_index": i, "length": 8, "quality": 0.5}) for i in range(2)]
    (tmp_path / "lr" / "meta" / "episodes.jsonl").write_text("\n".join(lines))
    refused(tmp_path / "lr", "expected no such episode as meta/episodes says of episode 2")


# JSON, rates, numbers and options


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "own" / "demos.json").write_text(DEEP),
        lambda folder: (folder / "own" / "demos.json").write_text(
            '{"format": "closedform-demos", "rate": ' + DEEP + "}"
        ),
        lambda folder: (folder / "lr" / "meta" / "info.json").write_text(DEEP),
        lambda folder: (
            (folder / "lr" / "meta" / "tasks.parquet").unlink()
            or (folder / "lr" / "meta" / "tasks.jsonl").write_text(DEEP)
        ),
        lambda folder: (folder / "z.zarr" / ".zattrs").write_text(json.dumps({"observation_layout": DEEP})),
        lambda folder: (folder / "z.zarr" / ".zattrs").write_text(DEEP),
        lambda folder: (folder / "z.zarr" / "data" / "state" / ".zarray").write_text(DEEP),
        lambda folder: set_attribute(folder / "h.hdf5", "env_args", DEEP),
        lambda folder: set_attribute(folder / "h.hdf5", "action_layout", DEEP),
        lambda folder: set_attribute(folder / "h.hdf5", "env_args", 5),
    ],
)
def test_json_without_end_is_refused_everywhere(tmp_path, demos, change):
    for name, to in (("own", None), ("z.zarr", None), ("h.hdf5", None), ("lr", "lerobot")):
        save_demos(demos, tmp_path / name, to)
    change(tmp_path)
    failures = []
    for name in ("own", "z.zarr", "h.hdf5", "lr"):
        try:
            load_demos(tmp_path / name)
        except ClosedFormError as error:
            failures.append(str(error))
    assert len(failures) == 1 and ("JSON" in failures[0] or "nested" in failures[0])


def set_attribute(path, name, value):
    with h5py.File(path, "a", libver="latest") as file:
        attributes = file["data"].attrs
        del attributes[name]
        attributes.create(name, value[:30_000] + value[-30_000:] if isinstance(value, str) else value)


@pytest.mark.parametrize("rate", [float("nan"), 0, -5, float("inf"), 10**400, 1e-300, True, "20", [20]], ids=repr)
def test_rates_that_are_none_are_refused_in_every_format(tmp_path, demos, rate):
    with pytest.raises(ClosedFormError, match="steps a second"):
        Demos(demos, rate=rate)
    with pytest.raises(ClosedFormError, match="steps a second"):
        demos.rate = rate
    for name, to in (("own", None), ("z.zarr", None), ("h.hdf5", None), ("lr", "lerobot")):
        save_demos(demos, tmp_path / name, to)
    texts = [("own/demos.json", "rate"), ("z.zarr/.zattrs", "rate"), ("lr/meta/info.json", "fps")]
    for file, key in texts:
        facts = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps(facts | {key: rate}))
    for name in ("own", "z.zarr", "lr"):
        refused(tmp_path / name, "steps a second")
    with h5py.File(tmp_path / "h.hdf5", "a") as file:
        file["data"].attrs["env_args"] = json.dumps({"env_name": "x", "env_kwargs": {"control_freq": rate}})
    refused(tmp_path / "h.hdf5", "steps a second")


@pytest.mark.parametrize("numbers", [[0, np.nan, 0, 0], [0, 0.5, 1, 1], [0, np.inf, np.inf, 1]], ids=str)
def test_episode_numbers_that_are_not_whole_are_refused(tmp_path, numbers):
    np.savez(tmp_path / "a.npz", obs=np.zeros((4, 1)), action=np.zeros((4, 1)), episode=numbers)
    refused(tmp_path / "a.npz", "the episode of each step of whole numbers")
    rows = "\n".join(f"{number},0,0" for number in numbers)
    (tmp_path / "a.csv").write_text(f"episode,obs,act\n{rows}\n")
    refused(tmp_path / "a.csv", "the episode of each step of whole numbers")


def test_options_are_not_ignored(tmp_path, demos):
    save_demos(demos, tmp_path / "own")
    refused(tmp_path / "own", "without keys to choose from", observation_keys=["hand"])
    refused(tmp_path / "own", "without keys to choose from", action_key="torque")
    refused(tmp_path / "own", "masks and absolute actions are for robomimic files", mask="train")
    assert len(load_demos(tmp_path / "own", observation_keys=["observations"], action_key="actions")) == 3
    for options in ({"observation_keys": ["x"]}, {"action_key": "x"}, {"mask": "x"}, {"actions": "absolute"}):
        refused(list(demos), "are for files, found a list of arrays", **options)
    refused(list(demos), "expected episodes from 0 to 2, asked for 3", episodes=[3])
    refused(tmp_path / "own", "expected whole numbers", episodes=[0.5])
    refused(tmp_path / "own", "expected whole numbers", episodes=[True])
    refused(tmp_path / "own", "expected at most 1000000 numbers", episodes=range(10**12))
    refused("x" * 5000, "expected a path that can be looked at")
    refused("a\0b", "expected")


@pytest.mark.parametrize("text", ["²", "1:²", "9" * 5000, "0:" + "9" * 5000, "-1", "٣", "1:2:3", ""])
def test_numbers_of_episodes_are_plain_digits(text):
    with pytest.raises(ClosedFormError, match="such as 0:10,15"):
        _numbers(text)


def test_ranges_of_episodes_are_counted_before_they_are_written_out():
    assert _numbers(" 0:3,7 ") == [0, 1, 2, 7]
    for text in ("0:99999999999", ",".join(["0:999999"] * 3)):
        with pytest.raises(ClosedFormError, match="expected at most 1000000 numbers"):
            _numbers(text)
