"""Model: everything that a plan reads, as one immutable value."""

from __future__ import annotations

import copyreg
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from closedform import kernels
from closedform.demos.episode import Episode
from closedform.kernels.records import Metric, RowsRecord
from closedform.store.index import ExactIndex, Index
from closedform.store.neighborhood import Neighborhood
from closedform.store.recall import Recall
from closedform.store.spec import ModelSpec
from closedform.store.store import Store
from closedform.transfer.transfer import Transfer
from closedform.weights.observation_kernel import ObservationKernel
from closedform.weights.penalty import Penalty


class Found(NamedTuple):
    """Neighbors of a query that its index found.

    Attributes:
        rows: (m,), rows of the store, ascending.
        record: what the compiled planner reads of them.
        metric: of their distances.
    """

    rows: np.ndarray
    record: RowsRecord
    metric: Metric


class Storage(Protocol):
    """Where the rows of a model are kept, and how they are searched and updated."""

    @property
    def index(self) -> Index:
        """The nearest-neighbor index of the rows' features."""
        ...

    def add(self, model: Model, episode: Episode, episode_id: int) -> Model:
        """The model with one more episode."""
        ...

    def remove(self, model: Model, episode_id: int) -> Model:
        """The model without an episode, as if it had never been added."""
        ...

    def leave_out(self, model: Model, index: int) -> Model:
        """The model without an episode, given by its index in the store; relevance stays that of all episodes."""
        ...

    def rows_record(self, model: Model) -> RowsRecord | None:
        """What the compiled planner reads if it searches all rows itself; None if the index is queried first."""
        ...

    def found(self, model: Model, query: np.ndarray, k: int, penalty: Penalty) -> Found:
        """The neighbors of a query (D_z,) that a plan needs."""
        ...

    def write(self, model: Model, folder: Path, identity: str) -> dict[str, Any] | None:
        """Writes what is needed besides the demonstrations to reopen the model; None if nothing is."""
        ...

    def reopening(self, model: Model) -> tuple[Any, ...] | None:
        """How another process opens the model from the same files, as `__reduce__` returns it; None if it cannot."""
        ...


@dataclass(frozen=True)
class Model:
    """Everything that a plan reads, as one immutable value.

    Attributes:
        spec: what it was built with.
        store: the demonstrated windows, one row each.
        kernel: the weights of demonstrations.
        transfer: how their chunks apply to the current scene.
        storage: where the rows are kept, and their index.
    """

    spec: ModelSpec
    store: Store
    kernel: ObservationKernel
    transfer: Transfer
    storage: Storage

    def __len__(self) -> int:
        return len(self.store)

    @property
    def index(self) -> Index:
        """The nearest-neighbor index of the rows' features."""
        return self.storage.index

    @property
    def recall(self) -> Recall | None:
        """The recall relative to exact search; None if the search is exact."""
        return self.index.recall

    def features_at(self, rows: np.ndarray) -> np.ndarray:
        """The features of some rows. (m,) -> (m, D_z)."""
        return self.index.rows()[rows]

    def nearest(self, query: np.ndarray, k: int) -> np.ndarray:
        """The k nearest rows (Euclidean) of a query (D_z,), ascending."""
        return self.index.query(query, k)

    def neighborhood(self, query: np.ndarray, k: int, poses: np.ndarray) -> Neighborhood:
        """The k nearest rows (Euclidean) of a query (D_z,), their distances in the metric, and how to transfer them.

        Args:
            query: the features of an observation.
            k: how many rows.
            poses: (bodies, width), those of the observation; see `Transfer.poses`.
        """
        index = self.index
        if kernels.enabled() and isinstance(index, ExactIndex):
            from closedform.kernels.search import retrieve

            rows, squared = retrieve(index.columns, len(self), query, k, self.kernel.record)
        else:
            rows = self.nearest(query, k)
            squared = self.kernel.squared_distances(query, self.features_at(rows))
        return Neighborhood(query, rows, squared, self.transfer.choose(self.store, rows, squared, poses))

    def near(self, window: np.ndarray, k: int) -> Neighborhood:
        """The neighborhood of an observation window (N_o, D_o)."""
        query, poses = self.kernel.features(window[None])[0], self.transfer.poses(window[None, -1])[0]
        return self.neighborhood(query, k, poses)

    def normalized_chunks(self, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The chunks of some rows, transferred and normalized for diffusion. (m,), (hands, 2) -> (m, N_a * D)."""
        return self.transfer.normalized_chunks(self.store, rows, choice)

    @cached_property
    def rows_record(self) -> RowsRecord | None:
        """What the compiled planner reads if it searches all rows itself; None if the index is queried first."""
        return self.storage.rows_record(self)

    def found(self, query: np.ndarray, k: int, penalty: Penalty) -> Found:
        """The neighbors of a query (D_z,) that a plan needs: the k nearest, or those of them that carry weight."""
        return self.storage.found(self, query, k, penalty)

    def prepared(self) -> Model:
        """The same with its caches filled, so that no plan has to wait for them."""
        kept = (
            (self.kernel, ("record", "compiled", "uncompiled")),
            (self.transfer, ("record", "world", "moves")),
            (self, ("rows_record",)),
        )
        for part, names in kept:
            for name in names:
                getattr(part, name)  # cached
        return self

    def add(self, episode: Episode, episode_id: int) -> Model:
        """The model with one more episode."""
        return self.storage.add(self, episode, episode_id)

    def remove(self, episode_id: int) -> Model:
        """The model without an episode, as if it had never been added."""
        return self.storage.remove(self, episode_id)

    def leave_out(self, index: int) -> Model:
        """The model without an episode, given by its index in the store, to predict that episode."""
        return self.storage.leave_out(self, index)

    def __reduce__(self) -> Any:
        """Another process opens the same files, if there are any and nothing was added."""
        reopening = self.storage.reopening(self)
        return (copyreg.__newobj__, (Model,), dict(self.__dict__)) if reopening is None else reopening  # pyright: ignore[reportAttributeAccessIssue]
