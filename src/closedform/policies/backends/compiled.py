"""Compiled: the backend that plans in one compiled call, on all cores if there are many plans."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np

from closedform import kernels
from closedform.kernels.records import Candidates, Metric, Observed, Penalties, RandomDraws, RowsRecord, Sampling
from closedform.policies.backends.backend import Query
from closedform.policies.backends.diffusion import Diffusion
from closedform.policies.plan_batch import NEGLIGIBLE, PlanBatch
from closedform.provenance import n_cores
from closedform.store.model import Model
from closedform.weights.penalty import Penalty

_BATCH_PER_THREAD = 8  # plans; with fewer, another thread costs more than it saves
_NONE_FOUND = np.empty((0, 0), np.int64)


class Compiled:
    """Plans in compiled code.

    Args:
        diffusion: the process, the sampler and the smoothing.
    """

    def __init__(self, diffusion: Diffusion):
        self._diffusion = diffusion

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """All plans, by the compiled search if rows are arrays; otherwise each after the search of the index."""
        from closedform.policies.backends.compiled_plan import fill

        kernel, transfer, windows = model.kernel, model.transfer, query.windows
        batch = query.unfilled(model)
        draws = self._diffusion.draw(query, transfer.chunk_size)
        lifted, poses = kernel.spec.feature_map.lift(windows), transfer.poses(windows[:, -1])
        sampling = Sampling(self._diffusion.steps, self._diffusion.cut(query.k), query.stop_at)
        everything = None if kernel.uncompiled else model.rows_record

        def run(part: slice, rows: RowsRecord, metric: Metric, found: np.ndarray, penalties: Penalties) -> None:
            some = (part.stop - part.start) < len(windows)
            fill(
                rows,
                metric,
                penalties,
                kernel.compiled,
                transfer.record,
                sampling,
                RandomDraws(*(each[part] for each in draws)) if some else draws,
                Observed(lifted[part], kernel.offset, kernel.scale, poses[part]),
                query.k,
                found,
                NEGLIGIBLE,
                batch.part(part) if some else batch,
            )

        def run_all(part: slice) -> None:
            assert everything is not None
            run(part, everything, kernel.record, _NONE_FOUND, _penalties(query, part))

        def run_found(b: int) -> None:
            """Finds the rows with the index before it calls the compiled planner."""
            features = (lifted[b] - kernel.offset) * kernel.scale
            if not np.isfinite(features).all():
                batch.distances[b] = np.nan
                return
            rows, some, metric = model.found(features, query.k, query.penalty(b))
            here, extra = np.arange(len(rows)), query.penalty(b).at(rows)
            for term in kernel.uncompiled:
                extra = extra + term(Candidates(features, rows, some.columns.T, some.episodes))
            found = np.pad(here, (0, query.k - len(rows)), constant_values=-1)[None]
            run(slice(b, b + 1), some, metric, found, Penalties(here, extra, np.array([0, len(here)])))
            if query.explain:
                for listed in (batch.rows[b], batch.used[b, : batch.n_used[b]]):
                    there = listed >= 0
                    listed[there] = rows[listed[there]]

        jobs: list[Callable[[], None]]
        n_threads = 1
        if everything is None:
            jobs = [partial(run_found, b) for b in range(len(windows))]
        else:
            n_threads = max(1, min(n_cores(), len(windows) // _BATCH_PER_THREAD))
            bounds = np.linspace(0, len(windows), n_threads + 1).astype(int).tolist()
            jobs = [partial(run_all, slice(a, b)) for a, b in pairwise(bounds)]
        if n_threads > 1 and fill.overloads:  # compiling in several threads at once would take longer
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(lambda job: job(), jobs))
        else:
            with kernels.announced(fill):
                for job in jobs:
                    job()
        return batch


def _penalties(query: Query, part: slice) -> Penalties:
    """The penalties of some plans, one after the other."""
    given = query.penalties[part] if query.penalties else [Penalty.none()] * (part.stop - part.start)
    if len(given) == 1:
        return Penalties(given[0].rows, given[0].values, np.array([0, len(given[0].rows)]))
    rows, values = (np.concatenate([getattr(each, name) for each in given]) for name in ("rows", "values"))
    return Penalties(rows, values, np.cumsum([0, *(len(each.rows) for each in given)]))
