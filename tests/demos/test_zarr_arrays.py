"""zarr arrays: what zarr wrote is read to the last bit, and what is not a number is refused before it is decoded."""

import json
import pickle
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import BZ2, CRC32, LZ4, LZMA, Blosc, Delta, GZip, Shuffle, Zlib, Zstd
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from closedform import ClosedFormError, load_demos
from closedform.demos.formats import zarr_codecs
from closedform.demos.formats.sizes import Sizes
from closedform.demos.formats.zarr_arrays import read_array
from closedform.demos.formats.zarr_store import ZarrStore

DTYPES = ["|b1", "|u1", "<i2", ">i4", "<u8", "<f2", "<f4", ">f4", "<f8"]
COMPRESSORS = [None, Blosc(), Blosc("zlib", shuffle=0), Zstd(), LZ4(), Zlib(), GZip(), BZ2(), LZMA(), CRC32()]


def read(folder, name="x"):
    with ZarrStore(Path(folder)) as store:
        return read_array(store, name, Sizes(Path(folder), store.stored))


def numbers(rng, shape, dtype):
    return rng.integers(0, 2 if dtype == "|b1" else 100, shape).astype(dtype)


def same(folder, expected):
    found = read(folder)
    assert found.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, expected)


@settings(max_examples=60)
@given(data=st.data())
def test_version_2_is_read_to_the_last_bit(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("v2")
    dtype = data.draw(st.sampled_from(DTYPES))
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 9)) for _ in shape)
    filters = {
        "none": None,
        "shuffle": [Shuffle(np.dtype(dtype).itemsize)],
        "delta": [Delta(dtype)] if dtype[1] in "iu" else None,
    }[data.draw(st.sampled_from(["none", "shuffle", "delta"]))]
    expected = numbers(np.random.default_rng(0), shape, dtype)
    array = zarr.create_array(
        folder / "x",
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        zarr_format=2,
        compressors=data.draw(st.sampled_from(COMPRESSORS)),
        filters=filters,
        order=data.draw(st.sampled_from(["C", "F"])),
        chunk_key_encoding={"name": "v2", "separator": data.draw(st.sampled_from([".", "/"]))},
        config={"write_empty_chunks": True},
    )
    array[...] = expected
    same(folder, expected)
    shutil.rmtree(folder)


@settings(max_examples=60)
@given(data=st.data())
def test_version_3_is_read_to_the_last_bit(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("v3")
    dtype = data.draw(st.sampled_from([d for d in DTYPES if d[0] != ">"]))
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 4)) for _ in shape)
    shards = tuple(n * data.draw(st.integers(1, 3)) for n in chunks) if data.draw(st.booleans()) else None
    order = data.draw(st.permutations(range(len(shape))))
    compressors = data.draw(st.sampled_from([None, BloscCodec(typesize=4), ZstdCodec(), GzipCodec(), Crc32cCodec()]))
    endian = data.draw(st.sampled_from(["little", "big"])) if np.dtype(dtype).itemsize > 1 else None
    expected = numbers(np.random.default_rng(0), shape, dtype)
    array = zarr.create_array(
        folder / "x",
        shape=shape,
        chunks=chunks,
        shards=shards,
        dtype=dtype,
        zarr_format=3,
        compressors=compressors,
        filters=[TransposeCodec(order=tuple(order))],
        serializer=BytesCodec(endian=endian),
        chunk_key_encoding={"name": data.draw(st.sampled_from(["default", "v2"])), "separator": "."},
        config={"write_empty_chunks": True},
    )
    array[...] = expected
    same(folder, expected)
    shutil.rmtree(folder)


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def replay_buffer(folder, version: Any = 2):
    group = zarr.create_group(folder, zarr_format=version)
    for name in ("data/state", "data/action"):
        group.create_array(name, data=np.ones((10, 2)), chunks=(10, 2))
    group.create_array("meta/episode_ends", data=np.array([10]))
    return folder


def change(folder, **facts):
    file = next(f for f in (folder / "data/state/.zarray", folder / "data/state/zarr.json") if f.exists())
    file.write_text(json.dumps(json.loads(file.read_text()) | facts))


