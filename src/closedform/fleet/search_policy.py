"""SearchPolicy: a policy without a replica, whose demonstrations are searched in the fleet's store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from closedform.fleet.engine_steps import EngineSteps, Place, Published
from closedform.fleet.fleet_table import checked_uri
from closedform.fleet.remote_steps import RemoteSteps
from closedform.fleet.where import check_label
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.saving import describe

CACHE = 256 << 20  # bytes of episodes that stay in memory


class SearchPolicy(ClosedFormPolicy):
    """A `ClosedFormPolicy` of a fleet's episodes for machines that a replica does not fit on.

    For every plan the store finds the nearest windows and returns their features, and then the episodes of the few that
    carry weight, of which the last ones stay in memory. It plans from what `publish` wrote; episodes that were removed
    since are left out from when it is opened or `refresh` is called. Without the store it cannot plan.

    Args:
        uri: the fleet, as in `FleetTable`.
        name: what was published.
        options: of an object store.
        cache: bytes of episodes that stay in memory.
    """

    def __init__(
        self,
        uri: str | Path,
        name: str = "default",
        *,
        options: Mapping[str, str] | None = None,
        cache: int = CACHE,
    ):
        opened = Published(Place(checked_uri(uri), check_label("name", name), options, cache))
        about = describe(f"{opened.place.uri}: {name}", opened.content)
        self._build(
            opened.model,
            about.next_id,
            *about.layouts,
            config=about.parameters,
            feature_map=None,
            rewrites=about.rewrites,
        )

    def refresh(self) -> None:
        """Leaves out the episodes that were removed from the fleet."""
        storage = self.model.storage
        assert isinstance(storage, EngineSteps)
        self._use(Published(storage.place).model(self.model.spec))

    @property
    def n_fetched(self) -> int:
        """How many episodes were fetched so far."""
        storage = self.model.storage
        assert isinstance(storage, EngineSteps) and isinstance(storage.windows.observations, RemoteSteps)
        return storage.windows.observations.cache.n_fetched
