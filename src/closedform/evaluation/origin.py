"""Origin: how the results of an evaluation were produced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from closedform import provenance


@dataclass(frozen=True)
class Origin:
    """How results were produced.

    Attributes:
        command: the command line.
        commit: of the code; None if it was not run from a checkout.
        date: in UTC.
        versions: of Python and of packages, by name.
        machine: processor, cores, GPU and system.
        n_together: how many plans were made per batch; a latency is that of the whole batch.
    """

    command: str = ""
    commit: str | None = None
    date: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)
    n_together: int = 1

    @classmethod
    def here(cls, n_together: int = 1) -> Origin:
        """The origin of results of this process, now."""
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
        """Reads the checked fields of a results file."""
        return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})

    def to_json(self) -> dict[str, Any]:
        """The fields for a results file."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
