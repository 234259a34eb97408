"""Validation of every field of a results file, since files are not trusted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn

from closedform.errors import LoadError

LARGEST = 1e100  # of any number: sums and squares of these do not overflow
_MOST = 2**53  # integers up to this are exact in every program that reads JSON
_Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    """A finite number."""
    return _whole(value) or (isinstance(value, float) and abs(value) <= LARGEST)


def _distance(value: Any) -> bool:
    """A number that may be infinite after an overflow."""
    return _number(value) or value == math.inf


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST


def _count(value: Any) -> bool:
    return _whole(value) and value >= 0


def _positive(value: Any) -> bool:
    return _whole(value) and value >= 1


def _seed(value: Any) -> bool:
    return _whole(value) and 0 <= value < 2**32


def _is(kind: type) -> _Check:
    return lambda value: isinstance(value, kind)


def _name_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _some(check: _Check) -> _Check:
    """A list of at least one."""
    return lambda value: isinstance(value, list) and bool(value) and all(map(check, value))


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_number, value))


def _led(value: Any) -> bool:
    """Demonstrations, each with its fraction."""
    return isinstance(value, list) and all(_pair(one) and _whole(one[0]) for one in value)


def _runs(value: Any) -> bool:
    """Names, each with the number of consecutive plans."""
    pairs = isinstance(value, list) and value and all(isinstance(one, list) and len(one) == 2 for one in value)
    return bool(pairs) and all(isinstance(name, str) and _positive(count) for name, count in value)


def _outside(value: Any) -> bool:
    """A fraction, and the name of the entry that is outside most often."""
    return isinstance(value, list) and len(value) == 2 and _number(value[0]) and _name_or_null(value[1])


def _lines(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(line, str) for line in value)


_FIELDS: dict[str, tuple[_Check, str]] = {
    "env": (lambda value: isinstance(value, str) and value != "", "a name"),
    "demos": (_is(dict), "an object"),
    "policy": (_is(dict), "an object"),
    "policy.name": (_is(str), "a name"),
    "parameters": (_is(dict), "an object"),
    "versions": (_is(dict), "an object"),
    "seed": (_seed, "a whole number from 0 to 2^32 - 1"),
    "n_episodes": (_positive, "a whole number of at least 1"),
    "complete": (_is(bool), "true or false"),
    "score": (_is(dict), "an object"),
    "score.mean": (_number, "a number"),
    "score.ci95": (_pair, "two numbers"),
    "success": (_is(dict), "an object"),
    "success.mean": (_number, "a number"),
    "success.ci95": (_pair, "two numbers"),
    "steps": (_is(dict), "an object"),
    "steps.mean": (_number, "a number"),
    "latency_ms": (_is(dict), "an object"),
    "latency_ms.p50": (_number, "a number"),
    "latency_ms.p99": (_number, "a number"),
    "episodes": (_some(_is(dict)), "a list of objects"),
}
_OPTIONAL: dict[str, tuple[_Check, str]] = {
    "demos.name": (_name_or_null, "a name or null"),
    "policy.class": (_is(str), "a name"),
    "command": (_is(str), "a text"),
    "commit": (_name_or_null, "a name or null"),
    "date": (_is(str), "a text"),
    "n_together": (_positive, "a whole number of at least 1"),
    "machine": (_is(dict), "an object"),
    "notes": (_lines, "a list of texts"),
}
_ROW: dict[str, tuple[_Check, str]] = {
    "seed": (_seed, "a whole number from 0 to 2^32 - 1"),
    "score": (_number, "a number"),
    "success": (_is(bool), "true or false"),
    "steps": (_positive, "a whole number of at least 1"),
    "distances": (_some(_distance), "numbers"),
    "loop": (_is(bool), "true or false"),
    "most_repeated": (_count, "a whole number of at least 0"),
    "demonstrations": (_led, "pairs of a whole number and a number"),
    "latency_ms": (_some(_number), "numbers"),
}
_ROW_OPTIONAL: dict[str, tuple[_Check, str]] = {
    "neural_shares": (_some(_number), "numbers"),
    "frames": (_runs, "pairs of a name and a whole number"),
    "held": (_runs, "pairs of a name and a whole number"),
    "n_effective": (_some(_number), "numbers"),
    "shrinkage": (_number, "a number"),
    "outside": (_outside, "a number and a name or null"),
}


def check_results(content: dict[str, Any], where: object) -> None:
    """Refuses a results file with an invalid field, apart from its episodes."""
    _check_all(content, _FIELDS, _OPTIONAL, where, "")


def check_row(row: dict[str, Any], where: object, prefix: str) -> None:
    """Refuses an episode with an invalid field."""
    _check_all(row, _ROW, _ROW_OPTIONAL, where, prefix)


def refuse(where: object, expected: str, found: str) -> NoReturn:
    """The error for an invalid results file."""
    raise LoadError(f"{where}: expected {expected}, found {found}")


def short(value: Any) -> str:
    """A value of a file, shortened for a message."""
    text = repr(value) if not isinstance(value, int) or abs(value) <= _MOST else "a number beyond 2^53"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_all(
    content: dict[str, Any],
    required: dict[str, tuple[_Check, str]],
    optional: dict[str, tuple[_Check, str]],
    where: object,
    prefix: str,
) -> None:
    for name, (check, expected) in {**required, **optional}.items():
        value: Any = content
        for key in name.split("."):
            if key not in value:
                if name in optional:
                    break
                refuse(where, "a complete results file", f"one without {prefix}{name}")
            value = value[key]
        else:
            if not check(value):
                refuse(where, f"{prefix}{name} to be {expected}", short(value))
