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
        ([("world", "position", 2)], "not 'world'"),
        ([("a.b", "position", 2)], "has no '.'"),
        ([("a", "position", 2), ("a", "position", 2)], "'a' has more than one position"),
        ([("a", "angle"), ("a", "quaternion")], "more than one rotation"),
        ([("a", "position", 2), ("a", "quaternion")], "a planar position goes with an angle"),
    ],
)
def test_contradictions_are_refused(entries, message):
    with pytest.raises(ClosedFormError, match=message):
        Layout.of(*entries)


def test_layouts_are_read_from_text():
    text = "hand position 3, hand quaternion, - other 5, lid angle"
    expected = Layout.of(("hand", "position", 3), ("hand", "quaternion"), (None, "other", 5), ("lid", "angle"))
    assert Layout.parse(text) == expected
    with pytest.raises(ClosedFormError, match="expected a layout entry 'body kind' or 'body kind size', found 'hand'"):
        Layout.parse("hand")
    with pytest.raises(ClosedFormError, match="unknown kind 'pose'"):
        Layout.parse("hand pose 7")


def test_an_entry_has_at_least_one_number():
    with pytest.raises(ClosedFormError, match="at least one number, found size 0"):
        Entry("other", 0)