PICKLE = {"id": "pickle", "protocol": 2}
VERSION_2 = [
    {"compressor": PICKLE, "filters": None},
    {"compressor": None, "filters": [PICKLE]},
    {"compressor": None, "filters": [PICKLE], "dtype": "<M8[s]", "fill_value": 0},
    {"compressor": None, "filters": [PICKLE], "dtype": "|O", "fill_value": 0},
    {"filters": [{"id": "json2"}]},
    {"filters": [{"id": "delta", "dtype": "|O"}]},
    {"filters": [{"id": "delta", "dtype": "<f8", "astype": "<M8[s]"}]},
    {"compressor": {"id": "imagecodecs_jpeg2k"}},
    {"compressor": ["pickle"]},
    {"dtype": "<M8[s]"},
    {"dtype": "<U4"},
    {"dtype": "|V8"},
    {"dtype": "<c16"},
    {"dtype": [["a", "<f8"]]},
]
VERSION_3 = [
    {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}]},
    {"codecs": [{"name": "numcodecs.pickle"}]},
    {"codecs": [{"name": "vlen-utf8"}]},
    {
        "codecs": [
            {"name": "sharding_indexed", "configuration": {"chunk_shape": [5, 2], "codecs": ["numcodecs.pickle"]}}
        ]
    },
    {"data_type": "string"},
    {"data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}},
    {"storage_transformers": [{"name": "pickle"}]},
]


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize(
    ("version", "facts"), [(2, facts) for facts in VERSION_2] + [(3, facts) for facts in VERSION_3], ids=str
)
def test_metadata_that_could_make_more_than_numbers_is_refused_before_decoding(
    tmp_path, monkeypatch, version, facts, zipped
):
    """Whatever zarr and numcodecs would do: no chunk is read, and none of their codecs is asked for."""
    source = replay_buffer(tmp_path / "buffer.zarr", version)
    change(source, **facts)
    for chunk in [*source.glob("data/state/0*"), *source.glob("data/state/c/0/0")]:
        chunk.write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    if zipped:
        with zipfile.ZipFile(tmp_path / "buffer.hdf5", "w") as archive:
            for file in (f for f in source.rglob("*") if f.is_file()):
                archive.write(file, file.relative_to(source).as_posix())
        source = tmp_path / "buffer.hdf5"
    wanted, original = [], ZarrStore.read

    def noted(store, name, largest):
        wanted.append(name)
        return original(store, name, largest)

    monkeypatch.setattr(ZarrStore, "read", noted)
    monkeypatch.setattr("numcodecs.get_codec", lambda *_: pytest.fail("a codec was looked up in the registry"))
    monkeypatch.setattr("numcodecs.registry.get_codec", lambda *_: pytest.fail("a codec was looked up in the registry"))
    with pytest.raises(ClosedFormError, match="data/state: expected"):
        load_demos(source)
    assert not any(name.startswith("data/state/") and name[11:] not in (".zarray", "zarr.json") for name in wanted)
    assert not (tmp_path / "ran").exists()


def test_a_chunk_missing_in_a_shard_is_not_zeros(tmp_path):
    array = zarr.create_array(tmp_path / "x", shape=(8,), chunks=(2,), shards=(8,), dtype="<f8", zarr_format=3)
    array[:4] = 1
    with pytest.raises(ClosedFormError, match="expected every chunk of a shard, found a missing one"):
        read(tmp_path)


def test_consolidated_metadata_is_not_believed(tmp_path):
    source = replay_buffer(tmp_path / "buffer.zarr")
    zarr.consolidate_metadata(source, zarr_format=2)
    file = source / ".zmetadata"
    facts = json.loads(file.read_text())
    facts["metadata"]["data/state/.zarray"]["filters"] = [PICKLE]
    file.write_text(json.dumps(facts))
    assert load_demos(source).n_steps == 10  # as the array's own metadata says


def test_arrays_that_are_not_asked_for_may_be_anything(tmp_path):
    source = replay_buffer(tmp_path / "buffer.zarr")
    shutil.copytree(source / "data/state", source / "data/img")
    file = source / "data/img/.zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"compressor": {"id": "imagecodecs_jpeg2k"}}))
    assert load_demos(source).n_steps == 10
    with pytest.raises(ClosedFormError, match="data/img: expected codecs that produce only numbers"):
        load_demos(source, observation_keys=["img"])


@pytest.mark.parametrize("codec", [c for c in COMPRESSORS if c is not None and c.codec_id != "crc32"], ids=repr)
def test_a_chunk_that_decodes_to_more_than_its_place_is_refused(codec):
    data = bytes(codec.encode(np.zeros(1_000_000, np.uint8)))
    config = codec.get_config()
    assert zarr_codecs.decode(config, data, 1_000_000) == bytes(1_000_000)
    with pytest.raises(ValueError, match=r"at most 100000 fit|more than 100000 bytes"):
        zarr_codecs.decode(config, data, 100_000)


