"""Policies served over the network to clients that exist already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from closedform.serve.public import (
        Client,
        Gr00tServer,
        Monitor,
        MonitorServer,
        OpenpiServer,
        ServeConfig,
        Service,
        monitoring,
        serving,
    )

__all__ = [
    "Client",
    "Gr00tServer",
    "Monitor",
    "MonitorServer",
    "OpenpiServer",
    "ServeConfig",
    "Service",
    "monitoring",
    "serving",
]


def __getattr__(name: str) -> Any:
    """Imports the public names on first use, so that the commands of this room are found fast."""
    if name in __all__:
        from closedform.serve import public

        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
