"""What closedform writes carries checksums: a changed number is noticed, and `closedform data verify` says so."""

import json
import shutil
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormError, Demos, load_demos, save_demos
from closedform.cli import main
from closedform.demos.manifest import manifest_of, write_manifest
from closedform.demos.verify import verify_demos
from tests.conftest import planar_demos

TARGETS = [("demos", None), ("demos.zarr", None), ("demos.zarr.zip", None), ("demos.hdf5", None), ("lr", "lerobot")]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    demos = planar_demos(np.random.default_rng(1), n_episodes=3, n_steps=20)
    demos.rate = 20.0
    for name, to in TARGETS:
        save_demos(demos, folder / name, to)
    return folder, demos


@pytest.mark.parametrize(("name", "to"), TARGETS)
def test_every_episode_is_verified(originals, name, to):
    folder, _ = originals
    found = verify_demos(folder / name)
    assert (found.n_episodes, found.n_steps) == (3, 60)
    assert "3 of 3 episodes written by closedform (crc32)" in found.verified
    assert load_demos(folder / name, episodes=[2, 0]).verified == 2


@pytest.mark.parametrize(("name", "key"), [("demos.zarr", "state"), ("demos.hdf5", "observation")])
def test_other_keys_cannot_be_verified(originals, name, key):
    folder, _ = originals
    assert load_demos(folder / name, observation_keys=[key]).verified == 0


@settings(max_examples=150)
@given(data=st.data())
def test_a_flipped_bit_never_gives_other_numbers(originals, tmp_path_factory, data):
    """In every file of every format that is written here: what is read is what was written, or nothing is."""
    folder, demos = originals
    name, _ = data.draw(st.sampled_from(TARGETS))
    target = tmp_path_factory.mktemp("flipped") / name
    (shutil.copytree if (folder / name).is_dir() else shutil.copy)(folder / name, target)
    files = sorted(f for f in target.rglob("*") if f.is_file()) if target.is_dir() else [target]
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)
    try:
        found = load_demos(target)
    except ClosedFormError:
        return
    finally:
        shutil.rmtree(target.parent)
    np.testing.assert_array_equal(found.all_observations(), demos.all_observations())
    np.testing.assert_array_equal(found.all_actions(), demos.all_actions())
    assert [len(episode) for episode in found] == [20] * 3
    assert (found.observation_layout, found.action_layout) == (demos.observation_layout, demos.action_layout)


def change_zarr(path):
    zarr.open_array(path / "data" / "state", mode="a")[25, 0] = 0.125


def change_hdf5(path):
    with h5py.File(path, "a") as file:
        dataset: Any = file["data/demo_1/obs/observation"]
        dataset[5, 0] = 0.125


def change_lerobot(path):
    file = path / "data" / "chunk-000" / "file-000.parquet"
    table = pq.read_table(file)
    rows = table["action"].to_pylist()
    rows[25] = [0.125, 0.125]
    pq.write_table(table.set_column(table.column_names.index("action"), "action", [rows]), file)


def change_layout_of_zarr(path):
    file = path / ".zattrs"
    file.write_text(file.read_text().replace("block", "clock"))


def change_layout_of_hdf5(path):
    with h5py.File(path, "a") as file:
        attributes = file["data"].attrs
        attributes["observation_layout"] = str(attributes["observation_layout"]).replace("block", "clock")


def change_layout_of_folder(path):
    file = path / "demos.json"
    file.write_text(file.read_text().replace("block", "clock"))


def change_layout_of_lerobot(path):
    file = path / "meta" / "closedform.json"
    file.write_text(file.read_text().replace("block", "clock"))


def change_rate_of_lerobot(path):
    file = path / "meta" / "info.json"
    file.write_text(file.read_text().replace('"fps": 20', '"fps": 21'))


def lose_the_description_of_hdf5(path):
    with h5py.File(path, "a") as file:
        del file["data"].attrs["closedform_checksums"]