@pytest.mark.parametrize("codec", [BZ2(), LZMA(), Zlib(), Zstd(), Blosc(), LZ4()], ids=repr)
def test_a_chunk_takes_no_more_memory_than_its_place_and_what_does_not_compress_adds(tmp_path, codec):
    """Not some multiple of it, which for a chunk as large as all memory allows would be too much."""
    source = replay_buffer(tmp_path / "buffer.zarr")
    change(source, compressor=codec.get_config(), shape=[20_000, 2], chunks=[20_000, 2])
    (source / "data/state/0.0").write_bytes(bytes(codec.encode(np.zeros(400_000, np.uint8))))
    with pytest.raises(ClosedFormError, match=r"more than 395536 bytes|at most 395536 fit"):
        load_demos(source)


@pytest.mark.parametrize("codec", [*(c for c in COMPRESSORS if c is not None), Delta("<i8", "<i2")], ids=repr)
def test_numbers_that_do_not_compress_and_differences_that_widen_fit(tmp_path, codec):
    expected = np.random.default_rng(0).integers(0, 2**8 if codec.codec_id == "delta" else 2**62, (9, 9_000))
    array = zarr.create_array(
        tmp_path / "x",
        shape=expected.shape,
        chunks=(9, 1000),
        dtype="<i8",
        zarr_format=2,
        filters=[codec] if codec.codec_id == "delta" else None,
        compressors=None if codec.codec_id == "delta" else codec,
    )
    array[...] = expected
    same(tmp_path, expected)
    chunk = tmp_path / "x/0.4"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(ClosedFormError, match=r"expected a complete chunk in x/0\.4"):
        read(tmp_path)


def test_differences_wider_than_their_numbers_are_read(tmp_path):
    expected = np.random.default_rng(0).integers(0, 256, (90_000,), np.uint8)
    data = zarr.create_array(
        tmp_path / "x", shape=(90_000,), chunks=(90_000,), dtype="|u1", zarr_format=2, filters=[Delta("|u1", "<i8")]
    )
    data[...] = expected
    same(tmp_path, expected)


def test_zstd_that_does_not_say_its_size_is_bounded_too():
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(bytes(1_000_000))
    data = sink.getvalue().to_pybytes()
    assert zarr_codecs.decode({"id": "zstd"}, data, 1_000_000) == bytes(1_000_000)
    with pytest.raises(ValueError, match="more than 100000 bytes"):
        zarr_codecs.decode({"id": "zstd"}, data, 100_000)


def test_what_zstd_needs_is_named(tmp_path, monkeypatch):
    source = replay_buffer(tmp_path / "buffer.zarr")
    change(source, compressor=Zstd().get_config())
    (source / "data/state/0.0").write_bytes(bytes(Zstd().encode(np.ones((10, 2)))))
    assert load_demos(source).n_steps == 10
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ClosedFormError, match=r"zstd.*pyarrow.*closedform\[data\]"):
        load_demos(source)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"shape": [10**9, 2], "chunks": [1, 1]}, "found 16.0 GB up to data/state"),
        ({"shape": [10, 2], "chunks": [10**9, 2]}, "found 16.0 GB up to data/state"),
        ({"shape": [10**7, 2], "chunks": [1, 1]}, "expected 20000000 chunks of state, found 19999999 of them missing"),
        ({"shape": [2**70, 2]}, "a shape to be whole numbers"),
        ({"shape": [-1, 2]}, "a shape to be whole numbers"),
        ({"shape": None}, "a shape to be whole numbers"),
        ({"shape": [10, 2.5]}, "a shape to be whole numbers"),
        ({"chunks": [0, 2]}, "a chunk's shape to be whole numbers"),
        ({"chunks": [10]}, "as many axes"),
        ({"shape": [], "chunks": []}, "as many axes"),
        ({"dimension_separator": "../"}, "separator"),
        ({"filters": "pickle"}, "a list of filters"),
    ],
    ids=str,
)
def test_shapes_that_lie_are_refused(tmp_path, facts, message):
    source = replay_buffer(tmp_path / "buffer.zarr")
    change(source, **facts)
    with pytest.raises(ClosedFormError, match=message):
        load_demos(source)
