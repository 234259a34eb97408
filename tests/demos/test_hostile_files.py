"""Files that were made to mislead: each is refused in one line, before anything large is allocated."""

import json
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from closedform import ClosedFormError, Demos, load_demos, save_demos
from closedform.demos.formats import sizes
from closedform.demos.formats.parquet_footer import decoded_size
from closedform.demos.options import _numbers
from tests.conftest import planar_demos
from tests.demos.bad_files import lerobot, refused, robomimic

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture
def demos():
    demos = planar_demos(np.random.default_rng(0), n_episodes=3, n_steps=8)
    demos.rate = 10.0
    return demos


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
    refused(tmp_path / "demos", "expected a number of bytes, such as 2000000000 or 20G, found 'much'")
    monkeypatch.delenv(sizes.VARIABLE)
    monkeypatch.setattr(sizes, "free_memory", lambda: 1000)
    refused(tmp_path / "demos", "expected at most 1.0 kB of numbers, which is the free memory")


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


def test_headers_that_promise_more_than_there_is_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(4, [("obs", float), ("act", float), ("episode", int)]))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"'shape': (4,)", b"'shape': (9,)"))
    refused(tmp_path / "a.npy", "expected 216 bytes of a.npy according to its header, found 96")


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
    with pytest.raises(ClosedFormError, match="steps per second"):
        Demos(demos, rate=rate)
    with pytest.raises(ClosedFormError, match="steps per second"):
        demos.rate = rate
    for name, to in (("own", None), ("z.zarr", None), ("h.hdf5", None), ("lr", "lerobot")):
        save_demos(demos, tmp_path / name, to)
    texts = [("own/demos.json", "rate"), ("z.zarr/.zattrs", "rate"), ("lr/meta/info.json", "fps")]
    for file, key in texts:
        facts = json.loads((tmp_path / file).read_text())
        (tmp_path / file).write_text(json.dumps(facts | {key: rate}))
    for name in ("own", "z.zarr", "lr"):
        refused(tmp_path / name, "steps per second")
    with h5py.File(tmp_path / "h.hdf5", "a") as file:
        file["data"].attrs["env_args"] = json.dumps({"env_name": "x", "env_kwargs": {"control_freq": rate}})
    refused(tmp_path / "h.hdf5", "steps per second")


@pytest.mark.parametrize("numbers", [[0, np.nan, 0, 0], [0, 0.5, 1, 1], [0, np.inf, np.inf, 1]], ids=str)
def test_episode_numbers_that_are_not_whole_are_refused(tmp_path, numbers):
    np.savez(tmp_path / "a.npz", obs=np.zeros((4, 1)), action=np.zeros((4, 1)), episode=numbers)
    refused(tmp_path / "a.npz", "the episode of each step to be whole numbers")
    rows = "\n".join(f"{number},0,0" for number in numbers)
    (tmp_path / "a.csv").write_text(f"episode,obs,act\n{rows}\n")
    refused(tmp_path / "a.csv", "the episode of each step to be whole numbers")


def test_options_are_not_ignored(tmp_path, demos):
    save_demos(demos, tmp_path / "own")
    refused(tmp_path / "own", "with no keys to choose from", observation_keys=["hand"])
    refused(tmp_path / "own", "with no keys to choose from", action_key="torque")
    refused(tmp_path / "own", "masks and absolute_6d apply to robomimic files only", mask="train")
    assert len(load_demos(tmp_path / "own", observation_keys=["observations"], action_key="actions")) == 3
    for options in ({"observation_keys": ["x"]}, {"action_key": "x"}, {"mask": "x"}):
        refused(list(demos), "apply to files only, found a list of arrays", **options)
    refused(list(demos), "applies to robomimic files only, found a list of arrays", actions="absolute_6d")
    refused(list(demos), "expected episodes from 0 to 2, found 3", episodes=[3])
    refused(tmp_path / "own", "expected whole numbers", episodes=[0.5])
    refused(tmp_path / "own", "expected whole numbers", episodes=[True])
    refused(tmp_path / "own", "expected at most 1000000 numbers", episodes=range(10**12))
    refused("x" * 5000, "expected an accessible path")
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


def test_bytes_behind_an_array_are_not_read(tmp_path):
    path = tmp_path / "long.npz"
    arrays = {"observations": np.zeros((2, 1)), "actions": np.zeros((2, 1)), "episode_ends": np.array([2])}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
                file.write(bytes(1000 if name == "actions" else 0))
    refused(path, "expected 16 bytes of actions according to its header, found 1016")


@pytest.mark.parametrize("kind", [pa.binary(1000), pa.string(), pa.list_(pa.binary())])
def test_bytes_in_place_of_numbers_are_refused_before_they_are_decoded(tmp_path, monkeypatch, kind):
    path = lerobot(tmp_path / "texts")
    value = ["x" * 1000] if pa.types.is_list(kind) else "x" * 1000
    table = pa.table(
        {"observation.state": pa.array([value] * 4, kind), "action": np.zeros(4), "episode_index": [0] * 4}
    )
    pq.write_table(table, path / "data" / "chunk-000" / "file-000.parquet")
    monkeypatch.setattr(pq.ParquetFile, "read", lambda *_, **__: pytest.fail("it was decoded"))
    refused(path, "expected observation.state to be numbers")


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_long_words_of_tasks_count_in_full(tmp_path, use_dictionary):
    table = pa.table({"task_index": np.arange(50), "task": [f"{n}".ljust(10_000) for n in range(50)]})
    path = tmp_path / "tasks.parquet"
    pq.write_table(table, path, compression="zstd", use_dictionary=use_dictionary, data_page_size=50_000)
    assert path.stat().st_size < 50_000
    assert 500_000 < decoded_size(path, ["task_index", "task"]) < 600_000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("place", ["", "episode_000000.safetensors", "main_data.hdf5", "data/chunk-000/0.parquet"])
def test_pipes_that_nobody_writes_to_are_refused(demos, tmp_path, place):
    path = tmp_path / "demos"
    if place.endswith("safetensors"):
        save_demos(demos, path)
        (path / place).unlink()
    elif place.endswith("parquet"):
        lerobot(path)
    elif place:
        path.mkdir()
    os.mkfifo(path / place)
    refused(path, "expected")


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_devices_are_no_demonstrations():
    refused("/dev/zero", "found a device or pipe")
