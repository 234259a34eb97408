"""Checksums that our writers add to formats that have none of their own."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.errors import LoadError
from closedform.files import crc32
from closedform.geometry.layout import Layout

KEY = "closedform_checksums"
_HELP = f"the file is damaged, or another program changed it without removing {KEY!r}"


@dataclass(frozen=True)
class Checksums:
    """The checksums of written demonstrations.

    Attributes:
        episodes: that of each episode's observations and actions; None for an episode without one.
        description: that of the layouts, the rate and the number of episodes.
    """

    episodes: tuple[str | None, ...]
    description: str | None

    @classmethod
    def of(cls, demos: Demos, rate: float | None, *, joined: bool = False) -> Checksums:
        """The checksums of demonstrations that are written with this rate.

        Args:
            demos: the demonstrations.
            rate: as it is written.
            joined: whether the episodes are written as one array, which has one dtype.
        """
        pairs = [(episode.observations, episode.actions) for episode in demos]
        if joined:
            types = [np.result_type(*(array.dtype for array in arrays)) for arrays in zip(*pairs, strict=True)]
            pairs = [(pair[0].astype(types[0], copy=False), pair[1].astype(types[1], copy=False)) for pair in pairs]
        episodes = tuple(map(crc32, pairs))
        layouts = demos.observation_layout, demos.action_layout
        return cls(episodes, description_of(*layouts, rate, len(episodes)))

    def to_json(self) -> dict[str, Any]:
        """The checksums as plain lists and dictionaries."""
        return {"crc32": list(self.episodes), "description": self.description}

    @classmethod
    def from_json(cls, path: Path, stored: Any) -> Checksums | None:
        """The inverse of `to_json`; None if nothing was stored."""
        if stored is None:
            return None
        episodes = stored.get("crc32") if isinstance(stored, dict) else None
        if not isinstance(episodes, list) or not all(map(_is_checksum, [*episodes, stored.get("description")])):
            raise LoadError(f"{path}: expected {KEY} for each episode and for the description; {_HELP}")
        return cls(tuple(episodes), stored["description"])

    def check_description(
        self,
        path: Path,
        layouts: Mapping[str, Layout | None],
        rate: float | None,
        n_episodes: int,
    ) -> None:
        """Refuses layouts and a rate that differ from those written, and missing episodes."""
        written = sum(checksum is not None for checksum in self.episodes)
        if n_episodes < len(self.episodes):
            raise LoadError(f"{path}: expected {len(self.episodes)} episodes, found {n_episodes}; {_HELP}")
        found = description_of(layouts.get("observation_layout"), layouts.get("action_layout"), rate, written)
        if self.description is not None and found != self.description:
            raise LoadError(f"{path}: checksum mismatch in the layouts, the rate or the number of episodes; {_HELP}")

    def check_episode(self, path: Path, number: int, observations: np.ndarray, actions: np.ndarray) -> bool:
        """Refuses an episode with a checksum mismatch; False if it has no checksum."""
        expected = self.episodes[number] if number < len(self.episodes) else None
        if expected is None:
            return False
        if crc32((observations, actions)) != expected:
            raise LoadError(f"{path}: checksum mismatch in episode {number}; {_HELP}")
        return True


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{8}", value) is not None


def description_of(
    observation_layout: Layout | None,
    action_layout: Layout | None,
    rate: float | None,
    n_episodes: int = 0,
) -> str:
    """A checksum of the layouts, the rate and the number of episodes."""
    layouts = [layout.to_json() if layout else None for layout in (observation_layout, action_layout)]
    facts = [*layouts, None if rate is None else float(rate), n_episodes]
    return f"{zlib.crc32(json.dumps(facts, sort_keys=True).encode()):08x}"
