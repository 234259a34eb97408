"""EngineSteps: a model whose rows are found by the fleet's store, and fetched from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from closedform.demos.episode import Episode
from closedform.errors import ConfigError, LoadError
from closedform.files import crc32, parse_json
from closedform.fleet.engine_index import EngineIndex
from closedform.fleet.fleet_table import FleetTable, connect, reading
from closedform.fleet.remote_steps import EpisodeCache, RemoteSteps
from closedform.fleet.where import quoted
from closedform.kernels.records import Candidates
from closedform.store.model import Found, Model
from closedform.store.recall import Recall
from closedform.store.recorded_steps import features_of, rows_record, store_of
from closedform.store.saved_index import SCALING
from closedform.store.spec import ModelSpec
from closedform.store.summary import Summary
from closedform.store.windows import Windows
from closedform.transfer.frame import voters
from closedform.transfer.transfer import Transfer
from closedform.weights.metric import squared_distances
from closedform.weights.observation_kernel import ObservationKernel
from closedform.weights.penalty import Penalty

SEARCHES = "searches"  # the table with a row for everything that was published
FORMAT_VERSION = 1
LEFT_OUT = 1e-3  # share of the weight of neighbors whose chunks are not fetched
PER_EPISODE = ("lengths", "episode_ids", "removed")

_REFUSED = "a policy in the fleet's store holds what was published: change the fleet, and publish again"


class Place(NamedTuple):
    """Where something was published.

    Attributes:
        uri: the fleet.
        name: of what was published.
        options: of the store.
        cache: bytes of episodes that stay in memory.
    """

    uri: str
    name: str
    options: Mapping[str, str] | None
    cache: int


@dataclass(frozen=True)
class EngineSteps:
    """Rows are found by the store, and their steps are fetched from it.

    Attributes:
        index: of the features.
        windows: the recorded steps.
        place: where they are.
    """

    index: EngineIndex
    windows: Windows
    place: Place

    def found(self, model: Model, query: np.ndarray, k: int, penalty: Penalty) -> Found:
        """The neighbors that carry weight, and those that choose the frame.

        The metric is that of all k neighbors, whose features the search returns. Chunks are fetched only of the
        heaviest: the others have at most `LEFT_OUT` of the weight together, so a plan is one of exact search with at
        least the remaining probability.
        """
        kernel = model.kernel
        rows, features = self.index.search(query, k)
        factor = np.ascontiguousarray(kernel.factor_of(features))
        squared = squared_distances(features, query, factor)
        candidates = Candidates(query, rows, features, self.windows.episodes(rows))
        log_weights = kernel.log_weights(squared, candidates, penalty)
        if log_weights is not None:
            weights = np.exp(log_weights)
            order = np.argsort(-weights, kind="stable")
            n = int(np.searchsorted(np.cumsum(weights[order]), (1 - LEFT_OUT) * weights.sum())) + 1
            kept = np.union1d(order[:n], voters(squared, candidates.episodes))
            rows, features = rows[kept], features[kept]
        record = rows_record(model, self.windows, rows, features)
        return Found(rows, record, kernel.record._replace(factor=factor))

    def leave_out(self, model: Model, index: int) -> Model:
        """The model without an episode, given by its index in the store."""
        if model.store.removed is not None:
            index = int(np.flatnonzero(~model.store.removed)[index])
        return replace(model, storage=replace(self, index=self.index.hiding(np.array([index]))))

    def rows_record(self, model: Model) -> None:
        """None: the store is searched first."""
        return None

    def add(self, model: Model, episode: Episode, episode_id: int) -> NoReturn:
        """Refused."""
        raise ConfigError(_REFUSED)

    def remove(self, model: Model, episode_id: int) -> NoReturn:
        """Refused."""
        raise ConfigError(_REFUSED)

    def write(self, model: Model, folder: Path, identity: str) -> NoReturn:
        """Refused."""
        raise ConfigError(_REFUSED)

    def reopening(self, model: Model) -> tuple[Any, ...]:
        """Another process opens the same."""
        return _reopen, (model.spec, self.place)


class Published:
    """What was published last under a name.

    Args:
        place: where.
    """

    def __init__(self, place: Place):
        self.place = place
        where = f"{place.uri}: {place.name}"
        self.table = FleetTable.open(place.uri, place.options)
        with reading(place.uri):
            database = connect(place.uri, place.options)
            known = SEARCHES in database.list_tables().tables
            search = database.open_table(SEARCHES).search().where(f"name = {quoted(place.name)}") if known else None
            rows = [] if search is None else search.with_row_id(True).limit(2**31 - 1).to_arrow().to_pylist()
            if not rows:
                raise LoadError(f"{where}: expected windows to search, found none; write some: closedform fleet index")
            row = max(rows, key=lambda row: row["_rowid"])
            self._windows = database.open_table(row["windows"])
        self._facts = parse_json(row["facts"], where, "what was published")
        try:
            if self._facts["version"] != FORMAT_VERSION or self._facts["identity"] != self.table.identity:
                raise ValueError("that of another version or fleet")
            if crc32([np.frombuffer(row["arrays"], np.uint8)]) != self._facts["arrays_crc32"]:
                raise ValueError("a checksum mismatch")
            self._arrays = load(row["arrays"])
            self.content: dict[str, Any] = self._facts["policy"]
            self._recall = Recall(**self._facts["recall"])
        except (KeyError, TypeError, ValueError, SafetensorError) as error:
            raise LoadError(f"{where}: expected what closedform fleet index writes, found {error}") from error

    def model(self, spec: ModelSpec) -> Model:
        """The model, without the episodes that were removed since."""
        arrays, uri = self._arrays, self.place.uri
        lengths, episode_ids, removed = (arrays[name] for name in PER_EPISODE)
        late = np.isin(episode_ids, self.table.removed_since(self._facts["rows"]))
        cache = EpisodeCache(self.table, episode_ids, lengths, self.place.cache)
        widths = spec.windows.observation_layout.width, spec.windows.action_layout.width
        names = ("observations", "actions")
        observations, actions = (RemoteSteps(cache, *pair) for pair in zip(names, widths, strict=True))
        windows = Windows(spec, observations, actions, lengths)
        summary = Summary.from_arrays(
            {name: arrays[name] for name in arrays if name not in (*SCALING, *PER_EPISODE, "sample")}
        )
        summary = replace(summary, last_observations=np.where(late[:, None], np.nan, summary.last_observations))
        offset, scale, relevance = (arrays[name] for name in SCALING)
        problem = summary.problem(spec, len(lengths), len(windows), len(scale))
        if problem:
            raise LoadError(f"{uri}: expected a summary of {len(lengths)} episodes, found {problem}; publish it again")
        ends = cache.ends.tolist()
        views = tuple(
            Episode.view(observations[end - length : end], actions[end - length : end])
            for end, length in zip(ends, lengths.tolist(), strict=True)
        )
        gone = removed | late
        store = store_of(spec, windows, views, episode_ids, summary, gone if gone.any() else None)
        kernel = ObservationKernel(spec.kernel, offset, scale, relevance, self._facts["chosen_shrinkage"])
        features = features_of(windows, kernel)
        kernel = kernel.fitted(store, lambda: arrays["sample"])
        index = EngineIndex(uri, self._windows, self._recall, features, windows, gone)
        return Model(spec, store, kernel, Transfer.of(spec.transfer, store), EngineSteps(index, windows, self.place))


def _reopen(spec: ModelSpec, place: Place) -> Model:
    return Published(place).model(spec)
