"""A fleet as the source of a policy on the command line: fleet:URI?cache=FOLDER or fleet:URI?search=NAME."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from closedform.errors import ConfigError
from closedform.fleet.fleet_policy import FleetPolicy
from closedform.fleet.search_policy import SearchPolicy
from closedform.fleet.where import Where
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.store.recorded_steps import Progress

PREFIX = "fleet:"
_EXPECTED = "expected fleet:URI?cache=FOLDER with task, site, robot, outcome, since or until, or fleet:URI?search=NAME"


def open_fleet(source: str, parameters: Mapping[str, Any], progress: Progress | None = None) -> ClosedFormPolicy:
    """Opens a policy of a fleet.

    Args:
        source: `fleet:URI?cache=FOLDER`, with the attributes of `Where` as further entries, such as
            `fleet:/shared/fleet?cache=replica&task=pick`; or `fleet:URI?search=NAME` to search in the store.
        parameters: of a policy with a replica.
        progress: called with a description and the fraction done, if indexing takes long.
    """
    uri, _, query = source.removeprefix(PREFIX).partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    given = dict(pairs)
    if not uri or len(given) < len(pairs) or len({"cache", "search"} & given.keys()) != 1:
        raise ConfigError(f"{_EXPECTED}, found {source[:200]!r}")
    if "search" in given:
        name = given.pop("search")
        if given or parameters:
            raise ConfigError(f"{source[:200]}: expected no {next(iter((*given, *parameters)))}, which was published")
        return SearchPolicy(uri, name)
    cache = given.pop("cache")
    return FleetPolicy(uri, cache=cache, where=Where.of(given), progress=progress, **parameters)