def lose_an_episode_of_hdf5(path):
    with h5py.File(path, "a") as file:
        del file["data/demo_2"]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("demos.zarr", change_zarr, "checksum mismatch in episode 1"),
        ("demos.hdf5", change_hdf5, "checksum mismatch in episode 1"),
        ("lr", change_lerobot, "checksum mismatch in episode 1"),
        ("demos.zarr", change_layout_of_zarr, "checksum mismatch in the layouts"),
        ("demos.hdf5", change_layout_of_hdf5, "checksum mismatch in the layouts"),
        ("demos", change_layout_of_folder, "checksum mismatch in the layouts or the rate"),
        ("lr", change_layout_of_lerobot, "checksum mismatch in the layouts"),
        ("lr", change_rate_of_lerobot, "checksum mismatch in the layouts, the rate"),
        ("demos.hdf5", lose_the_description_of_hdf5, "expected closedform_checksums for each episode"),
        ("demos.hdf5", lose_an_episode_of_hdf5, "checksum mismatch in the layouts, the rate or the number of episodes"),
    ],
)
def test_what_was_changed_is_refused(originals, tmp_path, capsys, name, change, message):
    source = originals[0] / name
    (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    change(tmp_path / name)
    with pytest.raises(ClosedFormError, match=message):
        load_demos(tmp_path / name)
    with pytest.raises(SystemExit) as stop:
        main(["data", "verify", str(tmp_path / name), "--json"])
    said = capsys.readouterr()
    assert stop.value.code == 2 and "checksum" in said.err
    assert json.loads(said.out)["ok"] is False and "checksum" in json.loads(said.out)["problem"]


def test_episodes_that_another_program_added_are_read_and_not_verified(originals, tmp_path):
    shutil.copy(originals[0] / "demos.hdf5", tmp_path / "demos.hdf5")
    with h5py.File(tmp_path / "demos.hdf5", "a") as file:
        file["data/demo_3/obs/observation"] = np.zeros((4, 5))
        file["data/demo_3/actions"] = np.zeros((4, 2))
    found = verify_demos(tmp_path / "demos.hdf5")
    assert found.n_episodes == 4 and "3 of 4 episodes written by closedform (crc32)" in found.verified
    assert found.unverified[0].startswith("1 of 4 episodes have no checksum")


def test_what_has_no_checksum_is_said_to_have_none(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", observations=np.zeros((4, 2)), actions=np.zeros((4, 1)), episode_ends=[4])
    (tmp_path / "a.csv").write_text("episode,obs,act\n0,1,1\n")
    main(["data", "verify", str(tmp_path / "a.csv")])
    assert "not verified: 1 of 1 episodes have no checksum" in capsys.readouterr().out
    main(["data", "verify", str(tmp_path / "a.npz"), "--json"])
    assert json.loads(capsys.readouterr().out)["verified"] == ["the files read from the zip (crc32)"]


def test_downloads_are_compared_with_what_they_were(originals, tmp_path):
    shutil.copytree(originals[0] / "demos.zarr", tmp_path / "demos.zarr")
    write_manifest(tmp_path / "demos.zarr")
    found = verify_demos(tmp_path / "demos.zarr")
    assert any("downloaded files (sha256)" in what for what in found.verified)
    attributes = tmp_path / "demos.zarr" / "data" / ".zattrs"
    attributes.write_text(attributes.read_text() + " ")
    with pytest.raises(ClosedFormError, match=r"data/.zattrs: checksum mismatch: expected sha256"):
        verify_demos(tmp_path / "demos.zarr")
    attributes.unlink()
    with pytest.raises(ClosedFormError, match=r"expected demos.zarr/data/.zattrs, which demos.zarr.sha256 lists"):
        verify_demos(tmp_path / "demos.zarr")
    manifest_of(tmp_path / "demos.zarr").write_text("nonsense\n")
    with pytest.raises(ClosedFormError, match="expected lines of sha256 and name"):
        verify_demos(tmp_path / "demos.zarr")


def test_layouts_and_checksums_in_info_json_are_read_as_before(originals, tmp_path):
    """Where closedform wrote them before it had a file for them."""
    shutil.copytree(originals[0] / "lr", tmp_path / "lr")
    own, file = tmp_path / "lr" / "meta" / "closedform.json", tmp_path / "lr" / "meta" / "info.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "closedform": json.loads(own.read_text())}))
    own.unlink()
    found = load_demos(tmp_path / "lr")
    assert found.verified == 3 and found.observation_layout == originals[1].observation_layout
    own.write_text("[]")
    with pytest.raises(ClosedFormError, match=r"closedform.json: expected layouts and checksums, found \[\]"):
        load_demos(tmp_path / "lr")


def test_files_without_checksums_are_read_as_before(originals, tmp_path):
    """What closedform wrote before it wrote checksums."""
    shutil.copytree(originals[0] / "demos.zarr", tmp_path / "demos.zarr")
    file = tmp_path / "demos.zarr" / ".zattrs"
    facts = json.loads(file.read_text())
    del facts["closedform_checksums"]
    file.write_text(json.dumps(facts))
    found = load_demos(tmp_path / "demos.zarr")
    assert found.verified == 0 and isinstance(found, Demos) and found.rate == 20.0
