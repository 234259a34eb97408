"""The studio: a page where a person demonstrates with the mouse, lets go, and the policy drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from closedform.studio.public import Collection, EditLog, Pilot, Server, StudioSession, Tape

__all__ = ["Collection", "EditLog", "Pilot", "Server", "StudioSession", "Tape"]


def __getattr__(name: str) -> Any:
    """Imports the public names on first use, so that the commands of this room are found fast."""
    if name in __all__:
        from closedform.studio import public

        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
