"""Publishing: a replica's windows in the fleet's store, where machines without a replica search them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from safetensors.numpy import save

from closedform.errors import ConfigError
from closedform.files import crc32
from closedform.fleet.engine_index import nearest
from closedform.fleet.engine_steps import FORMAT_VERSION, SEARCHES
from closedform.fleet.fleet_policy import FleetPolicy
from closedform.fleet.fleet_table import connect, writing
from closedform.fleet.where import check_label, quoted
from closedform.store.recall import BLOCK, Judged, Recall, single
from closedform.store.recorded_steps import Progress, RecordedSteps, sample_of
from closedform.store.saved_index import SCALING
from closedform.store.windows import Computed

N_QUERIES = 50  # windows that recall is measured on


def publish(policy: FleetPolicy, name: str = "default", *, progress: Progress | None = None) -> Recall:
    """Writes what a replica holds to the fleet's store, for `SearchPolicy`; returns the measured recall.

    The table of windows is written and indexed before the row that announces it, so readers find the whole of it or
    what was published before, which stays until the next time.

    Args:
        policy: opened with `index="faiss"`.
        name: of what is published; the same name replaces it.
        progress: called with a description and the fraction done.
    """
    began, say = time.perf_counter(), progress or (lambda what, share: None)
    check_label("name", name)
    model, content, n_rows = policy.merged()
    storage, table = model.storage, policy.table
    if not isinstance(storage, RecordedSteps):
        raise ConfigError("expected a fleet's policy with index='faiss', found one that is searched exactly")
    kernel, store = model.kernel, model.store
    removed = np.zeros(len(store.episodes), bool) if store.removed is None else store.removed
    shown = np.flatnonzero(np.repeat(~removed, store.counts))
    features = Computed(lambda at: storage.index.rows()[shown[at]], len(shown))
    episodes = Computed(lambda at: store.row_episodes[shown[at]], len(shown))
    n_lists = max(1, int(2 ** np.round(np.log2(np.sqrt(len(shown))))))
    with writing(table.uri):
        database = connect(table.uri, policy.options)
        windows = _write_windows(database, shown, features, n_lists, say)

    def weigh(query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return kernel.weights(query, features[rows])

    def search(queries: np.ndarray, asked: int, n_probes: int) -> list[np.ndarray]:
        return [np.searchsorted(shown, nearest(windows, table.uri, query, asked, n_probes)[0]) for query in queries]

    k = min(policy.n_neighbors(model), len(shown))
    judged = Judged.exactly(features, k, weigh, episodes, int(store.counts.max()), say, N_QUERIES)
    recall = judged.recall_with_fewest_lists(search, n_lists, model.spec.search.recall, began)
    arrays = save(
        {
            **storage.summary.to_arrays(),
            **dict(zip(SCALING, (kernel.offset, kernel.scale, kernel.relevance), strict=True)),
            "lengths": storage.windows.lengths,
            "episode_ids": np.ascontiguousarray(store.episode_ids),
            "removed": removed,
            "sample": sample_of(features) if kernel.spec.metric == "global_mahalanobis" else np.empty((0, 1)),
        }
    )
    facts = {
        "version": FORMAT_VERSION,
        "identity": table.identity,
        "rows": n_rows,
        "recall": asdict(recall),
        "chosen_shrinkage": kernel.chosen,
        "arrays_crc32": crc32([np.frombuffer(arrays, np.uint8)]),
        "policy": content,
    }
    with writing(table.uri):
        _announce(database, name, windows.name, json.dumps(facts), arrays)
    return recall


def _write_windows(database: Any, rows: np.ndarray, features: Computed, n_lists: int, say: Progress) -> Any:
    """A new table of windows, given their rows (n,) and features (n, D), indexed."""
    import pyarrow as pa
    from lancedb.index import IvfFlat

    n, width = len(rows), features[:1].shape[1]
    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.float32(), width))])

    def blocks() -> Iterator[Any]:
        for first in range(0, n, BLOCK):
            say("writing windows", first / n)
            some = slice(first, first + BLOCK)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(single(features[some]).ravel()), width)
            yield pa.RecordBatch.from_arrays([pa.array(rows[some]), vectors], schema=schema)

    windows = database.create_table(f"windows-{uuid.uuid4().hex}", blocks(), schema=schema)
    say("indexing windows", 0.0)
    if n_lists > 1:
        windows.create_index("vector", config=IvfFlat(distance_type="l2", num_partitions=n_lists))
    return windows


def _announce(database: Any, name: str, windows: str, facts: str, arrays: bytes) -> None:
    """Appends the row that readers look for, and drops what was published before the last time."""
    import pyarrow as pa

    kinds = {"name": pa.string(), "windows": pa.string(), "facts": pa.string(), "arrays": pa.large_binary()}
    schema = pa.schema(list(kinds.items()))
    numbered = {"new_table_enable_stable_row_ids": "true"}
    searches = database.create_table(SEARCHES, schema=schema, exist_ok=True, storage_options=numbered)
    row = {"name": name, "windows": windows, "facts": facts, "arrays": arrays}
    searches.add(pa.Table.from_pylist([row], schema=schema))
    query = searches.search().where(f"name = {quoted(name)}").select(["windows"]).with_row_id(True)
    found = sorted(query.limit(2**31 - 1).to_arrow().to_pylist(), key=lambda row: row["_rowid"])
    for old in found[:-2]:
        database.drop_table(old["windows"], ignore_missing=True)
