"""Subject: what was evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from closedform.policies.config import RENAMED


@dataclass(frozen=True)
class Subject:
    """What was evaluated; evaluations of equal subjects have equal episodes.

    Attributes:
        env: the environment's name.
        demos: `name` of the demonstrations, None for those of a saved policy, and `Policy.fingerprint` of them.
        policy: its `name` and its `class`.
        parameters: of the policy.
        seed, n_episodes: the seeds of the episodes are seed, seed + 1, ...
    """

    env: str
    demos: Mapping[str, Any]
    policy: Mapping[str, Any]
    parameters: Mapping[str, Any]
    seed: int
    n_episodes: int

    @property
    def seeds(self) -> range:
        """The seeds of the episodes."""
        return range(self.seed, self.seed + self.n_episodes)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Subject:
        """Reads the checked fields of a results file; parameters get the names that they have now."""
        read = {name: content[name] for name in cls.__dataclass_fields__}
        parameters = {RENAMED.get(name, name): value for name, value in content["parameters"].items()}
        return cls(**{**read, "parameters": parameters})

    def to_json(self) -> dict[str, Any]:
        """The fields for a results file."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
