"""Working: where the episodes or trials of a command run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from closedform.errors import ConfigError
from closedform.evaluation.pool import Workers
from closedform.evaluation.processes import Processes
from closedform.evaluation.ray_pool import Ray


@dataclass(frozen=True, kw_only=True)
class Working:
    """Where episodes or trials run."""

    workers: Annotated[int | None, arg(metavar="N")] = None
    """Number of processes, one per core by default; with --ray, the most at once, by default one per CPU of
    the cluster. The result does not depend on it."""
    ray: Annotated[tuple[str, ...] | None, arg(metavar="[HOST:PORT]")] = None
    """Run on a Ray cluster, HOST:PORT or auto (that of this machine), or without an address on a new local one."""

    @property
    def where(self) -> Workers:
        """The workers that were chosen."""
        if self.ray is None:
            return Processes(self.workers)
        if len(self.ray) > 1:
            raise ConfigError(f"ray: expected at most one address, found {' '.join(self.ray)}; give it last")
        return Ray(self.ray[0] if self.ray else None, self.workers)
