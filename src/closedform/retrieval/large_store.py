"""LargeStore: a store of more demonstrations than one would want to copy, in memory or mapped from a file."""

from __future__ import annotations

import copyreg
import importlib.util
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from closedform.demos.chunks import too_short
from closedform.demos.episode import Episode
from closedform.errors import ClosedFormWarning
from closedform.files import crc32
from closedform.kernels.records import Rows
from closedform.retrieval.faiss_index import FaissIndex
from closedform.retrieval.metric import covariance_factor, squared_distances
from closedform.retrieval.relevance import entry_weights, n_judging
from closedform.retrieval.saved_index import SCALING, SavedIndex
from closedform.retrieval.scaling import action_scaling
from closedform.retrieval.spec import StoreSpec
from closedform.retrieval.store import Store, check_binary
from closedform.retrieval.summary import Summary
from closedform.retrieval.windows import Computed, Recorded, Windows
from closedform.snapshot import Snapshot

EXACT_UP_TO = 120_000  # windows that are searched exactly by default: the crossover in docs/results/bench/cpu.md
EPISODES_AT_ONCE = 1000  # whose windows are looked at together
N_JUDGES = 500  # episodes that say which entries of an observation matter
N_GLOBAL = 100_000  # windows that tell the covariance of all

Progress = Callable[[str, float], object]


def build_store(
    spec: StoreSpec, episodes: Sequence[Episode], episode_ids: np.ndarray, progress: Progress | None = None
) -> Store:
    """The store that the index asked for calls for."""
    n_windows = int(spec.n_windows(np.array([len(episode) for episode in episodes])).sum())
    large = spec.index == "faiss"
    if spec.index == "auto" and n_windows > EXACT_UP_TO:
        large = importlib.util.find_spec("faiss") is not None
        if not large:
            message = f"{n_windows} windows are searched one by one; faiss is faster: pip install 'closedform[ann]'"
            warnings.warn(message, ClosedFormWarning, stacklevel=2)
    if large:
        return LargeStore.build(spec, episodes, episode_ids, progress)
    return Store.build(spec, episodes, episode_ids)


