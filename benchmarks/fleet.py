"""A fleet's table and its replica, from 10^5 to 10^7 windows of 14 + 7 numbers: `make bench-fleet`.

Needs the extra `fleet`. One process pushes and follows, on one disk. Plans are beside those of exact search and faiss
without a fleet, and beside nearest-neighbor search in the engine itself.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormPolicy, Demos, provenance
from closedform.fleet import FleetPolicy, FleetTable
from large import N_STEPS, made_up
from report import heading, number, table

SIZES = (100_000, 1_000_000, 10_000_000)
LARGEST_EXACT = 1_000_000
N_CHANGES = 20  # episodes that are pushed and removed one by one
N_PLANS = 200
K = 2000


def main() -> None:
    """Measures, and writes fleet.json and fleet.md."""
    parser = argparse.ArgumentParser(description="A fleet's table and its replica.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="windows")
    parser.add_argument("--output", type=Path, default=Path("docs/results/fleet"), help="folder")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "command": provenance.command(),
        "commit": provenance.commit(),
        "date": provenance.now(),
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "sizes": {},
    }
    start = time.perf_counter()
    for n in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results["sizes"][str(n)] = measure(n, Path(folder))
    results["seconds"] = time.perf_counter() - start
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = report(results)
    (arguments.output / "fleet.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (arguments.output / "fleet.md").write_text(text, encoding="utf-8")
    print(text)


def measure(n: int, folder: Path) -> dict[str, Any]:
    """One size."""
    demos, more = (_demos(*made_up(count, seed)) for count, seed in ((n, 0), (N_CHANGES * N_STEPS, 2)))
    queries = made_up(N_PLANS * N_STEPS, seed=1)[0][::N_STEPS]
    store = FleetTable.create(folder / "fleet")
    facts: dict[str, Any] = {"push_s": _seconds(lambda: store.push(demos))}
    facts["table_mb"] = sum(path.stat().st_size for path in (folder / "fleet").rglob("*") if path.is_file()) / 1e6
    began = time.perf_counter()
    policy = FleetPolicy(store.uri, cache=folder / "cache")
    facts["first_open_s"] = time.perf_counter() - began
    policy.close()
    began = time.perf_counter()
    with FleetPolicy(store.uri, cache=folder / "cache") as policy:
        facts["open_s"] = time.perf_counter() - began
        facts["replica"] = _plans(policy, queries)
        acknowledged, visible, removed = [], [], []
        for episode in more:
            began = time.perf_counter()
            name = store.push(Demos([episode], demos.observation_layout, demos.action_layout)).stored[0]
            acknowledged.append(time.perf_counter() - began)
            _wait(lambda name=name: name in policy.names)
            visible.append(time.perf_counter() - began)
            began = time.perf_counter()
            store.remove([name])
            _wait(lambda name=name: name not in policy.names)
            removed.append(time.perf_counter() - began)
        facts |= {
            "acknowledged": _quantiles(acknowledged),
            "visible": _quantiles(visible),
            "removed": _quantiles(removed),
        }
        facts["removal_s"] = _seconds(lambda: policy.model.remove(policy.episode_ids[len(demos) // 2]))
    facts["faiss"] = _plans(ClosedFormPolicy(demos, index="faiss"), queries)
    if n <= LARGEST_EXACT:
        exact = ClosedFormPolicy(demos, index="exact")
        facts["exact"] = _plans(exact, queries)
    facts["engine"] = _engine(policy, queries, folder / "engine")
    return facts


def _engine(policy: ClosedFormPolicy, queries: np.ndarray, folder: Path) -> dict[str, Any]:
    """Search in LanceDB itself: k neighbors with their features, then the rows of the few nearest."""
    import lancedb
    import pyarrow as pa

    features, n = policy.model.index.rows(), len(policy.model)
    width = features[:1].shape[1]
    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.float32(), width))])

    def blocks() -> Any:
        for first in range(0, n, 100_000):
            some = np.ascontiguousarray(features[first : first + 100_000], np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(some.ravel()), width)
            yield pa.RecordBatch.from_arrays([pa.array(np.arange(first, first + len(some))), vectors], schema=schema)

    began = time.perf_counter()
    windows = lancedb.connect(str(folder)).create_table("windows", blocks(), schema=schema)
    lists = max(1, int(2 ** np.round(np.log2(np.sqrt(n)))))
    windows.create_index("l2", num_partitions=lists, vector_column_name="vector", index_type="IVF_FLAT")
    facts: dict[str, Any] = {"build_s": time.perf_counter() - began, "lists": lists}
    points = policy.model.kernel.features(np.repeat(queries[:, None], policy.config.n_obs_steps, 1)).astype(np.float32)
    times, shares = [], []
    for point in points:
        began = time.perf_counter()
        found = windows.search(point).nprobes(max(1, lists // 20)).limit(K).select(["row", "vector"]).to_arrow()
        times.append(time.perf_counter() - began)
        if len(shares) < 20:
            exactly = windows.search(point).bypass_vector_index().limit(K).select(["row"]).to_arrow()
            shares.append(np.isin(exactly["row"].to_numpy(), found["row"].to_numpy()).mean())
    return {**facts, **_quantiles(times[1:]), "recall": float(np.mean(shares))}


def _demos(observations: np.ndarray, actions: np.ndarray) -> Demos:
    starts = range(0, len(observations), N_STEPS)
    return Demos([(observations[i : i + N_STEPS], actions[i : i + N_STEPS]) for i in starts], rate=10)


def _plans(policy: ClosedFormPolicy, queries: np.ndarray) -> dict[str, float]:
    policy.warm_up()
    return _quantiles([_seconds(lambda query=query: policy.plan(query, seed=0)) for query in queries])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.001)


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.quantile(seconds, [0.5, 0.99])
    return {"p50_ms": 1e3 * float(p50), "p99_ms": 1e3 * float(p99), "worst_ms": 1e3 * max(seconds)}


def report(results: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    machine = results["machine"]
    lines = heading("A fleet's table and its replica", results, f"{machine['processor']}, {machine['cores']} cores")

    def shown(facts: dict[str, Any], name: str) -> str:
        found = facts.get(name)
        return "" if found is None else f"{number(found['p50_ms'])} / {number(found['p99_ms'])}"

    planned, changed = [], []
    for n, facts in results["sizes"].items():
        engine = facts["engine"]
        planned.append([f"{int(n):,}", *(shown(facts, name) for name in ("exact", "faiss", "replica", "engine"))])
        planned[-1].append(number(engine["recall"]))
        seconds = [number(facts[name]) for name in ("push_s", "table_mb", "first_open_s", "open_s")]
        followed = [shown(facts, name) for name in ("acknowledged", "visible", "removed")]
        changed.append([f"{int(n):,}", *seconds, *followed, number(1e3 * facts["removal_s"])])
    names = ("exact", "faiss", "replica", "engine")
    columns = ["windows", *(f"{name} p50 / p99 ms" for name in names), "engine recall"]
    lines += ["", "Plans; of the engine, the search for k = 2000 neighbors alone.", "", table(columns, planned)]
    columns = ["windows", "push all s", "table MB", "first open s", "open s", "push ms", "push to plan ms"]
    columns += ["removal to plan ms", "of that, in the policy ms"]
    lines += [
        "",
        f"Changes: {N_CHANGES} episodes of {N_STEPS} steps one by one, p50 / p99.",
        "",
        *table(columns, changed),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
