"""Large sets of demonstrations: exact search and faiss from 10^4 to 10^7 windows of 14 + 7 numbers.

Each size is built in its own process on all cores, saved, and opened by another process that plans on one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fresh import resident_mb
from report import number, table

if TYPE_CHECKING:
    from closedform import Demos

N_STEPS = 250  # of an episode
EXACT_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
SIZES = (*EXACT_SIZES, 10_000_000)
QUICK_SIZES = (10_000, 100_000)
COMPARED = 100_000
TARGETS = {"p50_ms": 5.0, "first_plan_s": 2.0, "memory_ratio": 1.3}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def measure(quick: bool) -> dict[str, Any]:
    """Builds and plans at each size."""
    sizes = {}
    for n in QUICK_SIZES if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            built = _child("build", folder, n, free=True)
            sizes[str(n)] = {**built, "faiss": _child("plan", folder, n)}
            if n in EXACT_SIZES:
                sizes[str(n)]["exact"] = _child("exact", folder, n)
            if n == COMPARED:
                sizes[str(n)]["small_worlds"] = _child("small_worlds", folder, n)
    return {
        "sizes": sizes,
        "crossover": _crossover(sizes),
        "targets": TARGETS,
        "ratios": {"exact / faiss at 100,000 windows": _p50(sizes, COMPARED, "exact") / _p50(sizes, COMPARED, "faiss")},
    }


def made_up(n_steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic observations (n, 14) and actions (n, 7) of an arm that fetches an object, float32."""
    rng, mix = np.random.default_rng(seed), np.random.default_rng(123).normal(size=(7, 7)) / np.sqrt(7)
    n_episodes = n_steps // N_STEPS
    observations = np.empty((n_episodes, N_STEPS, 14), np.float32)
    actions = np.empty((n_episodes, N_STEPS, 7), np.float32)
    for first in range(0, n_episodes, 1000):
        some = slice(first, min(first + 1000, n_episodes))
        m = some.stop - some.start
        lies = rng.uniform(-1, 1, (m, 7))
        stops = np.stack([0.3 * rng.normal(size=(m, 7)), np.sin(lies @ mix), 0.8 * np.sin(2 * lies @ mix.T)], 1)
        stops += 0.02 * rng.normal(size=stops.shape)
        progress = np.clip(np.linspace(0, 2, N_STEPS + 1) * rng.uniform(0.8, 1.2, (m, 1)), 0, 2)
        leg = np.minimum(progress.astype(int), 1)
        share = progress - leg
        share = (share**3 * (10 - 15 * share + 6 * share**2))[..., None]
        before, after = (np.take_along_axis(stops, (leg + i)[..., None], 1) for i in (0, 1))
        arm = before * (1 - share) + after * share
        arm += 0.01 / np.sqrt(N_STEPS) * np.cumsum(rng.normal(size=arm.shape), 1)
        carried = (progress[:, :-1, None] > 1) * 0.5 * (arm[:, :-1] - stops[:, 1:2])
        observations[some] = np.concatenate([arm[:, :-1], lies[:, None] + carried], -1)
        actions[some] = arm[:, 1:]
    return observations.reshape(-1, 14), actions.reshape(-1, 7)


def _child(task: str, folder: str, n: int, *, free: bool = False) -> dict[str, Any]:
    """Measures in a new process; `free` to use all cores."""
    environment = {name: value for name, value in os.environ.items() if not (free and name in THREADS)}
    command = [sys.executable, __file__, task, folder, str(n), *(["free"] if free else [])]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _demos(observations: np.ndarray, actions: np.ndarray) -> Demos:
    """Episodes of numbers that mean nothing."""
    from closedform import Demos, Layout

    pairs = [(observations[i : i + N_STEPS], actions[i : i + N_STEPS]) for i in range(0, len(observations), N_STEPS)]
    return Demos(pairs, Layout.plain(observations.shape[1]), Layout.plain(actions.shape[1]))


def build(folder: str, n: int) -> dict[str, Any]:
    """Indexes synthetic demonstrations and saves the policy."""
    from closedform import ClosedFormPolicy

    observations, actions = made_up(n)
    raw = observations.nbytes + actions.nbytes
    demos = _demos(observations, actions)
    del observations, actions
    start = time.perf_counter()
    policy = ClosedFormPolicy(demos, index="faiss")
    took = time.perf_counter() - start
    policy.save(Path(folder) / "policy")
    files = {path.name: path.stat().st_size for path in (Path(folder) / "policy").iterdir()}
    recall = policy.index_recall
    assert recall is not None
    return {
        "build_s": took,
        "raw_mb": raw / 1e6,
        "files_mb": {name: size / 1e6 for name, size in files.items()},
        "memory_ratio": sum(files.values()) / raw,
        "recall": vars(recall),
    }


def plan(folder: str, n: int) -> dict[str, Any]:
    """Opens the policy and plans."""
    start = time.perf_counter()
    from closedform import load_policy

    policy = load_policy(Path(folder) / "policy")
    opened = time.perf_counter() - start
    windows = made_up(50 * N_STEPS, seed=1)[0][::25]
    policy.plan(windows[0], seed=0)
    first = time.perf_counter() - start
    resident, mapped = resident_mb("RssAnon"), resident_mb("RssFile")
    return {
        "open_s": opened,
        "first_plan_s": first,
        "memory_mb": resident,
        "mapped_mb": mapped,
        **_plans(policy, windows),
    }


