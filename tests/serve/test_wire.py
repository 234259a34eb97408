"""Messages: what is packed is unpacked again, as openpi writes it, and nothing malformed gets through or runs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from closedform.errors import ClosedFormError, DataError

msgpack = pytest.importorskip("msgpack", reason="needs the extra serve")
from closedform.wire import LARGEST, pack, unpack, with_key  # noqa: E402

KINDS = st.one_of(
    hnp.floating_dtypes(sizes=(16, 32, 64)), hnp.integer_dtypes(), hnp.unsigned_integer_dtypes(), hnp.boolean_dtypes()
)
ARRAYS = hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5) | ARRAYS
MESSAGES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


@given(MESSAGES)
@settings(max_examples=150)
def test_what_is_packed_is_unpacked(message):
    assert same(unpack(pack(message)), message)


def test_arrays_are_the_maps_of_openpi():
    raw = msgpack.unpackb(pack({"a": np.array([[1, 2, 3]], "<f4"), "b": np.float32(0.5)}))
    assert raw["a"] == {
        b"__ndarray__": True,
        b"data": np.array([1, 2, 3], "<f4").tobytes(),
        b"dtype": "<f4",
        b"shape": [1, 3],
    }
    assert raw["b"] == {b"__npgeneric__": True, b"data": 0.5, b"dtype": "<f4"}
    back = unpack(msgpack.packb(raw))
    assert back["b"].dtype == np.float32 and back["b"] == 0.5


@pytest.mark.parametrize("value", [np.array([{}]), np.zeros(2, "V3"), np.zeros(2, complex), np.complex64(1), object()])
def test_what_cannot_travel_is_not_packed(value):
    with pytest.raises(DataError, match=r"expected .* in a message, found"):
        pack({"x": value})


def array(**changes):
    parts = {b"__ndarray__": True, b"data": bytes(8), b"dtype": "<f4", b"shape": [2]}
    return msgpack.packb({"x": {**parts, **{key.encode(): value for key, value in changes.items()}}})


@pytest.mark.parametrize(
    "data",
    [
        *(
            array(dtype=dtype)
            for dtype in ("|O", "O", "<c8", "|V4", "f4,f4", "(2,)f4", "object", "f99", "M8[x]", 3, None, "S", "<U0")
        ),
        *(array(shape=shape) for shape in ([3], [-1, -2], [2**62, 2**62], [2.0], [True, 2], None, "2", [1] * 64)),
        array(shape=[0, 2**47, 2**47], data=b""),
        *(msgpack.packb({b"__npgeneric__": True, b"data": 2**31, b"dtype": dtype}) for dtype in ("S", "S1", "U1")),
        *(array(data=data) for data in (b"", None, "text", [1, 2])),
        msgpack.packb({b"__npgeneric__": True, b"data": {}, b"dtype": "<f4"}),
        msgpack.packb({b"__npgeneric__": True, b"data": 0, b"dtype": "O"}),
        msgpack.packb({b"__npgeneric__": True}),
        b"",
        b"\xc1",
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff",
        b"\xd9\x02\xff\xff",
        msgpack.packb({1: 2}),
        msgpack.packb([[]] * LARGEST),
    ],
)
def test_what_is_malformed_is_refused(data):
    with pytest.raises(DataError):
        unpack(data)


@pytest.mark.parametrize("dtype", ["S", "|S0", "<U", "U0"])
def test_texts_of_no_width_take_no_memory(dtype):
    """55 bytes that say 2 GB: numpy would make room for every one of them."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="of no width"):
            unpack(array(dtype=dtype, shape=[2_000_000_000], data=b""))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_a_map_that_says_it_is_full_gets_no_further_key():
    with pytest.raises(DataError, match="map of 4294967295 elements"):
        with_key(b"\xdf\xff\xff\xff\xff", "monitor", {})


@given(st.binary(max_size=60), st.data())
@settings(max_examples=200)
def test_damaged_messages_are_refused_or_read(noise, data):
    whole = pack({"observation": np.arange(5.0), "x": [1, "a", None]})
    at = data.draw(st.integers(0, len(whole)))
    for message in (noise, whole[:at], whole[:at] + noise + whole[at + len(noise) :]):
        try:
            unpack(message)
        except ClosedFormError as error:
            assert "\n" not in str(error)
