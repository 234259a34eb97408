"""Whether anything can be rendered here."""

import functools

import pytest

from closedform.robot.twin.camera import check_rendering
from closedform.robot.twin.world import load_mujoco


@functools.cache
def missing() -> str | None:
    """Why nothing can be rendered, or None."""
    try:
        check_rendering(load_mujoco())
    except Exception as error:  # each rendering library fails in its own way
        return f"nothing can be rendered here ({type(error).__name__}: {error}); install libegl1 or libosmesa6"
    return None


@pytest.fixture(scope="session")
def rendering() -> None:
    """Skips tests that render where that is not possible, and says why."""
    reason = missing()
    if reason:
        pytest.skip(reason)