def exact(folder: str, n: int) -> dict[str, Any]:
    """The same with exact search, in memory."""
    from closedform import ClosedFormPolicy

    observations, actions = made_up(n)
    demos = _demos(observations, actions)
    start = time.perf_counter()
    policy = ClosedFormPolicy(demos, index="exact")
    took = time.perf_counter() - start
    return {"build_s": took, **_plans(policy, made_up(50 * N_STEPS, seed=1)[0][::25])}


def small_worlds(folder: str, n: int) -> dict[str, Any]:
    """An HNSW index of the same features: search alone."""
    import faiss

    from closedform import ClosedFormPolicy

    policy = ClosedFormPolicy.load(Path(folder) / "policy")
    model, k = policy.model, policy.n_neighbors(policy.model)
    features = np.ascontiguousarray(model.index.rows()[:], np.float32)
    start = time.perf_counter()
    index = faiss.IndexHNSWFlat(features.shape[1], 32)
    index.add(features)
    took = time.perf_counter() - start
    queries = np.ascontiguousarray(model.kernel.features(made_up(20 * N_STEPS, seed=1)[0][::25, None]), np.float32)
    wanted = faiss.knn(queries, features, k)[1]
    index.hnsw.efSearch = k
    times: dict[str, list[float]] = {"small_worlds": [], "lists": []}
    shares = []
    for query, near in zip(queries, wanted, strict=True):
        start = time.perf_counter()
        _, found = index.search(query[None], k)
        times["small_worlds"].append(time.perf_counter() - start)
        start = time.perf_counter()
        model.index.query(query, k)
        times["lists"].append(time.perf_counter() - start)
        shares.append(np.isin(near, found[0]).mean())
    p50 = {f"{name}_ms": 1e3 * float(np.median(seconds)) for name, seconds in times.items()}
    return {"build_s": took, "recall_of_all": float(np.mean(shares)), **p50}


def _plans(policy: Any, windows: np.ndarray) -> dict[str, float]:
    times = []
    policy.plan(windows[0], seed=0)
    for i, window in enumerate(windows):
        start = time.perf_counter()
        policy.plan(window, seed=i)
        times.append(time.perf_counter() - start)
    p50, p99 = 1e3 * np.quantile(times, [0.5, 0.99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "worst_ms": 1e3 * max(times), "plans": len(times)}


def _p50(sizes: dict[str, Any], n: int, kind: str) -> float:
    return sizes[str(n)][kind]["p50_ms"]


def _crossover(sizes: dict[str, Any]) -> float | None:
    """The number of windows from which faiss is faster, interpolated between two sizes on a log scale."""
    both = [
        (int(n), np.log(row["exact"]["p50_ms"] / row["faiss"]["p50_ms"])) for n, row in sizes.items() if "exact" in row
    ]
    for (n, slower), (more, faster) in pairwise(both):
        if slower < 0 <= faster:
            return float(np.exp(np.log(n) + np.log(more / n) * -slower / (faster - slower)))
    return None


def report(facts: dict[str, Any]) -> str:
    """The section of the report."""
    rows = []
    for n, row in facts["sizes"].items():
        found, recall = row["faiss"], row["recall"]
        rows.append(
            [
                f"{int(n):,}",
                number(row["exact"]["p50_ms"]) if "exact" in row else "",
                f"{number(found['p50_ms'])} / {number(found['p99_ms'])}",
                f"{recall['weighty']:.3f} / {recall['all']:.3f}",
                f"{recall['n_probes']} of {recall['n_lists']:,}",
                number(row["build_s"]),
                number(found["first_plan_s"]),
                number(row["raw_mb"]),
                f"{row['memory_ratio']:.2f}",
                f"{number(found['memory_mb'])} + {number(found['mapped_mb'])}",
            ]
        )
    head = [
        "windows",
        "exact p50 ms",
        "faiss p50 / p99 ms",
        "recall: with weight / all",
        "lists",
        "build s",
        "first plan s",
        "raw MB",
        "with index",
        "resident + mapped MB",
    ]
    crossover = facts["crossover"]
    n_most, targets = max(map(int, facts["sizes"])), facts["targets"]
    most = facts["sizes"][str(n_most)]
    found, worlds = most["faiss"], facts["sizes"][str(COMPARED)]["small_worlds"]
    return "\n".join(
        [
            "## Large sets of demonstrations",
            "",
            "Synthetic demonstrations of 14 + 7 numbers in float32, the default preset; plans on one core, building on",
            "all. Recall is measured while building, on windows whose own episode is left out. First plan: in a new",
            "process, including imports and opening; resident and mapped memory are measured after that plan.",
            "",
            table(head, rows),
            "",
            f"- Exact search is faster up to about {number(crossover)} windows."
            if crossover
            else "- Exact search is as fast or faster at every size tried.",
            f"- At {COMPARED:,} windows an HNSW index takes {number(worlds['build_s'])} s to build on one core and "
            f"{number(worlds['small_worlds_ms'])} ms to search, the inverted lists {number(worlds['lists_ms'])} ms: "
            "with k = 2000 HNSW is no alternative.",
            f"- At {n_most:,} windows a plan takes {number(found['p50_ms'])} ms (target "
            f"{number(targets['p50_ms'])}); the first plan takes {number(found['first_plan_s'])} s (target "
            f"{number(targets['first_plan_s'])}); everything on disk is {most['memory_ratio']:.2f} times the raw "
            f"demonstrations (target {number(targets['memory_ratio'])}).",
        ]
    )


if __name__ == "__main__":
    if sys.argv[4:] == ["free"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)))
    tasks = {"build": build, "plan": plan, "exact": exact, "small_worlds": small_worlds}
    print(json.dumps(tasks[sys.argv[1]](sys.argv[2], int(sys.argv[3]))))
