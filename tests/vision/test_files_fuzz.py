"""Files of cells and cameras are not trusted: whatever they hold, one clear error or a sound object."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import LoadError
from closedform.robot.twin.place import twin_cell
from closedform.vision.camera_file import load_intrinsics, save_intrinsics
from closedform.vision.cell import Cell
from tests.vision.synthetic import INTRINSICS

pytest.importorskip("cv2")
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def places(content, path=()):
    """All places in a JSON value."""
    yield path
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def spoil(content, data):
    """Replaces the value at some place of a JSON value by any other."""
    path = data.draw(st.sampled_from([place for place in places(content) if place]))
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = data.draw(values)
    return content


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_spoiled_file_is_refused_or_still_makes_sense(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.json"
        twin_cell().save(path)
        path.write_text(json.dumps(spoil(json.loads(path.read_text()), data)))
        try:
            cell = Cell.load(path)
            groups = [cell.table, *(body.corners for body in cell.bodies)]
            assert all(
                np.isfinite(four).all() and np.shape(four) == (4, 3) for group in groups for four in group.values()
            )
            assert all(body.height is None or np.isfinite(body.height) for body in cell.bodies)
        except LoadError as error:
            assert str(path) in str(error)
        save_intrinsics(path, INTRINSICS)
        path.write_text(json.dumps(spoil(json.loads(path.read_text()), data)))
        try:
            found = load_intrinsics(path)
            assert np.isfinite(found.matrix).all() and found.matrix.shape == (3, 3) and min(found.size) > 0
        except LoadError as error:
            assert str(path) in str(error)
