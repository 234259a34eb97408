"""RecordedSteps: a model of demonstrations too large to copy, in memory or memory-mapped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from closedform.demos.chunks import too_short
from closedform.demos.episode import Episode
from closedform.files import crc32
from closedform.judge.relevance import n_judging, relevances
from closedform.judge.shrinkage import choose_shrinkage
from closedform.kernels.records import RowsRecord
from closedform.snapshot import Snapshot
from closedform.store.faiss_index import FaissIndex
from closedform.store.model import Found, Model
from closedform.store.rows import rows_of
from closedform.store.saved_index import SCALING, SavedIndex
from closedform.store.spec import ModelSpec
from closedform.store.store import Store
from closedform.store.summary import Summary
from closedform.store.windows import Computed, Recorded, Windows
from closedform.transfer.transfer import Transfer
from closedform.weights.observation_kernel import ObservationKernel
from closedform.weights.penalty import Penalty

_EPISODES_AT_ONCE = 1000  # whose windows are processed together
_N_JUDGES = 500  # episodes that the relevance of observation entries is measured on
_N_GLOBAL = 100_000  # windows that the global covariance is estimated from

Progress = Callable[[str, float], object]


@dataclass(frozen=True)
class RecordedSteps:
    """Rows are computed on demand from the recorded steps, and found by faiss.

    Only the steps themselves are copied, or nothing at all if they are memory-mapped. Scale and relevance of features
    are those of the indexed episodes; episodes added later do not change them.

    Attributes:
        index: of the features.
        windows: the recorded steps.
        summary: statistics of all episodes.
        opened: the folder that it was opened from, and its facts; None if it was built or changed.
    """

    index: FaissIndex
    windows: Windows
    summary: Summary
    opened: tuple[Path, dict[str, Any]] | None = None

    @classmethod
    def build(
        cls, spec: ModelSpec, episodes: Sequence[Episode], episode_ids: np.ndarray, progress: Progress | None = None
    ) -> Model:
        """Copies the episodes into contiguous arrays, summarizes them in one pass and indexes them."""
        progress = progress or (lambda what, share: None)
        windows = Windows.of(spec, episodes)
        if not len(windows):
            sizes = spec.windows.n_obs_steps, spec.windows.n_action_steps
            raise too_short([len(episode) for episode in episodes], *sizes)
        views, ends, summary = windows.episode_views(), np.cumsum(windows.counts), None
        for first in range(0, len(views), _EPISODES_AT_ONCE):
            progress("reading", first / len(views))
            some = views[first : first + _EPISODES_AT_ONCE]
            rows = np.arange(ends[first] - windows.counts[first], ends[first + len(some) - 1])
            lifted = windows.lifted(rows) if len(rows) else windows.lifted(np.zeros(1, np.int64))[:0]
            part = Summary.of(spec, some, lifted)
            summary = part if summary is None else summary.append(part)
        assert summary is not None
        kernel = ObservationKernel.scaled_for(spec.kernel, summary.feature_statistics, views)
        store = store_of(spec, windows, views, episode_ids, summary)
        store.check_binary()
        if spec.kernel.weighs or spec.kernel.chooses:
            progress("judging what matters", 0.0)
            kernel = _weighed(spec, store, windows, kernel)
        features = features_of(windows, kernel)
        kernel = kernel.fitted(store, lambda: sample_of(features))
        index = FaissIndex.build(
            features,
            spec.search.recall,
            min(spec.search.n_neighbors, len(store)),
            lambda query, rows: kernel.weights(query, features[rows]),
            store.row_episodes,
            int(windows.counts.max()),
            progress,
        )
        return Model(spec, store, kernel, Transfer.of(spec.transfer, store), cls(index, windows, summary))

    def add(self, model: Model, episode: Episode, episode_id: int) -> Model:
        """The model with one more episode, whose rows are searched exactly; it gets the precision of the others."""
        spec = model.spec
        kept = (self.windows.observations, episode.observations), (self.windows.actions, episode.actions)
        episode = Episode(*(values.astype(recorded.parts[0].dtype) for recorded, values in kept))
        windows = self.windows.add(episode)
        rows = np.arange(len(model), len(windows))
        if not len(rows):
            raise too_short([len(episode)], spec.windows.n_obs_steps, spec.windows.n_action_steps)
        summary = self.summary.append(Summary.of(spec, [episode], windows.lifted(rows)))
        episode_ids = np.append(model.store.episode_ids, episode_id)
        removed = None if model.store.removed is None else np.append(model.store.removed, False)
        store = store_of(spec, windows, (*model.store.episodes, episode), episode_ids, summary, removed)
        store.check_binary(newest_only=not _widened(model.store, store))
        features = features_of(windows, model.kernel)
        kernel = model.kernel.fitted(store, lambda: sample_of(features))
        storage = RecordedSteps(self.index.add(features[rows], features), windows, summary)
        return Model(spec, store, kernel, Transfer.of(spec.transfer, store), storage)

    def remove(self, model: Model, episode_id: int) -> Model:
        """The model without an episode: its rows stay, but no query finds them.

        Statistics are those of the other episodes; scale and relevance of features stay those of the indexed ones. If
        only this episode reaches a lowest or highest value, and it is indexed, the others are indexed and weighted
        again.
        """
        spec, store = model.spec, model.store
        keep = store.kept_without(episode_id)
        index = int(np.flatnonzero(store.episode_ids == episode_id)[0])
        own = self._summary_of(spec, store, [index])
        extremes, first = self._extremes_without(spec, store, keep, own), int(store.counts[:index].sum())
        same = np.array_equal(extremes, self.summary.extremes())
        if store.counts[keep].sum() and (same or first >= self.index.n_indexed):
            summary = self.summary.without(own, index).with_extremes(extremes)
            left = store_of(spec, self.windows, store.episodes, store.episode_ids, summary, ~keep)
            features = self.index.rows()
            kernel = model.kernel.fitted(left, lambda: sample_of(features))
            storage = RecordedSteps(self._hiding(store, index), self.windows, summary)
            return Model(spec, left, kernel, Transfer.of(spec.transfer, left), storage)
        episodes = [episode for episode, kept in zip(store.episodes, keep, strict=True) if kept]
        return self.build(spec, episodes, store.episode_ids[keep])

    def leave_out(self, model: Model, index: int) -> Model:
        """The model without an episode: its rows stay, but no query finds them."""
        if model.store.removed is not None:
            index = int(np.flatnonzero(~model.store.removed)[index])
        return replace(model, storage=replace(self, index=self._hiding(model.store, index), opened=None))

    def _hiding(self, store: Store, index: int) -> FaissIndex:
        end = int(store.counts[: index + 1].sum())
        return self.index.hiding(end - int(store.counts[index]), end)

    def _summary_of(self, spec: ModelSpec, store: Store, episodes: list[int]) -> Summary:
        """The summary of some episodes, given by their indices."""
        ends = np.cumsum(store.counts)
        rows = np.concatenate([np.arange(ends[i] - store.counts[i], ends[i]) for i in episodes])
        lifted = self.windows.lifted(rows) if len(rows) else self.windows.lifted(np.zeros(1, np.int64))[:0]
        return Summary.of(spec, [store.episodes[i] for i in episodes], lifted)

    def _extremes_without(self, spec: ModelSpec, store: Store, keep: np.ndarray, own: Summary) -> np.ndarray:
        """The extremes of the episodes that are kept, given the summary of the one that is not.

        They are looked at only until they reach all extremes that this one reaches.
        """
        wanted, others, first, size = self.summary.extremes(), np.flatnonzero(keep).tolist(), 0, 8
        reached = own.extremes() == wanted
        found = np.repeat([np.inf, -np.inf], len(wanted) // 2)
        while np.any(reached & (found != wanted)) and first < len(others):
            part = self._summary_of(spec, store, others[first : first + size]).extremes()
            lows, highs = np.stack([found, part]).reshape(2, 2, -1).swapaxes(0, 1)
            found = np.concatenate([lows.min(0), highs.max(0)])
            first, size = first + size, min(2 * size, _EPISODES_AT_ONCE)
        return np.where(reached, found, wanted)

    def rows_record(self, model: Model) -> None:
        """None: faiss is queried first."""
        return None

    def found(self, model: Model, query: np.ndarray, k: int, penalty: Penalty) -> Found:
        """The rows that faiss finds."""
        rows = self.index.query(query, k)
        return Found(rows, rows_record(model, self.windows, rows), model.kernel.record)

    def write(self, model: Model, folder: Path, identity: str) -> dict[str, Any]:
        """Writes index and summary beside the demonstrations; returns what else is needed to reopen them.

        Args:
            model: the model with this storage.
            folder: the folder to write to.
            identity: a checksum of the demonstrations.
        """
        kernel = model.kernel
        save_file(
            {
                **self.summary.to_arrays(),
                **dict(zip(SCALING, (kernel.offset, kernel.scale, kernel.relevance), strict=True)),
                "identity": np.frombuffer(identity.encode(), np.uint8),
            },
            folder / "summary.safetensors",
        )
        seal = self.index.write(folder / "index.faiss")
        return {
            "identity": identity,
            "n_indexed": self.index.n_indexed,
            "recall": asdict(self.index.recall),
            "seal": asdict(seal),
            "summary_crc32": crc32([np.fromfile(folder / "summary.safetensors", np.uint8)]),
            "episodes_crc32": crc32([self.windows.lengths, model.store.episode_ids]),
            "chosen_shrinkage": kernel.chosen,
            **({} if model.store.removed is None else {"removed": np.flatnonzero(model.store.removed).tolist()}),
        }

    @classmethod
    def open(cls, spec: ModelSpec, snapshot: Snapshot, facts: dict[str, Any]) -> Model:
        """Opens what `write` wrote beside the recorded steps in policy.safetensors.

        The checksums of small parts are always verified: the summary, the lengths and ids of episodes, and the head of
        the index. Those of the steps and of the index's lists are verified if all files together are no larger than
        `SavedIndex.WHOLE_UP_TO`; larger ones are memory-mapped, and read only as plans need them.

        Args:
            spec: what it was built with.
            snapshot: the folder that it was written to.
            facts: what `write` returned.
        """
        saved = SavedIndex.parse(snapshot, facts)
        whole, arrays = saved.is_small(snapshot), saved.read_arrays(snapshot)
        steps = snapshot.arrays("policy.safetensors")
        saved.check_steps(snapshot, steps, whole=whole)
        lengths, episode_ids = np.array(steps["lengths"]), np.array(steps["episode_ids"])
        windows = Windows(spec, Recorded([steps["observations"]]), Recorded([steps["actions"]]), lengths)
        if not len(windows):
            raise too_short(lengths.tolist(), spec.windows.n_obs_steps, spec.windows.n_action_steps)
        width = windows.lifted(np.zeros(1, np.int64)).shape[1]
        path = snapshot.folder / "summary.safetensors"
        summary, scaling = saved.read_summary(arrays, path, spec, len(lengths), len(windows), width)
        removed = saved.removed_of(snapshot, len(lengths))
        store = store_of(spec, windows, windows.episode_views(), episode_ids, summary, removed)
        offset, scale, relevance = scaling
        kernel = ObservationKernel(spec.kernel, offset, scale, relevance, saved.chosen_shrinkage)
        features = features_of(windows, kernel)
        kernel = kernel.fitted(store, lambda: sample_of(features))
        index = saved.read_index(snapshot, features, whole=whole)
        ends = np.cumsum(windows.counts)
        for gone in saved.removed:
            index = index.hiding(int(ends[gone] - windows.counts[gone]), int(ends[gone]))
        storage = cls(index, windows, summary, opened=(snapshot.folder, facts))
        return Model(spec, store, kernel, Transfer.of(spec.transfer, store), storage)

    @classmethod
    def reopen(cls, spec: ModelSpec, folder: Path, facts: dict[str, Any]) -> Model:
        """Opens the same files in another process; a LoadError if they were replaced meanwhile."""
        with Snapshot(folder, lambda name: name in SavedIndex.FILES) as snapshot:
            return cls.open(spec, snapshot, facts)

    def reopening(self, model: Model) -> tuple[Any, ...] | None:
        """Another process opens the same files, if there are any and nothing was added."""
        return None if self.opened is None else (RecordedSteps.reopen, (model.spec, *self.opened))


def rows_record(model: Model, windows: Windows, rows: np.ndarray, features: np.ndarray | None = None) -> RowsRecord:
    """What the compiled planner reads of some rows, whose features (m, D_z) may be known."""
    at = windows.locate(rows)
    observed = windows.observed(at)
    n_action_steps = model.spec.windows.n_action_steps
    return RowsRecord(
        columns=np.ascontiguousarray((model.kernel.features(observed) if features is None else features).T),
        n_rows=len(rows),
        actions=windows.chunks(at).reshape(len(rows) * n_action_steps, -1),
        starts=np.arange(len(rows)) * n_action_steps,
        episodes=at.episodes,
        poses=model.spec.transfer.body_poses(observed[:, -1]),
        held=model.store.held[rows].astype(np.int64),
    )


def store_of(
    spec: ModelSpec,
    windows: Windows,
    episodes: tuple[Episode, ...],
    episode_ids: np.ndarray,
    summary: Summary,
    removed: np.ndarray | None = None,
) -> Store:
    """A store whose rows are computed on demand."""
    n = len(windows)
    none = np.broadcast_to(np.int8(-1), (n, len(spec.transfer.hands)))
    return Store(
        spec=spec.windows,
        episodes=episodes,
        episode_ids=np.asarray(episode_ids, np.int64),
        counts=windows.counts,
        lengths=windows.padded_lengths,
        actions=Computed(windows.encoded_actions, int(windows.padded_lengths.sum())),
        starts=Computed(windows.starts, n),
        row_episodes=Computed(windows.episodes, n),
        row_steps=Computed(windows.steps, n),
        poses=Computed(windows.poses, n),
        held=summary.held if len(summary.held) else none,
        turn_sums=summary.turn_sums,
        feature_statistics=summary.feature_statistics,
        action_statistics=summary.action_statistics,
        action_ranges=summary.action_range[None],
        last_observations=summary.last_observations,
        scatter=summary.scatter,
        removed=removed,
    )


def _weighed(spec: ModelSpec, store: Store, windows: Windows, kernel: ObservationKernel) -> ObservationKernel:
    """The kernel with the relevance and shrinkage chosen from the first episodes."""
    n = min(n_judging(len(store.episodes)), _N_JUDGES)
    if not store.counts[:n].sum():
        return kernel
    judges = Store.of(spec.windows, store.episodes[:n], store.episode_ids[:n], rows_of(spec, store.episodes[:n]))
    if spec.kernel.weighs:
        kernel = kernel.weighed(relevances(spec, judges, features_of(windows, kernel)[: len(judges)], kernel))
    if spec.kernel.chooses:
        features = features_of(windows, kernel)[: len(judges)]
        kernel = replace(kernel, chosen=choose_shrinkage(spec, judges, features, kernel))
    return kernel


def features_of(windows: Windows, kernel: ObservationKernel) -> Computed:
    """The features (n, D_z) of all rows."""
    return Computed(_Features(windows, kernel.offset, kernel.scale), len(windows))


def sample_of(features: Computed) -> np.ndarray:
    """A sample of features to estimate the global covariance from."""
    return features[np.unique(np.linspace(0, len(features) - 1, _N_GLOBAL).astype(np.int64))]


class _Features:
    """Computes the scaled features of rows."""

    def __init__(self, windows: Windows, offset: np.ndarray, scale: np.ndarray):
        self._windows, self._offset, self._scale = windows, offset, scale

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return np.empty((0, len(self._scale)))
        return (self._windows.lifted(rows) - self._offset) * self._scale


def _widened(old: Store, new: Store) -> bool:
    """Whether a binary entry of actions takes values that it did not take before."""
    before, after = np.array(old.action_range), np.array(new.action_range)
    binary = [columns for entry, columns in new.spec.action_layout.slices() if entry.kind == "binary"]
    return any(not np.array_equal(before[:, columns], after[:, columns]) for columns in binary)
