"""HDF5 files that point elsewhere, load code, or were never written, are refused in one line."""

import zlib
from typing import Any

import h5py
import numpy as np
import pytest

from closedform import load_demos, save_demos
from tests.conftest import planar_demos
from tests.demos.bad_files import refused, robomimic


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
    refused(path, "expected '.*' in this file, found a link to another file")


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
    refused(path, "link to another file")


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
    refused(path, "expected numbers in this file, found that they are stored in other files")


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
    refused(path, "expected HDF5's built-in filters .*, found number 32015")


def test_minari_groups_that_contain_themselves_are_refused(tmp_path):
    with h5py.File(tmp_path / "demos.hdf5", "w") as file:
        group = file.create_group("episode_0/observations")
        for name in "abcdefgh":
            group[name] = group
        file["episode_0/actions"] = np.ones((4, 1))
    refused(tmp_path / "demos.hdf5", "expected each group once")


def test_a_chunk_of_hdf5_that_decodes_to_more_than_its_place_is_refused(tmp_path):
    path = robomimic(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        del file["data/demo_0/actions"]
        dataset = file.create_dataset("data/demo_0/actions", (4, 1), float, chunks=(4, 1), compression="gzip")
        dataset.id.write_direct_chunk((0, 0), zlib.compress(bytes(20_000_000)))
    refused(path, "expected chunks of 32 bytes, found one of .* encoded bytes")


def test_a_damaged_heap_of_strings_does_not_hang(tmp_path):
    """HDF5 itself looks for the next string for ever where one has no size."""
    save_demos(planar_demos(np.random.default_rng(0)), tmp_path / "demos.hdf5")
    data = bytearray((tmp_path / "demos.hdf5").read_bytes())
    at = data.index(b"GCOL") + 16
    data[at : at + 16] = bytes(16)
    (tmp_path / "demos.hdf5").write_bytes(data)
    refused(tmp_path / "demos.hdf5", "found a damaged string heap at byte")


STRING_TYPE = b"\x19\x01\x01\x00\x10\x00\x00\x00"  # of a string of any length, as HDF5 writes it


def test_damage_on_which_hdf5_crashes_is_refused(tmp_path):
    """Without its check, each of these ends the process with a segmentation fault."""
    save_demos(planar_demos(np.random.default_rng(0)), tmp_path / "demos.hdf5")
    data = (tmp_path / "demos.hdf5").read_bytes()
    places = [at for at in range(len(data)) if data.startswith(STRING_TYPE, at)]
    assert places
    for number, at in enumerate(places):
        damaged = bytearray(data)
        damaged[at + 1] ^= 4
        (tmp_path / f"{number}.hdf5").write_bytes(damaged)
        refused(tmp_path / f"{number}.hdf5", "found damage on which HDF5 crashes")


def test_a_string_of_gigabytes_is_refused_before_it_is_allocated(tmp_path):
    save_demos(planar_demos(np.random.default_rng(0)), tmp_path / "demos.hdf5")
    data = bytearray((tmp_path / "demos.hdf5").read_bytes())
    with h5py.File(tmp_path / "demos.hdf5") as file:
        length = len(str(file["data"].attrs["env_args"]))
    at = data.index(length.to_bytes(4, "little") + data.index(b"GCOL").to_bytes(8, "little"))
    data[at : at + 4] = (2**32 - 1).to_bytes(4, "little")
    (tmp_path / "demos.hdf5").write_bytes(data)
    refused(tmp_path / "demos.hdf5", "found damage on which HDF5 asks for gigabytes of memory")


def test_what_the_probe_cannot_read_is_left_to_the_reader(tmp_path):
    path = robomimic(tmp_path / "demos.hdf5")
    with h5py.File(path, "a") as file:
        file.create_dataset("more/times", (3,), h5py.opaque_dtype(np.dtype("M8[s]")))
        file["more/again"] = file["data"]
    assert len(load_demos(path)) == 1
