"""Registry: what the package's rooms and other installed packages add, by name, through entry points.

A room is a folder of this package that no other one imports; entry points of one that is not there are left out. A
checkout reads its own entry points from pyproject.toml, so that they hold without an installation.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "closedform"
_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def registered(group: str) -> dict[str, EntryPoint]:
    """What is registered in a group of entry points, such as `closedform.commands`; it is imported by `load`.

    The package's own come first, and other packages cannot replace them.
    """
    installed = entry_points(group=group)
    own, declared = [point for point in installed if _room(point)], _declared()
    if declared is not None:
        own = [EntryPoint(name, value, group) for name, value in declared.get(group, {}).items()]
    found = {point.name: point for point in own if find_spec(_room(point)) is not None}
    for point in sorted(installed):
        if not _room(point):
            found.setdefault(point.name, point)
    return found


def _room(point: EntryPoint) -> str:
    """The part of this package that an entry point leads to; empty for one of another package."""
    package, _, rest = point.module.partition(".")
    return f"{package}.{rest.partition('.')[0]}" if package == _PACKAGE else ""


@cache
def _declared() -> dict[str, dict[str, str]] | None:
    """The entry points of the checkout that this file is in; None if it is installed."""
    try:
        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    except (OSError, ValueError, KeyError):
        return None
    return project.get("entry-points", {}) if project.get("name") == _PACKAGE else None
