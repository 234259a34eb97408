"""Messages from a page: checked like any other input, and turned into something to do."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from closedform.errors import DataError
from closedform.files import parse_json
from closedform.studio.session import Point, StudioSession

LONGEST = 4096  # characters of a message
TUNABLE = ("bandwidth", "tau", "n_execute", "frames")


@dataclass(frozen=True)
class Pointer:
    """Where a pressed mouse or finger is; None if nothing is pressed. See `Session.step`."""

    point: Point | None


@dataclass(frozen=True)
class StudioCommand:
    """Something to do in the session's thread."""

    name: str
    do: Callable[[StudioSession], None]


@dataclass(frozen=True)
class Claim:
    """The wish to drive in this tab."""


@dataclass(frozen=True)
class Watch:
    """The wish to see a take."""

    take: int


def read_message(text: str) -> Pointer | StudioCommand | Claim | Watch:
    """Reads a message; anything malformed raises a `ClosedFormError`."""
    if len(text) > LONGEST:
        raise DataError(f"a message: expected at most {LONGEST} characters, found {len(text)}")
    content = parse_json(text, "a message")
    if not isinstance(content, dict):
        raise DataError(f"a message: expected a JSON object, found {text[:40]!r}")
    kind = content.get("type")
    if kind == "pointer":
        return Pointer(_point(content.get("point")))
    if kind == "claim":
        return Claim()
    if kind == "watch":
        return Watch(_whole(content, "take"))
    if kind == "command":
        return _command(content)
    raise DataError(f"a message: expected pointer, command, claim or watch, found {kind!r:.40}")


def _command(content: dict[str, Any]) -> StudioCommand:
    name = content.get("name")
    if name == "retry":
        return StudioCommand(name, StudioSession.retry)
    if name == "end":
        return StudioCommand(name, StudioSession.end)
    if name == "undo":
        return StudioCommand(name, StudioSession.undo)
    if name == "show_me":
        return StudioCommand(name, StudioSession.show_me)
    if name == "compare":
        return StudioCommand(name, StudioSession.compare)
    if name == "examine":
        return StudioCommand(name, StudioSession.examine)
    if name == "map":
        on = content.get("on")
        if not isinstance(on, bool):
            raise DataError(f"map: expected true or false, found {on!r:.40}")
        return StudioCommand(name, lambda session: session.show_map(on))
    if name == "pause":
        paused = content.get("paused")
        if not (paused is None or isinstance(paused, bool)):
            raise DataError(f"pause: expected true or false, found {paused!r:.40}")
        return StudioCommand(name, lambda session: session.pause(paused))
    if name == "start":
        seed = _whole(content, "seed")
        return StudioCommand(name, lambda session: session.start(seed))
    if name == "delete":
        take = _whole(content, "take")
        return StudioCommand(name, lambda session: session.delete(take))
    if name == "parameters":
        parameters = content.get("parameters")
        if not isinstance(parameters, dict) or not parameters or not set(parameters) <= set(TUNABLE):
            raise DataError(f"parameters: expected some of {', '.join(TUNABLE)}, found {parameters!r:.80}")
        return StudioCommand(name, lambda session: session.set_parameters(parameters))
    raise DataError(f"a message: expected a command that exists, found {name!r:.40}")


def _whole(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int or not 0 <= value < 2**32:
        raise DataError(f"{name}: expected a whole number from 0 to {2**32 - 1}, found {value!r:.40}")
    return value


def _point(value: Any) -> Point | None:
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) not in (2, 4)
        or not all(type(x) in (int, float) and abs(x) < 1e9 and math.isfinite(x) for x in value)
    ):
        raise DataError(f"a pointer: expected two or four finite numbers, found {value!r:.40}")
    return tuple(float(x) for x in value)