@dataclass(frozen=True)
class LargeStore(Store):
    """A store whose rows are computed from the recorded steps when they are asked for, and found by faiss.

    Nothing is copied but the steps themselves, or nothing at all where they are mapped from a file. What `Store` has as
    arrays over rows reads the same here, some rows at a time. Scales and weights of features are those of the episodes
    that were indexed; episodes added later keep to them.

    Attributes:
        windows: the recorded steps.
        summary: of every episode.
        opened: the folder that it was opened from, and the facts about it; None if it was built or changed.
    """

    windows: Windows
    summary: Summary
    opened: tuple[Path, dict[str, Any]] | None = None

    @classmethod
    def build(
        cls, spec: StoreSpec, episodes: Sequence[Episode], episode_ids: np.ndarray, progress: Progress | None = None
    ) -> LargeStore:
        """Copies the episodes into one piece, looks through them once and indexes them."""
        progress = progress or (lambda what, share: None)
        windows = Windows.of(spec, episodes)
        if not len(windows):
            raise too_short([len(episode) for episode in episodes], spec.n_obs_steps, spec.n_action_steps)
        views, ends, summary = windows.episode_views(), np.cumsum(windows.counts), None
        for first in range(0, len(views), EPISODES_AT_ONCE):
            progress("reading", first / len(views))
            some = views[first : first + EPISODES_AT_ONCE]
            rows = np.arange(ends[first] - windows.counts[first], ends[first + len(some) - 1])
            lifted = windows.lifted(rows) if len(rows) else windows.lifted(np.zeros(1, np.int64))[:0]
            part = Summary.of(spec, some, lifted)
            summary = part if summary is None else summary.append(part)
        assert summary is not None
        offset, scale = spec.feature_map.scaling(summary.feature_statistics)
        store = cls.assemble(spec, windows, views, episode_ids, summary, offset, scale, np.ones(len(scale)))
        check_binary(store)
        store = store.with_relevance(progress)
        index = FaissIndex.build(
            store.index.rows(),
            spec.recall,
            min(spec.n_neighbors, len(store)),
            store.weigh,
            store.row_episodes,
            int(windows.counts.max()),
            progress,
        )
        return replace(store, index=index)

    @classmethod
    def assemble(
        cls,
        spec: StoreSpec,
        windows: Windows,
        episodes: tuple[Episode, ...],
        episode_ids: np.ndarray,
        summary: Summary,
        offset: np.ndarray,
        scale: np.ndarray,
        weights: np.ndarray,
        index: Any = None,
    ) -> LargeStore:
        """Puts the parts together; without an index there is one that only knows its rows."""
        n = len(windows)
        features = Computed(_Features(windows, offset, scale), n)
        none = np.broadcast_to(np.int8(-1), (n, len(spec.hands)))
        return cls(
            spec=spec,
            episodes=episodes,
            episode_ids=np.asarray(episode_ids, np.int64),
            counts=windows.counts,
            lengths=windows.padded_lengths,
            index=_Unindexed(features) if index is None else index,
            actions=Computed(windows.encoded_actions, int(windows.padded_lengths.sum())),
            starts=Computed(windows.starts, n),
            row_episodes=Computed(windows.episodes, n),
            row_steps=Computed(windows.steps, n),
            poses=Computed(windows.poses, n),
            held=summary.held if len(summary.held) else none,
            turn_sums=summary.turn_sums,
            feature_statistics=summary.feature_statistics,
            action_statistics=summary.action_statistics,
            feature_offset=offset,
            feature_scale=scale,
            entry_weights=weights,
            scaling=action_scaling(spec, summary.action_statistics),
            windows=windows,
            summary=summary,
        )

    def with_relevance(self, progress: Progress) -> LargeStore:
        """The store with entries of observations weighed by how well they predict."""
        if not self.spec.relevance:
            return self
        progress("measuring relevance", 0.0)
        n = min(n_judging(len(self.episodes)), N_JUDGES)
        if not self.counts[:n].sum():
            return self
        judges = Store.build(replace(self.spec, relevance=False), self.episodes[:n], self.episode_ids[:n])
        weights = entry_weights(judges, self.index.rows()[: len(judges)])
        scale = self.feature_scale * weights
        features = Computed(_Features(self.windows, self.feature_offset, scale), len(self))
        return replace(self, index=_Unindexed(features), feature_scale=scale, entry_weights=weights)

    def weigh(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The observation kernel's weights of some rows, the largest being 1."""
        features, factor = self.index.rows()[rows], self.fixed_factor(self.spec.metric)
        if not factor.size:
            factor = covariance_factor(features, self.spec.regularization, self.shrinkage)
        squared = squared_distances(features, query, factor)
        h = self.spec.bandwidth / np.sqrt(len(query))
        return np.exp(-(squared - squared.min()) / (2 * h * h))

    def some_rows(self, rows: np.ndarray) -> Rows:
        """What the compiled planner reads, of some rows."""
        at = self.windows.locate(rows)
        observed = self.windows.observed(at)
        n_action_steps = self.spec.n_action_steps
        return Rows(
            columns=np.ascontiguousarray(self.features_of(observed).T),
            n_rows=len(rows),
            actions=self.windows.chunks(at).reshape(len(rows) * n_action_steps, -1),
            starts=np.arange(len(rows)) * n_action_steps,
            episodes=at.episodes,
            poses=self.spec.body_poses(observed[:, -1]),
            held=self.held[rows].astype(np.int64),
        )

    def add(self, episode: Episode, episode_id: int) -> LargeStore:
        """The store with one more episode, whose rows are searched exactly; its numbers get the others' precision."""
        kept = (self.windows.observations, episode.observations), (self.windows.actions, episode.actions)
        episode = Episode(*(values.astype(recorded.parts[0].dtype) for recorded, values in kept))
        windows = self.windows.add(episode)
        rows = np.arange(len(self), len(windows))
        if not len(rows):
            raise too_short([len(episode)], self.spec.n_obs_steps, self.spec.n_action_steps)
        summary = self.summary.append(Summary.of(self.spec, [episode], windows.lifted(rows)))
        features = Computed(_Features(windows, self.feature_offset, self.feature_scale), len(windows))
        grown = self.assemble(
            self.spec,
            windows,
            (*self.episodes, episode),
            np.append(self.episode_ids, episode_id),
            summary,
            self.feature_offset,
            self.feature_scale,
            self.entry_weights,
            self.index.add(features[rows], features),
        )
        check_binary(grown, newest_only=not _widened(self, grown))
        grown.goal  # noqa: B018 - now, and not while the next plan waits for it
        return grown

    def leave_out(self, index: int) -> LargeStore:
        """What predicts an episode from the others: its rows stay, but no query finds them."""
        end = int(self.counts[: index + 1].sum())
        return replace(self, index=self.index.hiding(end - int(self.counts[index]), end), opened=None)

    def remove(self, episode_id: int, *, weigh: bool = True) -> LargeStore:
        """The store without an episode; everything else is indexed and weighed again."""
        keep = self.kept_without(episode_id)
        episodes = [episode for episode, kept in zip(self.episodes, keep, strict=True) if kept]
        return self.build(self.spec, episodes, self.episode_ids[keep])

    def global_sample(self) -> np.ndarray:
        """Features that tell the covariance of all."""
        return self.index.rows()[np.unique(np.linspace(0, len(self) - 1, N_GLOBAL).astype(np.int64))]

    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of each number of an action."""
        return self.summary.action_range[0], self.summary.action_range[1]

    def last_observations(self) -> np.ndarray:
        """(E, D_o), not numbers for empty episodes."""
        return self.summary.last_observations

    def write(self, folder: Path, identity: str) -> dict[str, Any]:
        """Writes index and summary beside the demonstrations; returns what else is needed to open them again.

        Args:
            folder: where to.
            identity: what tells these demonstrations from others.
        """
        save_file(
            {
                **self.summary.to_arrays(),
                **{name: getattr(self, name) for name in SCALING},
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
            "episodes_crc32": crc32([self.windows.lengths, self.episode_ids]),
        }

    @classmethod
    def open(cls, spec: StoreSpec, snapshot: Snapshot, facts: dict[str, Any]) -> LargeStore:
        """Opens what `write` wrote beside the recorded steps in policy.safetensors.

        All that is small is compared with its checksum: the summary, the lengths and ids of episodes, and the head of
        the index. The steps and the lists of the index are compared too where all files together are not larger than
        `SavedIndex.WHOLE_UP_TO`; of larger ones nothing is read before a plan asks for it.

        Args:
            spec: what it was built with.
            snapshot: of the folder that it was written to.
            facts: what `write` returned.
        """
        saved = SavedIndex.parse(snapshot, facts)
        whole, arrays = saved.is_small(snapshot), saved.read_arrays(snapshot)
        steps = snapshot.arrays("policy.safetensors")
        saved.check_steps(snapshot, steps, whole=whole)
        lengths, episode_ids = np.array(steps["lengths"]), np.array(steps["episode_ids"])
        windows = Windows(spec, Recorded([steps["observations"]]), Recorded([steps["actions"]]), lengths)
        if not len(windows):
            raise too_short(lengths.tolist(), spec.n_obs_steps, spec.n_action_steps)
        width = windows.lifted(np.zeros(1, np.int64)).shape[1]
        path = snapshot.folder / "summary.safetensors"
        summary, scaling = saved.read_summary(arrays, path, spec, len(lengths), len(windows), width)
        store = cls.assemble(spec, windows, windows.episode_views(), episode_ids, summary, *scaling)
        index = saved.read_index(snapshot, store.index.rows(), whole=whole)
        return replace(store, index=index, opened=(snapshot.folder, facts))

    @classmethod
    def reopen(cls, spec: StoreSpec, folder: Path, facts: dict[str, Any]) -> LargeStore:
        """Opens the same files in another process; if they were replaced meanwhile it says so."""
        with Snapshot(folder, lambda name: name in SavedIndex.FILES) as snapshot:
            return cls.open(spec, snapshot, facts)

    def __reduce__(self) -> Any:
        """Another process opens the same file, if there is one and nothing was added."""
        if self.opened is not None:
            return LargeStore.reopen, (self.spec, *self.opened)
        return copyreg.__newobj__, (LargeStore,), dict(self.__dict__)  # pyright: ignore[reportAttributeAccessIssue]


class _Features:
    """Features of rows, scaled."""

    def __init__(self, windows: Windows, offset: np.ndarray, scale: np.ndarray):
        self._windows, self._offset, self._scale = windows, offset, scale

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        if not len(rows):
            return np.empty((0, len(self._scale)))
        return (self._windows.lifted(rows) - self._offset) * self._scale


@dataclass(frozen=True)
class _Unindexed:
    """Rows that cannot be searched yet."""

    features: Computed

    def rows(self) -> Computed:
        """(n, D)"""
        return self.features


def _widened(old: Store, new: Store) -> bool:
    """Whether a binary entry of actions takes values that it did not take before."""
    return any(
        kind == "binary" and not (np.array_equal(low, new_low) and np.array_equal(high, new_high))
        for (kind, _, low, high), (_, _, new_low, new_high) in zip(
            old.bounded_actions, new.bounded_actions, strict=True
        )
    )
