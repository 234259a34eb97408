"""Settings of environments, written as `name=value,name=value` and read into a dataclass of numbers and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from closedform.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Range = tuple[float, float]
T = TypeVar("T", bound="DataclassInstance")


def parse_settings(kind: type[T], text: str, what: str) -> T:
    """Reads settings such as `latency=0.1,friction=0.3..0.6`; those not named are as by default.

    Args:
        kind: a dataclass whose fields are numbers, or ranges, pairs of them; all have defaults.
        text: what to read.
        what: whose settings they are, for messages.
    """
    ranges = {one.name: isinstance(one.default, tuple) for one in fields(kind)}
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or name not in ranges:
            raise ConfigError(f"expected a setting of {what} ({', '.join(ranges)}) and its value, found {part!r}")
        try:
            numbers = [float(number) for number in value.split("..")]
        except ValueError as error:
            raise ConfigError(f"{what}'s {name}: expected a number, found {value!r}") from error
        if len(numbers) > 1 + ranges[name] or name in found:
            expected = "one number or two as in 0.3..0.5" if ranges[name] else "one number"
            raise ConfigError(f"{what}'s {name}: expected {expected}, once, found {part!r}")
        found[name] = (numbers[0], numbers[-1]) if ranges[name] else numbers[0]
    return replace(kind(), **found)


def check_settings(settings: DataclassInstance, bounds: Mapping[str, Range], what: str) -> None:
    """Refuses settings that are not between the least and the greatest value allowed for each."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        low, high = value if isinstance(value, tuple) else (value, value)
        least, most = bounds[one.name]
        if not (np.isfinite([low, high]).all() and least <= low <= high <= most):
            raise ConfigError(f"{what}'s {one.name}: expected {least:g} to {most:g}, found {value}")
