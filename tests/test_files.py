"""Files: what is mapped is exactly what the header says, and nothing outside of it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from closedform.errors import LoadError
from closedform.files import MAX_HEADER, crc32, map_safetensors, read_json


def write(path, header, data=bytes(48)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(shape=(3,), begin=0, end=24, dtype="F64"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_arrays_are_those_that_were_saved_and_outlive_their_file(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(3, 2)),
        "b": np.arange(5),
        "c": np.empty((0, 4), np.float32),
        "d": np.array([1, 2], np.int8),
    }
    save_file(arrays, tmp_path / "x.safetensors")
    with (tmp_path / "x.safetensors").open("rb") as file:
        mapped = map_safetensors(file)
    (tmp_path / "x.safetensors").unlink()
    assert set(mapped) == set(arrays)
    for name, array in arrays.items():
        assert mapped[name].dtype == array.dtype and np.array_equal(mapped[name], array)
    assert crc32(mapped[name] for name in "abcd") == crc32(arrays.values())


@pytest.mark.parametrize(
    "header",
    [
        {"a": entry(), "b": entry()},  # the same bytes twice
        {"a": entry(), "b": entry((1,), 16, 24)},
        {"a": entry(), "b": entry((2,), 32, 48)},  # a hole
        {"a": entry()},  # more bytes than arrays
        {"a": entry((6,), 0, 48), "b": entry((10**6,), 48, 48 + 8 * 10**6)},  # fewer
        {"a": entry((10**18,), 0, 8 * 10**18)},
        {"a": entry((2**32, 2**32), 0, 48)},
        {"a": entry((10**400,), 0, 48)},
        {"a": entry((-1, -6), 0, 48)},
        {"a": entry((6.0,), 0, 48)},
        {"a": entry((True, 6), 0, 48)},
        {"a": entry((6,), -8, 40)},
        {"a": entry((6,), 0, 48, "F8")},
        {"a": {"dtype": "F64"}},
        {"a": 5},
        [1],
        b"[" * 100_000,
        b"\xff\xfe",
        b"{" + b" " * MAX_HEADER + b"}",
    ],
)
def test_a_header_that_does_not_tell_the_truth_is_refused(tmp_path, header):
    with write(tmp_path / "x", header).open("rb") as file, pytest.raises(ValueError):
        map_safetensors(file)


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8, (2**63).to_bytes(8, "little") + bytes(100)])
def test_a_file_without_a_header_is_refused(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with (tmp_path / "x").open("rb") as file, pytest.raises(ValueError):
        map_safetensors(file)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_json_from_a_pipe_that_nobody_writes_to_is_refused_and_from_one_with_a_writer_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(LoadError, match="expected JSON"):
        read_json(pipe)
    reader, writer = os.pipe()
    os.write(writer, b"[1, 2]")
    os.close(writer)
    assert read_json(Path(f"/dev/fd/{reader}")) == [1, 2]
    os.close(reader)
