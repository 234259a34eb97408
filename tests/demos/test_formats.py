"""Every format: what is written is read back, real files are read, and damaged ones are refused."""

import json
import shutil

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormError, Demos, Layout, load_demos, save_demos
from closedform.cli import main
from closedform.geometry.so3 import (
    axis_angle_of,
    columns_of_quaternion,
    matrix_of_axis_angle,
    rotation_matrix,
    two_columns,
)
from tests.conftest import planar_demos, real_file

CHECKED = ("demos", "demos.zarr.zip", "a.npz")  # formats with checksums
TARGETS = [("demos", None), ("demos.zarr", None), ("demos.zarr.zip", None), ("demos.hdf5", None), ("lr", "lerobot")]


def assert_same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        for left, right in ((x.observations, y.observations), (x.actions, y.actions)):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


@pytest.fixture
def demos():
    demos = planar_demos(np.random.default_rng(0), n_episodes=4, n_steps=12)
    demos.rate = 20.0
    return demos


WORDS = st.text("abc_.[]0 é", min_size=1, max_size=6).map(str.strip).filter(bool)


@st.composite
def mixed_demos(draw):
    """Episodes of different lengths and dtypes, with names of their numbers or without."""
    widths = draw(st.tuples(st.integers(1, 4), st.integers(1, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    dtypes = st.sampled_from([np.float32, np.float64])
    episodes = []
    for length in draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)):
        episodes.append(tuple(rng.normal(size=(length, width)).astype(draw(dtypes)) for width in widths))
    demos = Demos(episodes, rate=draw(st.sampled_from([10.0, 29.97])))
    names = (draw(st.lists(WORDS, min_size=width, max_size=width, unique=True)) for width in widths)
    observed, commanded = (tuple(own) if draw(st.booleans()) else None for own in names)
    demos.column_names = observed, commanded
    return demos


@settings(max_examples=60)
@given(demos=mixed_demos(), target=st.sampled_from([*TARGETS, ("m.npz", None), ("m.csv", None)]))
def test_whatever_is_written_is_read_back(tmp_path_factory, demos, target):
    """An export of several recordings, such as the studio's, has episodes of several dtypes."""
    name, to = target
    path = tmp_path_factory.mktemp("mixed") / name
    save_demos(demos, path, to)
    read = load_demos(path)
    assert len(read) == len(demos)
    for written, found in zip(demos, read, strict=True):
        np.testing.assert_array_equal(found.observations, written.observations)
        np.testing.assert_array_equal(found.actions, written.actions)
    if name in ("demos", "lr"):
        assert read.column_names == demos.column_names
    if path.suffix == ".csv":
        for prefix, written, found in zip(("obs", "act"), demos.column_names, read.column_names, strict=True):
            if written is not None:
                assert found is not None
                assert all(a in (b, f"{prefix}_{b}") for a, b in zip(found, written, strict=True))
    if path.suffix not in (".npz", ".csv"):
        assert read.rate == demos.rate
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(("name", "to"), TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_round_trip_keeps_every_number(tmp_path, demos, name, to, dtype):
    demos = Demos(
        [(e.observations.astype(dtype), e.actions.astype(dtype)) for e in demos],
        demos.observation_layout,
        demos.action_layout,
        demos.rate,
    )
    save_demos(demos, tmp_path / name, to)
    read = load_demos(tmp_path / name)
    assert_same(read, demos)
    assert (read.observation_layout, read.action_layout) == (demos.observation_layout, demos.action_layout)
    assert read.rate == 20.0
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert_same(load_demos(tmp_path / name, episodes=[2, 0]), [demos[2], demos[0]])
    with pytest.raises(ClosedFormError, match="expected episodes from 0 to 3, found 4"):
        load_demos(tmp_path / name, episodes=[4])
    with pytest.raises(ClosedFormError, match="expected a path that does not exist yet"):
        save_demos(demos, tmp_path / name, to)


@pytest.mark.parametrize(("name", "to"), TARGETS)
def test_real_demonstrations_survive_every_format(tmp_path, pusht, lift, name, to):
    for index, real in enumerate((pusht[:20], lift)):
        target = tmp_path / str(index) / name
        save_demos(real, target, to)
        assert_same(load_demos(target), real)


@pytest.mark.parametrize("name", ["demos.npz", "demos.csv"])
def test_plain_arrays_are_written_as_well_as_read(tmp_path, demos, name):
    save_demos(demos, tmp_path / name)
    read = load_demos(tmp_path / name)
    assert_same(read, demos)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(ClosedFormError, match="expected a path that does not exist yet"):
        save_demos(demos, tmp_path / name)
    with pytest.raises(ClosedFormError, match=r"expected a name ending in \.csv, found none"):
        save_demos(demos, tmp_path / "other", "csv")


def test_a_csv_file_keeps_the_names_of_its_columns(tmp_path, demos):
    names = ["episode", "obs_x", "obs_y", "state_theta", "act_x", "act_y"]
    rows = [f"{i // 5},{i},{i * 0.1},{-i},{i / 3},{i / 7}" for i in range(10)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    read = load_demos(tmp_path / "a.csv")
    assert read.column_names == (("obs_x", "obs_y", "state_theta"), ("act_x", "act_y"))
    assert read[:1].column_names == read.column_names
    assert read.describe("observations", 2) == "state_theta"
    save_demos(read, tmp_path / "b.csv")
    again = load_demos(tmp_path / "b.csv")
    assert_same(again, read)
    assert again.column_names == read.column_names


def test_lists_of_arrays_are_demonstrations(demos):
    assert_same(load_demos([(e.observations, e.actions) for e in demos]), demos)
    assert_same(load_demos(list(demos), episodes=[1]), [demos[1]])


def lerobot_folder(folder):
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    shutil.copy(real_file("pusht", "lerobot_pusht_v3_info.json"), folder / "meta" / "info.json")
    shutil.copy(
        real_file("pusht", "lerobot_pusht_v3_file-000.parquet"), folder / "data" / "chunk-000" / "file-000.parquet"
    )
    return folder


def test_both_copies_of_pusht_are_the_same(tmp_path, pusht):
    copy = load_demos(lerobot_folder(tmp_path / "lr"))
    assert [len(e) for e in copy] == [len(e) for e in pusht]
    for a, b in zip(copy, pusht, strict=True):
        np.testing.assert_array_equal(a.observations, b.observations[:, :2])
        np.testing.assert_array_equal(a.actions, b.actions)
    assert copy.rate == 10.0 and copy.skipped == ("observation.image",)


def test_lerobot_v2_1_is_read(tmp_path, demos):
    (tmp_path / "meta").mkdir()
    (tmp_path / "data" / "chunk-000").mkdir(parents=True)
    features = {
        "observation.state": {"dtype": "float64", "shape": [5]},
        "action": {"dtype": "float64", "shape": [2]},
        "observation.images.top": {"dtype": "video", "shape": [3, 96, 96]},
    }
    info = {"codebase_version": "v2.1", "fps": 30, "total_frames": demos.n_steps, "features": features}
    (tmp_path / "meta" / "info.json").write_text(json.dumps(info))
    for index, episode in enumerate(demos):
        table = {
            "observation.state": episode.observations.tolist(),
            "action": episode.actions.tolist(),
            "episode_index": [index] * len(episode),
        }
        pq.write_table(pa.table(table), tmp_path / "data" / "chunk-000" / f"episode_{index:06d}.parquet")
    assert_same(load_demos(tmp_path), demos)


def test_lerobot_metadata_is_right(tmp_path, demos):
    save_demos(demos, tmp_path / "lr", "lerobot")
    info = json.loads((tmp_path / "lr" / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 4, 48)
    stats = json.loads((tmp_path / "lr" / "meta" / "stats.json").read_text())
    np.testing.assert_allclose(stats["action"]["mean"], demos.all_actions().mean(0))
    np.testing.assert_allclose(stats["observation.state"]["std"], demos.all_observations().std(0))
    assert stats["action"]["count"] == [48]
    table = pq.read_table(tmp_path / "lr" / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pydict()
    assert table["length"] == [12] * 4 and table["dataset_to_index"] == [12, 24, 36, 48]
    np.testing.assert_allclose(table["stats/action/max"][2], demos[2].actions.max(0))
    tasks = pq.read_table(tmp_path / "lr" / "meta" / "tasks.parquet")
    assert tasks.to_pydict() == {"task_index": [0], "__index_level_0__": ["demonstration"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["__index_level_0__"]


def test_lerobot_tasks_are_kept(tmp_path, demos):
    named = Demos(demos, demos.observation_layout, demos.action_layout, 10.0, ["push", "pull", "push", "lift"])
    save_demos(named, tmp_path / "lr", "lerobot")
    assert load_demos(tmp_path / "lr").tasks == ("push", "pull", "push", "lift")
    assert load_demos(tmp_path / "lr", episodes=[3, 1]).tasks == ("lift", "pull")
    (tmp_path / "lr" / "meta" / "tasks.parquet").unlink()
    (tmp_path / "lr" / "meta" / "tasks.jsonl").write_text('{"task_index": 0, "task": "schieben"}\n')
    assert load_demos(tmp_path / "lr").tasks == ("schieben", "", "schieben", "")


def test_a_lerobot_dataset_is_asked_for_its_rate(tmp_path, demos):
    demos.rate = None
    save_demos(demos, tmp_path / "demos")
    with pytest.raises(ClosedFormError, match=r"expected the rate .* found none: pass --rate"):
        save_demos(demos, tmp_path / "lr", "lerobot")
    assert not (tmp_path / "lr").exists()
    main(["convert", str(tmp_path / "demos"), str(tmp_path / "lr"), "--to", "lerobot", "--rate", "12.5"])
    assert load_demos(tmp_path / "lr").rate == 12.5


def test_robomimic_knows_its_layouts_and_masks(lift):
    assert lift.observation_layout.bodies == ("cube", "hand") and lift.rate == 20.0
    assert [e.kind for e in lift.observation_layout.entries][:3] == ["position", "quaternion", "vector"]
    path = real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")
    train, valid = (load_demos(path, mask=mask) for mask in ("train", "valid"))
    assert 0 < len(train) < 10 and 0 < len(valid) < 10
    with pytest.raises(ClosedFormError, match="expected 'test' for mask, found train, valid"):
        load_demos(path, mask="test")
    joints = load_demos(path, observation_keys=["robot0_joint_pos", "robot0_eef_pos"])
    assert joints[0].observations.shape[1] == 10
    with pytest.raises(ClosedFormError, match="demo_0: expected 'camera', found object"):
        load_demos(path, observation_keys=["camera"])


def test_absolute_actions_lead_where_the_hand_goes(lift):
    """A target lies ahead of the hand on its way, so it is nearer to where the hand is soon than the hand is now."""
    path = real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")
    for form, width in (("absolute", 7), ("absolute_6d", 10)):
        absolute = load_demos(path, actions=form)
        assert absolute[0].actions.shape[1] == width and absolute.action_layout.entries[0].kind == "position"
        for episode in absolute:
            hand = episode.observations[:, 10:13]
            target = episode.actions[:, :3]
            assert np.abs(target - hand).max() <= 0.05 + 1e-9
            ahead, now = np.linalg.norm(target[:-3] - hand[3:], axis=1), np.linalg.norm(hand[:-3] - hand[3:], axis=1)
            assert ahead.mean() < now.mean()
    with pytest.raises(ClosedFormError, match="actions: expected recorded, absolute, absolute_6d or displacements"):
        load_demos(path, actions="relative")


def test_absolute_actions_are_the_goals_of_robosuites_controller(lift):
    """Goals that robosuite 1.4.1 sets for these deltas in the recorded states of demo_0, read off its controller."""
    goals = {
        0: [-0.090494, -0.015229, 1.011848, 0.007304, 0.999972, -0.001638, 0.997229, -0.007162, 0.074042],
        30: [0.053073, 0.020825, 0.858243, 0.304494, 0.951415, -0.045744, 0.950281, -0.300144, 0.082943],
    }
    absolute = load_demos(real_file("robomimic", "lift_ph_low_dim_10demos.hdf5"), actions="absolute_6d")
    for step, goal in goals.items():
        np.testing.assert_allclose(absolute[0].actions[step, :9], goal, atol=2e-6)


@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3).filter(lambda v: np.linalg.norm(v) < 3.1))
def test_axis_angle_and_matrix_are_inverse(vector):
    matrix = matrix_of_axis_angle(np.array([vector]))
    np.testing.assert_allclose(axis_angle_of(matrix)[0], vector, atol=1e-6)
    np.testing.assert_allclose(matrix[0] @ matrix[0].T, np.eye(3), atol=1e-9)


def test_axis_angle_agrees_with_quaternions():
    half = 0.35
    quaternion = np.array([[0, 0, np.sin(half), np.cos(half)]])
    np.testing.assert_allclose(
        two_columns(matrix_of_axis_angle(np.array([[0, 0, 2 * half]]))), columns_of_quaternion(quaternion), atol=1e-12
    )
    assert np.allclose(
        rotation_matrix(columns_of_quaternion(quaternion)), matrix_of_axis_angle(np.array([[0, 0, 0.7]]))
    )


def test_minari_is_read(tmp_path, demos):
    folder = tmp_path / "dataset" / "data"
    folder.mkdir(parents=True)
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        for index, episode in enumerate(demos):
            last = episode.observations[-1:]
            file[f"episode_{index}/observations"] = np.concatenate([episode.observations, last])
            file[f"episode_{index}/actions"] = episode.actions
    assert_same(load_demos(tmp_path / "dataset"), demos)
    assert_same(load_demos(folder / "main_data.hdf5"), demos)


def test_minari_dictionary_observations(tmp_path):
    with h5py.File(tmp_path / "main_data.hdf5", "w") as file:
        file["episode_0/observations/b"] = np.full((4, 2), 2.0)
        file["episode_0/observations/a"] = np.full((4, 1), 1.0)
        file["episode_0/actions"] = np.zeros((3, 1))
    np.testing.assert_array_equal(load_demos(tmp_path / "main_data.hdf5")[0].observations, [[1, 2, 2]] * 3)
    only_b = load_demos(tmp_path / "main_data.hdf5", observation_keys=["b"])
    np.testing.assert_array_equal(only_b[0].observations, [[2, 2]] * 3)


def test_npz_npy_and_csv_are_read(tmp_path, demos):
    observations, actions = demos.all_observations(), demos.all_actions()
    numbers = np.repeat(np.arange(4), 12)
    np.savez(tmp_path / "a.npz", observations=observations, actions=actions, episode_ends=[12, 24, 36, 48])
    np.savez_compressed(tmp_path / "b", obs=observations, action=actions, episode=numbers)
    (tmp_path / "b.npz").rename(tmp_path / "b.dat")  # found by content, not by its name
    names = [("episode", int)] + [(f"obs_{i}", float) for i in range(5)] + [(f"action_{i}", float) for i in range(2)]
    table = np.zeros(48, names)
    table["episode"] = numbers
    for i in range(5):
        table[f"obs_{i}"] = observations[:, i]
    for i in range(2):
        table[f"action_{i}"] = actions[:, i]
    np.save(tmp_path / "c.npy", table)
    lines = [",".join(table.dtype.names or ())] + [",".join(repr(float(v)) for v in row) for row in table]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    for name in ("a.npz", "b.dat", "c.npy", "d.csv"):
        assert_same(load_demos(tmp_path / name), demos)
    part = load_demos(tmp_path / "d.csv", observation_keys=["obs_[01]"], action_key="action_1")
    np.testing.assert_array_equal(part.all_observations(), observations[:, :2])
    np.testing.assert_array_equal(part.all_actions(), actions[:, 1:])


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_of_zarr_are_read(tmp_path, demos, version):
    group = zarr.create_group(tmp_path / "demos.zarr", zarr_format=version)
    group.create_array("data/state", data=demos.all_observations())
    group.create_array("data/action", data=demos.all_actions())
    group.create_array("data/img", data=np.ones((48, 2, 2)))
    group.create_array("meta/episode_ends", data=np.array([12, 24, 36, 48]))
    assert_same(load_demos(tmp_path / "demos.zarr"), demos)
    both = load_demos(tmp_path / "demos.zarr", observation_keys=["action", "img"])
    assert both[0].observations.shape == (12, 6)


def test_a_missing_chunk_is_not_zeros(tmp_path, demos):
    group = zarr.create_group(tmp_path / "demos.zarr", zarr_format=2)
    group.create_array("data/state", data=demos.all_observations(), chunks=(10, 5))
    group.create_array("data/action", data=demos.all_actions())
    group.create_array("meta/episode_ends", data=np.array([12, 24, 36, 48]))
    (tmp_path / "demos.zarr" / "data" / "state" / "2.0").unlink()
    with pytest.raises(ClosedFormError, match="expected 5 chunks of state, found 1 of them missing"):
        load_demos(tmp_path / "demos.zarr")


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ([5, 3, 10], "increase up to the number of steps"),
        ([5, 5, 10], "increase up to the number of steps"),
        ([5, 9], "the last 9, for 10 observations"),
        ([5, 11], "the last 11, for 10 observations"),
        ([0, 10], "increase up to"),
        ([], "whole numbers"),
        ([5.5, 10.0], "whole numbers"),
        ([[5, 10]], "whole numbers"),
    ],
)
def test_episode_ends_that_make_no_sense_are_refused(tmp_path, ends, message):
    path = npz(
        tmp_path / "a.npz", observations=np.zeros((10, 2)), actions=np.zeros((10, 1)), episode_ends=np.array(ends)
    )
    with pytest.raises(ClosedFormError, match=message):
        load_demos(path)


def test_bad_files_are_refused_with_the_reason(tmp_path):
    def refused(path, message, **options):
        with pytest.raises(ClosedFormError, match=message) as caught:
            load_demos(path, **options)
        assert "\n" not in str(caught.value)

    refused(tmp_path / "none", "found nothing there; datasets known by name are pusht")
    refused(tmp_path, "found an empty folder")
    (tmp_path / "empty").write_bytes(b"")
    refused(tmp_path / "empty", "found an empty file")
    (tmp_path / "random").write_bytes(bytes(range(256)))
    refused(tmp_path / "random", "found a file that starts with")
    good = {"actions": np.zeros((4, 1)), "episode_ends": [4]}
    refused(npz(tmp_path / "a.npz", **good), "expected one of observations, .* for observations, found actions")
    refused(npz(tmp_path / "b.npz", observations=np.array([["x"]] * 4), **good), "real numbers, found dtype <U1")
    refused(npz(tmp_path / "c.npz", observations=np.zeros((3, 2)), **good), "for 3 observations and 4 actions")
    longer = npz(tmp_path / "c2.npz", observations=np.zeros((6, 2)), actions=np.zeros((4, 1)), episode_ends=[2, 4])
    refused(longer, "for 6 observations and 4 actions; leave out the last observation of each episode")
    refused("puhst", r"known by name are pusht.*; did you mean pusht\?")
    refused("pusht-embeded", r"did you mean pusht-embedded\?")
    bad = np.zeros((4, 2))
    bad[2, 1] = np.nan
    refused(npz(tmp_path / "d.npz", observations=bad, **good), "c?d.npz: episode 0: .* nan at step 2, entry 1")
    objects = np.array([None, 1, 2, 3], dtype=object)
    np.savez(tmp_path / "e.npz", observations=objects, **good)  # pyright: ignore[reportArgumentType]
    refused(tmp_path / "e.npz", "e.npz: expected observations to be real numbers, found Python objects")
    np.save(tmp_path / "f.npy", np.zeros((4, 3)))
    refused(tmp_path / "f.npy", "expected an array with named columns")
    (tmp_path / "g.csv").write_text("episode,obs,act\n0,1\n")
    refused(tmp_path / "g.csv", "line 2: expected 3 columns, found 2")
    (tmp_path / "h.csv").write_text("episode,obs,act\n0,1,one\n")
    refused(tmp_path / "h.csv", "line 2: expected numbers")
    (tmp_path / "i.csv").write_text("episode,obs,act\n0,1,1\n1,1,1\n0,1,1\n")
    refused(tmp_path / "i.csv", "found an episode in two places")
    refused(tmp_path / "i.csv", "masks and absolute_6d apply to robomimic files only", mask="train")
    pq.write_table(pa.table({"action": [1.0]}), tmp_path / "j.parquet")
    refused(tmp_path / "j.parquet", "a LeRobot dataset is the folder with meta/info.json")
    with h5py.File(tmp_path / "k.hdf5", "w") as file:
        file["x"] = 1
    refused(tmp_path / "k.hdf5", "an HDF5 file without data/demo_N or episode_N")


def outcome(path):
    """Correct data or a ClosedFormError in one line; anything else is a bug."""
    try:
        demos = load_demos(path)
    except ClosedFormError as error:
        assert "\n" not in str(error)
        return None
    assert np.isfinite(demos.all_observations()).all()
    return demos


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """One small dataset in every format, all of it real."""
    folder = tmp_path_factory.mktemp("originals")
    small = planar_demos(np.random.default_rng(1), n_episodes=2, n_steps=5)
    small.rate = 10.0
    for name, to in TARGETS:
        save_demos(small, folder / name, to)
    npz(folder / "a.npz", observations=small.all_observations(), actions=small.all_actions(), episode_ends=[5, 10])
    return folder


@settings(max_examples=150)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(originals, tmp_path_factory, data):
    """Byte flips, truncations and missing files in every format."""
    name = data.draw(st.sampled_from([*(n for n, _ in TARGETS), "a.npz"]))
    target = tmp_path_factory.mktemp("damaged") / name
    source = originals / name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    files = sorted(f for f in target.rglob("*") if f.is_file()) if target.is_dir() else [target]
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    kind = data.draw(st.sampled_from(["flip", "truncate", "remove", "garbage"]))
    if kind == "flip" and content:
        for _ in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, len(content) - 1))
            content[position] ^= data.draw(st.integers(1, 255))
        file.write_bytes(content)
    elif kind == "truncate":
        file.write_bytes(content[: data.draw(st.integers(0, max(len(content) - 1, 0)))])
    elif kind == "garbage":
        file.write_bytes(data.draw(st.binary(max_size=200)))
    else:
        file.unlink()
    demos = outcome(target)
    if demos is not None and name in CHECKED:
        original = load_demos(source)
        kept = [e for e in original if any(np.array_equal(e.observations, d.observations) for d in demos)]
        assert_same(kept, demos)  # whole episodes may be missing with their file, but no number is wrong
    shutil.rmtree(target.parent)


@settings(max_examples=25)
@given(data=st.data())
def test_damaged_real_files_are_refused_or_read(tmp_path_factory, lift, data):
    real = [
        real_file("robomimic", "lift_ph_low_dim_10demos.hdf5"),
        real_file("pusht", "pusht_cchi_v7_replay_lowdim.zarr.zip"),
    ]
    source = data.draw(st.sampled_from(real))
    content = bytearray(source.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(8):
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    target = tmp_path_factory.mktemp("real") / source.name
    target.write_bytes(content)
    outcome(target)
    target.unlink()


@pytest.mark.parametrize(
    ("name", "to", "message"), [("x.txt", None, "expected a name ending"), ("x", "xml", "one of the formats folder")]
)
def test_unknown_targets_are_refused(tmp_path, demos, name, to, message):
    with pytest.raises(ClosedFormError, match=message):
        save_demos(demos, tmp_path / name, to)


def test_a_layout_can_be_given(tmp_path, demos):
    save_demos(demos, tmp_path / "demos")
    read = load_demos(tmp_path / "demos", action_layout=Layout.of((None, "other", 2)))
    assert read.action_layout == Layout.of((None, "other", 2))
