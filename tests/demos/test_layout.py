"""Layouts refuse what makes no sense and survive JSON."""

import json

import pytest

from closedform import ClosedFormError, Entry, Layout


def test_a_layout_counts_its_numbers_and_names_its_bodies():
    layout = Layout.of(("hand", "position", 3), ("hand", "quaternion"), ("can", "position", 3), (None, "binary"))
    assert layout.width == 3 + 4 + 3 + 1
    assert layout.bodies == ("hand", "can")
    assert layout.describe(4) == "entry 4 (hand quaternion)"
    assert layout.describe(10) == "entry 10 (binary)"
    assert Layout.plain(3).describe(2) == "entry 2"


def test_json_keeps_everything():
    layout = Layout.of(("hand", "position", 3), ("hand", "rotation6d"), ("lid", "angle"), (None, "other", 5))
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("a", "position", 4)], "'position' has 2 or 3 numbers, found size 4"),
        ([("a", "quaternion", 3)], "'quaternion' has 4 numbers, found size 3"),
        ([("a", "pose")], "unknown kind 'pose'"),
        ([("world", "position", 2)], "must not be empty, 'world'"),
        ([("a.b", "position", 2)], "or contain '.'"),
        ([("a", "position", 2), ("a", "position", 2)], "'a' has more than one position"),
        ([("a", "angle"), ("a", "quaternion")], "more than one rotation"),
        ([("a", "position", 2), ("a", "quaternion")], "a planar position needs an angle"),
    ],
)
def test_contradictions_are_refused(entries, message):
    with pytest.raises(ClosedFormError, match=message):
        Layout.of(*entries)


def test_layouts_are_read_from_text():
    text = "hand position 3, hand quaternion, - other 5, lid angle"
    expected = Layout.of(("hand", "position", 3), ("hand", "quaternion"), (None, "other", 5), ("lid", "angle"))
    assert Layout.parse(text) == expected
    with pytest.raises(
        ClosedFormError, match=r"expected a layout entry 'body kind', 'body kind size' or .*, found 'hand'"
    ):
        Layout.parse("hand")
    with pytest.raises(ClosedFormError, match="unknown kind 'pose'"):
        Layout.parse("hand pose 7")


def test_an_entry_has_at_least_one_number():
    with pytest.raises(ClosedFormError, match="at least one number, found size 0"):
        Entry("other", 0)


@pytest.mark.parametrize("size", ["²", "٣", "9" * 5000, "-1", "1.5", "999999999"])
def test_sizes_in_text_are_plain_and_bounded_digits(size):
    with pytest.raises(ClosedFormError, match=r"expected a layout entry|at most 100000000 numbers"):
        Layout.parse(f"hand other {size}")


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "hand",
        {},
        [5],
        [None],
        [[]],
        [{}],
        [{"kind": []}],
        [{"kind": "other", "size": 10**400}],
        [{"kind": "other", "size": -(10**5000)}],
        [{"kind": "other", "color": 1}],
        [{"kind": "other", "body": []}],
        [],
    ],
    ids=lambda value: str(type(value)),
)
def test_json_that_is_no_layout_is_refused(value):
    with pytest.raises(ClosedFormError):
        Layout.from_json(value)


def test_layouts_of_many_bodies_are_checked_in_time_proportional_to_them():
    entries = [{"kind": "angle", "size": 1, "body": f"b{index}"} for index in range(50_000)]
    assert Layout.from_json(entries).width == 50_000
    with pytest.raises(ClosedFormError, match="'b0' has more than one position or more than one rotation"):
        Layout.from_json([*entries, entries[0]])
