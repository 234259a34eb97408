"""Messages of a page: whatever is sent is understood or refused."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import ClosedFormError
from closedform.studio.messages import Claim, Pointer, StudioCommand, Watch, read_message
from tests.studio.toys import make_session

WORDS = ["type", "pointer", "command", "name", "point", "take", "seed", "parameters", "tau", "delete", "start", "pause"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    JSON
    | st.fixed_dictionaries(
        {
            "type": st.sampled_from(["pointer", "command", "watch"]),
            "name": st.sampled_from(["retry", "end", "undo", "pause", "start", "delete", "parameters", "map"]),
            "point": JSON,
            "take": JSON,
            "seed": JSON,
            "parameters": JSON,
            "paused": JSON,
            "on": JSON,
        }
    )
)
def test_any_message_is_understood_or_refused_and_the_session_goes_on(content):
    session, pointer = make_session(), None
    try:
        message = read_message(json.dumps(content))
        assert isinstance(message, Pointer | StudioCommand | Claim | Watch)
        if isinstance(message, StudioCommand):
            message.do(session)
        elif isinstance(message, Pointer):
            pointer = message.point
    except ClosedFormError:
        pass
    session.step(pointer)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 4000,
        "x" * 5000,
        "null",
        '{"type": "pointer", "point": [1e400, 0]}',
        '{"type": "pointer", "point": [NaN, 0]}',
        '{"type": "command", "name": "exec"}',
        '{"type": "command", "name": "parameters", "parameters": {"index": "faiss"}}',
    ],
)
def test_malformed_messages_are_refused(text):
    with pytest.raises(ClosedFormError):
        read_message(text)


def test_a_pointer_is_a_point_or_none():
    assert read_message('{"type": "pointer", "point": [1, 2.5]}') == Pointer((1.0, 2.5))
    assert read_message('{"type": "pointer", "point": null}') == Pointer(None)
