"""Store: demonstrations cut into windows, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.demos.chunks import too_short
from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.store.rows import Rows, joined, kept, starts_of
from closedform.store.window_spec import WindowSpec
from closedform.weights.feature_statistics import Statistics


@dataclass(frozen=True)
class Store:
    """Demonstrations cut into windows, one row each, and their statistics.

    Windows are views: the actions of row i are `actions[starts[i] : starts[i] + n_action_steps]`. Arrays over rows may
    be computed on demand. Statistics have a group for each episode, or one for all.

    What was recorded may stand for several episodes (see `Rewrite`): these follow each other and have the same id.

    Attributes:
        spec: how they were cut.
        episodes: what the demonstrations stand for.
        episode_ids: (E,), assigned when each was added, ascending.
        counts: (E,), windows of each episode.
        lengths: (E,), rows of `actions` of each episode.
        actions: (sum of lengths, D), encoded actions.
        starts: (n,)
        row_episodes: (n,), index into `episodes`.
        row_steps: (n,), the step of the window's first action.
        poses: (n, bodies, pose width), of the last observation of each window.
        held: (n, hands), which of these bodies each hand has grasped at that time; -1 for none.
        turn_sums: (E, hands, 3, 3), of each episode; see `turn_sum`.
        feature_statistics: of features before they are scaled.
        action_statistics: of encoded actions in all frames.
        action_ranges: (E, 2, D_a), the lowest and highest value of each number of an action.
        last_observations: (E, D_o), NaN for empty episodes.
        originals: the demonstrations as they were recorded, where they were rewritten; else None.
        n_turned: how many episodes of each demonstration, the first ones, are not mirrored.
        scatter: (1, D_z), of features within episodes, if statistics have one group for all; NaN if unknown.
        removed: (E,), episodes that were removed but whose rows stay, and are never found; None if there are none.
    """

    spec: WindowSpec
    episodes: tuple[Episode, ...]
    episode_ids: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray
    actions: Any
    starts: Any
    row_episodes: Any
    row_steps: Any
    poses: Any
    held: Any
    turn_sums: np.ndarray
    feature_statistics: Statistics
    action_statistics: Statistics
    action_ranges: np.ndarray
    last_observations: np.ndarray
    originals: tuple[Episode, ...] | None = None
    n_turned: int = 1
    scatter: np.ndarray | None = None
    removed: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        spec: WindowSpec,
        episodes: Sequence[Episode],
        episode_ids: np.ndarray,
        rows: Rows,
        originals: Sequence[Episode] | None = None,
        n_turned: int = 1,
    ) -> Store:
        """The store of episodes and the rows cut from them; refused if there are none.

        Args:
            spec: how they were cut.
            episodes: what the demonstrations stand for.
            episode_ids: of the demonstrations.
            rows: cut from the episodes.
            originals: the demonstrations, where they were rewritten.
            n_turned: how many episodes of each are not mirrored.
        """
        if not rows.counts.sum():
            raise too_short([len(episode) for episode in episodes], spec.n_obs_steps, spec.n_action_steps)
        store = cls(
            spec=spec,
            episodes=tuple(episodes),
            episode_ids=np.repeat(np.asarray(episode_ids, np.int64), len(episodes) // max(len(episode_ids), 1)),
            counts=rows.counts,
            lengths=rows.lengths,
            actions=rows.actions,
            starts=starts_of(rows.counts, rows.lengths, rows.steps),
            row_episodes=np.repeat(np.arange(len(episodes)), rows.counts),
            row_steps=rows.steps,
            poses=rows.poses,
            held=rows.held,
            turn_sums=rows.turn_sums,
            feature_statistics=rows.feature_statistics,
            action_statistics=rows.action_statistics,
            action_ranges=rows.action_ranges,
            last_observations=rows.last_observations,
            originals=None if originals is None else tuple(originals),
            n_turned=n_turned,
        )
        store.check_binary()
        return store

    def __len__(self) -> int:
        return len(self.row_steps)

    @property
    def variance_within(self) -> np.ndarray:
        """(D_z,), the variance of features around the means of their episodes, before scaling; NaN if unknown."""
        statistics = self.feature_statistics
        scatter = statistics.scatter if self.scatter is None else self.scatter
        return scatter.sum(0) / max(int(statistics.count.sum()), 1)

    @property
    def n_copies(self) -> int:
        """How many episodes each recorded one stands for."""
        return len(self.episodes) // len(self.originals) if self.originals else 1

    @property
    def recorded(self) -> tuple[Episode, ...]:
        """The demonstrations as they were recorded."""
        if self.removed is None:
            return self.episodes if self.originals is None else self.originals
        return tuple(episode for episode, gone in zip(self.episodes, self.removed, strict=True) if not gone)

    @property
    def recorded_ids(self) -> np.ndarray:
        """Their numbers, each once."""
        if self.removed is None:
            return np.ascontiguousarray(self.episode_ids[:: self.n_copies])
        return self.episode_ids[~self.removed]

    @property
    def n_shown(self) -> int:
        """How many rows can be found."""
        return len(self) if self.removed is None else int(self.counts[~self.removed].sum())

    def origins(self, rows: np.ndarray) -> np.ndarray:
        """The recorded episodes that some rows come from, as indices into `recorded`. (m,) -> (m,)."""
        return self.row_episodes[rows] // self.n_copies

    def copies_of(self, rows: np.ndarray) -> np.ndarray:
        """Which image of its episode each of some rows is, 0 if it was recorded so. (m,) -> (m,)."""
        return self.row_episodes[rows] % self.n_copies

    @property
    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of each number of an action."""
        return self.action_ranges[:, 0].min(0), self.action_ranges[:, 1].max(0)

    def encoded_chunks(self, rows: np.ndarray) -> np.ndarray:
        """The encoded actions of some rows, as they were demonstrated. (m,) -> (m, N_a, D)."""
        return self.actions[self.starts[rows][:, None] + np.arange(self.spec.n_action_steps)]

    def rows_at(self, episode_ids: np.ndarray, steps: np.ndarray, images: np.ndarray | int = 0) -> np.ndarray:
        """The rows (m,) whose first actions are at some steps (m,) of episodes (m,); -1 for unknown episodes."""
        episodes = np.minimum(np.searchsorted(self.episode_ids, episode_ids) + images, len(self.episode_ids) - 1)
        first = (np.cumsum(self.counts) - self.counts)[episodes]
        known = self.episode_ids[episodes] == episode_ids
        if self.removed is not None:
            known &= ~self.removed[episodes]
        return np.where(known, first + steps - self.spec.first_step, -1)

    def append(self, rewritten: Sequence[Episode], episode_id: int, rows: Rows, original: Episode) -> Store:
        """The store with the rows of what one more episode stands for, which must have some."""
        if not rows.counts.sum():
            raise too_short([len(original)], self.spec.n_obs_steps, self.spec.n_action_steps)
        grown = replace(
            self,
            episodes=(*self.episodes, *rewritten),
            originals=None if self.originals is None else (*self.originals, original),
            episode_ids=np.append(self.episode_ids, np.full(len(rewritten), episode_id)),
            counts=np.append(self.counts, rows.counts),
            lengths=np.append(self.lengths, rows.lengths),
            actions=joined(self.actions, rows.actions),
            starts=joined(self.starts, starts_of(rows.counts, rows.lengths, rows.steps) + len(self.actions)),
            row_episodes=joined(
                self.row_episodes, np.repeat(np.arange(len(rewritten)), rows.counts) + len(self.episodes)
            ),
            row_steps=joined(self.row_steps, rows.steps),
            poses=joined(self.poses, rows.poses),
            held=joined(self.held, rows.held),
            turn_sums=joined(self.turn_sums, rows.turn_sums),
            feature_statistics=self.feature_statistics.append(rows.feature_statistics),
            action_statistics=self.action_statistics.append(rows.action_statistics),
            action_ranges=joined(self.action_ranges, rows.action_ranges),
            last_observations=joined(self.last_observations, rows.last_observations),
        )
        grown.check_binary()
        return grown

    def keep(self, keep: np.ndarray) -> Store:
        """The store of the episodes where `keep` (E,) is true; refused if they have no windows."""
        counts, lengths = self.counts[keep], self.lengths[keep]
        episodes = tuple(episode for episode, kept in zip(self.episodes, keep, strict=True) if kept)
        if not counts.sum():
            raise too_short([len(episode) for episode in episodes], self.spec.n_obs_steps, self.spec.n_action_steps)
        kept_rows, kept_actions = np.repeat(keep, self.counts), np.repeat(keep, self.lengths)
        steps = kept(self.row_steps, kept_rows)
        originals = self.originals
        if originals is not None:
            originals = tuple(each for each, kept in zip(originals, keep[:: self.n_copies], strict=True) if kept)
        return replace(
            self,
            episodes=episodes,
            originals=originals,
            episode_ids=self.episode_ids[keep],
            counts=counts,
            lengths=lengths,
            actions=kept(self.actions, kept_actions),
            starts=starts_of(counts, lengths, steps),
            row_episodes=np.repeat(np.arange(len(episodes)), counts),
            row_steps=steps,
            poses=kept(self.poses, kept_rows),
            held=kept(self.held, kept_rows),
            turn_sums=self.turn_sums[keep],
            feature_statistics=self.feature_statistics.keep(keep),
            action_statistics=self.action_statistics.keep(keep),
            action_ranges=self.action_ranges[keep],
            last_observations=self.last_observations[keep],
        )

    def first(self, n: int) -> Store:
        """The store of the first n episodes, without copying their rows."""
        n_rows, n_actions, keep = self.counts[:n].sum(), self.lengths[:n].sum(), np.arange(len(self.episodes)) < n
        per_row = ("starts", "row_episodes", "row_steps", "poses", "held")
        per_episode = (
            "episodes", "episode_ids", "counts", "lengths", "turn_sums", "action_ranges", "last_observations"
        )  # fmt: skip
        return replace(
            self,
            **{name: getattr(self, name)[:n_rows] for name in per_row},
            **{name: getattr(self, name)[:n] for name in per_episode},
            originals=None if self.originals is None else self.originals[: n // self.n_copies],
            actions=self.actions[:n_actions],
            feature_statistics=self.feature_statistics.keep(keep),
            action_statistics=self.action_statistics.keep(keep),
        )

    def kept_without(self, episode_id: int) -> np.ndarray:
        """A mask (E,) of all episodes but one, which must exist and not be the only one."""
        there = np.ones(len(self.episode_ids), bool) if self.removed is None else ~self.removed
        keep = there & (self.episode_ids != episode_id)
        if keep.sum() == there.sum():
            raise DataError(f"unknown episode {episode_id}: it was never added, or was removed")
        if not keep.any():
            raise DataError(f"episode {episode_id} is the last one: a policy needs at least one")
        return keep

    def check_binary(self, *, newest_only: bool = False) -> None:
        """Refuses binary entries of actions that take more than two values, unless their kind was only inferred."""
        first, (low, high) = len(self.episodes) - 1 if newest_only else 0, self.action_range
        for entry, columns in self.spec.action_layout.slices():
            if entry.kind != "binary" or entry.inferred:
                continue
            for index, episode in zip(self.episode_ids[first:], self.episodes[first:], strict=True):
                actions = episode.actions[:, columns]
                third = np.argwhere((actions != low[columns]) & (actions != high[columns]))
                if len(third):
                    step, number = third[0].tolist()
                    where = self.spec.action_layout.describe(columns.start + number)
                    raise DataError(
                        f"episode {index}: expected two values at {where}, found also {actions[step, number]} "
                        f"at step {step}; declare the entry 'other' if it has more"
                    )
