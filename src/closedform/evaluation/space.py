"""Space: the configurations of a sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from closedform.errors import ConfigError, LoadError
from closedform.files import read_json
from closedform.parameters import shown

MOST_CONFIGURATIONS = 256
_EXPECTED = 'a sweep such as {"tau": [0.03, 0.07], "n_execute": [4, 8]}'


def read_space(path: Path) -> list[dict[str, Any]]:
    """The configurations in a JSON file: all combinations of a grid, {"parameter": [values]}, or of a list of grids."""
    content = read_json(path, _EXPECTED)
    grids = content if isinstance(content, list) else [content]
    if not grids:
        raise LoadError(f"{path}: expected {_EXPECTED}, found an empty list")
    found: dict[str, dict[str, Any]] = {}
    for grid in grids:
        for configuration in _combinations(path, grid):
            if found.setdefault(json.dumps(configuration, sort_keys=True), configuration) is not configuration:
                raise ConfigError(f"{path}: expected each configuration once, found {describe(configuration)} twice")
    if len(found) < 2:
        raise ConfigError(f"{path}: expected at least two configurations to compare, found {len(found)}")
    return list(found.values())


def _combinations(path: Path, grid: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(grid, dict):
        raise LoadError(f"{path}: expected {_EXPECTED}, found {shown(grid)}")
    n = 1
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{path}: {name}: expected a list of values, found {shown(values)}")
        n *= len(values)
    if n > MOST_CONFIGURATIONS:
        raise ConfigError(f"{path}: expected at most {MOST_CONFIGURATIONS} configurations, found {n}")
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def describe(configuration: dict[str, Any]) -> str:
    """A configuration in words: `tau=0.03 n_execute=4`."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in configuration.items()) or "no changes"
