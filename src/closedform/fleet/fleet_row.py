"""FleetRow: an episode, or the removal of one, as a row of the fleet's table."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.demos.demos import check_episode, valid_rate
from closedform.demos.episode import Episode
from closedform.errors import ClosedFormError, DataError
from closedform.files import parse_json
from closedform.fleet.where import LABELS, check_label, microseconds
from closedform.geometry.layout import Layout

EPISODE, REMOVED = "episode", "removed"
LIGHT = ("episode", "kind", "task", "site", "robot", "outcome", "time", "n_steps", "rate", "layout", "n_bytes")
_DTYPES = {"float32": np.dtype("<f4"), "float64": np.dtype("<f8")}


@dataclass(frozen=True)
class FleetRow:
    """What the table says about an episode, without its numbers.

    Attributes:
        number: of the row, in the order in which rows were committed, from 0.
        episode: the sha256 of its numbers, layouts and rate, which identifies it.
        kind: `episode`, or `removed` if the row removes an episode.
        task, site, robot, outcome: labels.
        time: when it was recorded, as the clock of whoever pushed it said.
        n_steps: its length.
        rate: steps per second; None if unknown.
        layout: the layouts of its observations and actions, as JSON.
        n_bytes: of its numbers.
    """

    number: int
    episode: str
    kind: str
    task: str
    site: str
    robot: str
    outcome: str
    time: datetime
    n_steps: int
    rate: float | None
    layout: str
    n_bytes: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> FleetRow:
        """Reads a row of the table; a `DataError` if it is not one that `push` or `remove` writes."""
        facts, number = {name: row[name] for name in LIGHT}, int(row["_rowid"])
        try:
            _check(facts)
            facts["time"] = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=facts["time"])
        except (ClosedFormError, OverflowError) as error:
            raise DataError(f"row {number}, episode {brief(facts['episode'])}: {error}") from error
        return cls(number=number, **facts)

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """The layouts of observations and of actions."""
        return read_layouts(self.layout)

    def to_json(self) -> dict[str, Any]:
        """The facts as plain values, without the layouts."""
        names = ("number", "episode", "kind", "task", "site", "robot", "outcome", "n_steps", "rate")
        return {**{name: getattr(self, name) for name in names}, "time": self.time.isoformat()}


def _check(facts: Mapping[str, Any]) -> None:
    """Refuses what no `push` writes: an open table has whatever somebody put into it."""
    name, kind, n_steps, n_bytes = (facts[key] for key in ("episode", "kind", "n_steps", "n_bytes"))
    if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{64}", name):
        raise DataError("expected the sha256 of an episode, found another name")
    if kind not in (EPISODE, REMOVED):
        raise DataError(f"expected an episode or a removal, found kind {brief(kind)}")
    if not isinstance(facts["time"], int):
        raise DataError(f"expected a time, found {brief(facts['time'])}")
    if kind == REMOVED:
        return
    for label in LABELS:
        check_label(label, facts[label])
    valid_rate(facts["rate"])
    width = sum(layout.width for layout in read_layouts(facts["layout"]))
    if not isinstance(n_steps, int) or n_steps < 0 or n_bytes not in (4 * n_steps * width, 8 * n_steps * width):
        raise DataError(f"expected as many steps as there are bytes of numbers, found {n_steps} and {n_bytes}")


def layout_text(observation_layout: Layout, action_layout: Layout) -> str:
    """Layouts as the table keeps them: equal text for equal layouts."""
    return json.dumps([observation_layout.to_json(), action_layout.to_json()], sort_keys=True)


@lru_cache(maxsize=64)
def read_layouts(text: str) -> tuple[Layout, Layout]:
    """The inverse of `layout_text`."""
    content = parse_json(text, "an episode", "layouts") if isinstance(text, str) else None
    if not isinstance(content, list) or len(content) != 2:
        raise DataError(f"expected the layouts of an episode, found {brief(text)}")
    return Layout.from_json(content[0]), Layout.from_json(content[1])


def to_row(
    episode: Episode,
    observation_layout: Layout,
    action_layout: Layout,
    rate: float | None,
    labels: Mapping[str, str],
    time: datetime,
    recorded_in: str = "",
) -> dict[str, Any]:
    """An episode as a row to append."""
    arrays = episode.observations, episode.actions
    dtype = "float32" if all(array.dtype == np.float32 for array in arrays) else "float64"
    observations, actions = (np.ascontiguousarray(array, _DTYPES[dtype]).tobytes() for array in arrays)
    layout = layout_text(observation_layout, action_layout)
    return {
        "episode": _identity(dtype, layout, rate, observations, actions),
        "kind": EPISODE,
        **labels,
        "time": microseconds(time),
        "n_steps": len(episode),
        "rate": None if rate is None else float(rate),
        "layout": layout,
        "n_bytes": len(observations) + len(actions),
        "dtype": dtype,
        "observations": observations,
        "actions": actions,
        "recorded_in": recorded_in,
    }


def removal_row(episode: str, time: datetime) -> dict[str, Any]:
    """The row that removes an episode."""
    return {
        "episode": episode,
        "kind": REMOVED,
        **dict.fromkeys(("task", "site", "robot", "layout", "dtype", "recorded_in"), ""),
        "outcome": "unknown",
        "time": microseconds(time),
        "n_steps": 0,
        "rate": None,
        "n_bytes": 0,
        "observations": b"",
        "actions": b"",
    }


def to_episode(row: FleetRow, numbers: Mapping[str, Any]) -> Episode:
    """The episode of a row, given its numbers; damaged ones are refused."""
    name = f"episode {row.episode[:12]}"
    try:
        layouts, dtype = row.layouts, _DTYPES[numbers["dtype"]]
        valid_rate(row.rate)
        content = [numbers["observations"], numbers["actions"]]
        if _identity(numbers["dtype"], row.layout, row.rate, *content) != row.episode:
            raise DataError("checksum mismatch: it was damaged in the store")
        arrays = [
            np.frombuffer(data, dtype).reshape(row.n_steps, layout.width)
            for data, layout in zip(content, layouts, strict=True)
        ]
        episode = Episode(*(array.astype(dtype.newbyteorder("=")) for array in arrays))
        check_episode(episode, row.number, *layouts)
    except (ClosedFormError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name}: expected an episode as it was pushed, found {error}") from error
    return episode


def _identity(dtype: str, layout: str, rate: float | None, observations: bytes, actions: bytes) -> str:
    """The sha256 that identifies an episode, wherever and whenever it was recorded."""
    head = json.dumps([dtype, layout, None if rate is None else float(rate), len(observations), len(actions)])
    digest = hashlib.sha256(head.encode())
    digest.update(observations)
    digest.update(actions)
    return digest.hexdigest()
