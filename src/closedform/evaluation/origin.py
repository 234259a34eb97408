"""Origin: what made the results of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from closedform import provenance


@dataclass(frozen=True)
class Origin:
    """What made results.

    Attributes:
        command: the command line.
        commit: of the code; None if it was not run from a checkout.
        date: when, in UTC.
        versions: of Python and of packages, by their names.
        machine: processor, cores, GPU and system.
        n_together: how many plans were made at once; each latency is that of all of them.
    """

    command: str = ""
    commit: str | None = None
    date: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    n_together: int = 1

    @classmethod
    def here(cls, n_together: int = 1) -> Origin:
        """This process, now."""
        return cls(
            command=provenance.command(),
            commit=provenance.commit(),
            date=provenance.now(),
            versions=provenance.versions(),
            machine=provenance.machine(),
            n_together=n_together,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Origin:
        """What a results file says, which has been checked."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    def to_json(self) -> dict[str, Any]:
        """The fields of a results file."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
