"""A fleet's table and its replica, from 10^5 to 10^7 windows of 14 + 7 numbers: `make bench-fleet`.

Needs the extra `fleet`. One process pushes and follows, on one disk. Plans are beside those of exact search and faiss
without a fleet, and beside search in the store by a policy that has no replica.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormPolicy, Demos, Layout, provenance
from closedform.fleet import FleetPolicy, FleetTable, SearchPolicy, publish
from closedform.fleet.engine_index import EngineIndex
from closedform.weights.penalty import Penalty
from large import N_STEPS, made_up
from report import heading, number, table

SIZES = (100_000, 1_000_000, 10_000_000)
N_CHANGES = 20  # episodes that are pushed and removed one by one
N_PLANS = 200
_LONGEST = 60.0  # seconds to wait for a change


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
    arguments.output.mkdir(parents=True, exist_ok=True)
    text = ""
    for n in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            results["sizes"][str(n)] = measure(n, Path(folder))
        results["seconds"] = time.perf_counter() - start
        results["load"] = os.getloadavg()[1]
        text = report(results)  # written after each size: the largest takes most of the time
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
    policy = FleetPolicy(store.uri, cache=folder / "cache", index="faiss")
    facts["first_open_s"] = time.perf_counter() - began
    policy.close()
    began = time.perf_counter()
    with FleetPolicy(store.uri, cache=folder / "cache", index="faiss") as policy:
        facts["open_s"] = time.perf_counter() - began
        facts["faiss"] = _plans(ClosedFormPolicy.load(folder / "cache" / "policy"), queries)
        facts["replica"] = _plans(policy, queries)
        acknowledged, visible, removed = [], [], []
        layouts = demos.observation_layout, demos.action_layout
        for episode in more:
            began = time.perf_counter()
            name = store.push(Demos([episode], *layouts, demos.rate)).stored[0]
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
        facts["changed"] = _plans(policy, queries)
        facts["engine"] = _engine(policy, queries)
    facts["exact"] = _plans(ClosedFormPolicy(demos, index="exact"), queries)
    return facts


def _engine(policy: FleetPolicy, queries: np.ndarray) -> dict[str, Any]:
    """Search in the store: k neighbors with their features, then the episodes of those that carry weight."""
    began = time.perf_counter()
    recall = publish(policy)
    facts: dict[str, Any] = {"build_s": time.perf_counter() - began, **vars(recall)}
    facts["open_s"] = _seconds(lambda: SearchPolicy(policy.table.uri))
    search = SearchPolicy(policy.table.uri)
    files = [path for path in Path(policy.table.uri).rglob("windows-*/**/*") if path.is_file()]
    facts["windows_mb"] = sum(path.stat().st_size for path in files) / 1e6
    index = search.model.index
    assert isinstance(index, EngineIndex)
    find = index.search
    points = search.model.kernel.features(np.repeat(queries[:, None], search.config.n_obs_steps, 1))
    k = search.n_neighbors(search.model)
    facts |= {"neighbors": k, "row_bytes": 8 + 4 * points.shape[1]}
    facts |= _plans(search, queries)
    facts["fetched"] = search.n_fetched / len(queries)
    facts["again"] = _plans(search, queries)
    facts["search"] = _quantiles([_seconds(lambda point=point: find(point, k)) for point in points])
    facts["chunks"] = float(np.mean([len(search.model.found(point, k, Penalty.none()).rows) for point in points]))
    return facts


def _demos(observations: np.ndarray, actions: np.ndarray) -> Demos:
    starts = range(0, len(observations), N_STEPS)
    pairs = [(observations[i : i + N_STEPS], actions[i : i + N_STEPS]) for i in starts]
    return Demos(pairs, Layout.plain(observations.shape[1]), Layout.plain(actions.shape[1]), rate=10)


def _plans(policy: ClosedFormPolicy, queries: np.ndarray) -> dict[str, float]:
    policy.warm_up()
    return _quantiles([_seconds(lambda query=query: policy.plan(query, seed=0)) for query in queries])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _wait(done: Callable[[], bool]) -> None:
    began = time.perf_counter()
    while not done():
        time.sleep(0.001)
        if time.perf_counter() - began > _LONGEST:
            raise TimeoutError(f"expected a change of the fleet to arrive within {_LONGEST} s")


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

    planned, searched, changed = [], [], []
    names = ("exact", "faiss", "replica", "changed", "engine")
    shares = ("chunks", "fetched", "build_s", "open_s")
    for n, facts in results["sizes"].items():
        engine = facts["engine"]
        planned.append([f"{int(n):,}", *(shown(facts, name) for name in names)])
        planned[-1] += [shown(engine, "again"), shown(engine, "search")]
        recalls = f"{engine['weighty']:.3f} / {engine['all']:.3f}"
        lists = f"{engine['n_probes']} of {engine['n_lists']:,}"
        searched.append([f"{int(n):,}", recalls, lists, *map(number, (engine[name] for name in shares))])
        seconds = [number(facts[name]) for name in ("push_s", "table_mb", "first_open_s", "open_s")]
        followed = [shown(facts, name) for name in ("acknowledged", "visible", "removed")]
        changed.append([f"{int(n):,}", *seconds, *followed, number(1e3 * facts["removal_s"])])
    columns = ["windows", *(f"{name} p50 / p99 ms" for name in names), "engine, again", "of that, search"]
    lines += [
        "",
        f"Load average of the last five minutes: {number(results['load'])}; other work makes p99 larger.",
        "",
        "Plans: exact search in memory; faiss, memory-mapped; the replica of a fleet, which is the same and follows",
        f"it, also after {N_CHANGES} episodes were added and removed; and the engine, a policy without a replica that",
        f"searches in the store on the same disk. `again` are the same {N_PLANS} plans once more, whose episodes are",
        "then in memory.",
        "",
        table(columns, planned),
    ]
    columns = ["windows", "recall: with weight / all", "lists", "chunks a plan", "episodes fetched a plan"]
    lines += ["", "Search in the store.", "", table([*columns, "publishing s", "opening s"], searched)]
    columns = ["windows", "push all s", "table MB", "first open s", "open s", "push ms", "push to plan ms"]
    columns += ["removal to plan ms", "of that, in the policy ms"]
    lines += [
        "",
        f"Changes: {N_CHANGES} episodes of {N_STEPS} steps one by one, p50 / p99.",
        "",
        table(columns, changed),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
