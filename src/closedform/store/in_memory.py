"""InMemory: a model whose rows are arrays in memory, searched exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.episode import Episode
from closedform.judge.relevance import n_judging, relevances
from closedform.judge.shrinkage import choose_shrinkage
from closedform.kernels.records import RowsRecord
from closedform.rewrites.endings import ended_alike
from closedform.store.index import ExactIndex
from closedform.store.model import Found, Model
from closedform.store.rows import rows_of
from closedform.store.spec import ModelSpec
from closedform.store.store import Store
from closedform.transfer.transfer import Transfer
from closedform.weights.feature_map import scaled
from closedform.weights.observation_kernel import ObservationKernel
from closedform.weights.penalty import Penalty


@dataclass(frozen=True)
class InMemory:
    """Rows are arrays in memory, and every query is compared with each of them.

    Attributes:
        index: of their features.
    """

    index: ExactIndex

    @classmethod
    def build(cls, spec: ModelSpec, episodes: Sequence[Episode], episode_ids: np.ndarray) -> Model:
        """Cuts, scales and indexes the episodes."""
        rewritten = spec.rewrites.episodes(episodes)
        rows = rows_of(spec, rewritten)
        store = Store.of(spec.windows, rewritten, episode_ids, rows, episodes, spec.rewrites.n_turned)
        kernel = ObservationKernel.scaled_for(spec.kernel, store.feature_statistics, store.episodes)
        store = ended_alike(spec, store, kernel)
        with np.errstate(over="ignore", invalid="ignore"):
            features = scaled(rows.lifted, kernel.offset, kernel.scale, "window")
        return cls._weighed(spec, store, ExactIndex(features), kernel)

    def add(self, model: Model, episode: Episode, episode_id: int) -> Model:
        """The model with one more episode; only the episode is indexed unless it changes the scale of features."""
        rewritten = model.spec.rewrites.episodes([episode])
        rows = rows_of(model.spec, rewritten)
        store = model.store.append(rewritten, episode_id, rows, episode)
        known = model.kernel.redundancy
        kernel = ObservationKernel.scaled_for(model.spec.kernel, store.feature_statistics, store.episodes, known)
        if not kernel.has_scale_of(model.kernel):
            return self.build(model.spec, store.recorded, store.recorded_ids)
        store = ended_alike(model.spec, store, kernel)
        kernel = replace(model.kernel, redundancy=kernel.redundancy)
        index = self.index.add(scaled(rows.lifted, kernel.offset, kernel.scale, "window"))
        judged = n_judging(len(store.recorded)) == n_judging(len(model.store.recorded))
        make = self._fitted if judged else self._weighed
        return make(model.spec, store, index, kernel)

    def remove(self, model: Model, episode_id: int) -> Model:
        """The model without an episode, exactly as if it had never been added."""
        keep = model.store.kept_without(episode_id)
        keeps = keep[:: model.store.n_copies]
        judging = n_judging(int(keeps.sum()))
        same = judging == n_judging(len(keeps)) and keeps[:judging].all()
        return self._kept(model, keep, weigh=not same)

    def leave_out(self, model: Model, index: int) -> Model:
        """The model without an episode, given by its index in the store; relevance stays that of all episodes."""
        return self._kept(model, model.store.kept_without(int(model.store.recorded_ids[index])), weigh=False)

    def _kept(self, model: Model, keep: np.ndarray, *, weigh: bool) -> Model:
        store = model.store.keep(keep)
        known = model.kernel.redundancy
        kernel = ObservationKernel.scaled_for(model.spec.kernel, store.feature_statistics, store.episodes, known)
        if not kernel.has_scale_of(model.kernel):
            return self.build(model.spec, store.recorded, store.recorded_ids)
        store = ended_alike(model.spec, store, kernel)
        index = self.index.remove(np.repeat(keep, model.store.counts))
        make = self._weighed if weigh else self._fitted
        return make(model.spec, store, index, replace(model.kernel, redundancy=kernel.redundancy))

    @classmethod
    def _weighed(cls, spec: ModelSpec, store: Store, index: ExactIndex, kernel: ObservationKernel) -> Model:
        """The model with the relevance and shrinkage chosen from the episodes."""
        if not (spec.kernel.weighs or spec.kernel.chooses):
            return cls._fitted(spec, store, index, kernel)
        judges = store.first(n_judging(len(store.recorded)) * store.n_copies)
        if spec.kernel.weighs:
            relevance = relevances(spec, judges, index.rows()[: len(judges)] / kernel.relevance, kernel)
            if not np.array_equal(relevance, kernel.relevance):
                index = ExactIndex(index.rows() * (relevance / kernel.relevance))  # powers of two, so this is exact
                kernel = kernel.weighed(relevance)
        if spec.kernel.chooses:
            chosen = choose_shrinkage(spec, judges, index.rows()[: len(judges)], kernel)
            kernel = replace(kernel, chosen=chosen)
        return cls._fitted(spec, store, index, kernel)

    @classmethod
    def _fitted(cls, spec: ModelSpec, store: Store, index: ExactIndex, kernel: ObservationKernel) -> Model:
        transfer = Transfer.of(spec.transfer, store)
        return Model(spec, store, kernel.fitted(store, index.rows), transfer, cls(index))

    def rows_record(self, model: Model) -> RowsRecord:
        """What the compiled planner reads of all rows."""
        store = model.store
        arrays = store.actions, store.starts, store.row_episodes, store.poses, store.held
        return RowsRecord(self.index.columns, len(store), *arrays)

    def found(self, model: Model, query: np.ndarray, k: int, penalty: Penalty) -> Found:
        """The k nearest rows."""
        everything, rows = self.rows_record(model), self.index.query(query, k)
        some = everything._replace(
            columns=np.ascontiguousarray(everything.columns[:, rows]),
            n_rows=len(rows),
            **{name: getattr(everything, name)[rows] for name in ("starts", "episodes", "poses", "held")},
        )
        return Found(rows, some, model.kernel.record)

    def write(self, model: Model, folder: Path, identity: str) -> dict[str, Any] | None:
        """Writes nothing: the model is rebuilt from its demonstrations."""
        return None

    def reopening(self, model: Model) -> tuple[Any, ...] | None:
        """None: another process gets a copy."""
        return None
