"""Store: everything that a plan reads, as one immutable value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from closedform.demos.chunks import too_short
from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.kernels.records import Metric, Rows, Transfers
from closedform.retrieval.feature_map import scaled
from closedform.retrieval.frame import N_VOTERS, PREFERENCE
from closedform.retrieval.goal import Goal, find_goal
from closedform.retrieval.hand import Transfer, rotation_near
from closedform.retrieval.index import ExactIndex
from closedform.retrieval.metric import covariance_factor
from closedform.retrieval.pace import breathe, paced
from closedform.retrieval.relevance import entry_weights, n_judging
from closedform.retrieval.rows import joined, kept, rows_of, starts_of
from closedform.retrieval.scaling import ActionScaling, action_scaling
from closedform.retrieval.spec import StoreSpec
from closedform.retrieval.statistics import Statistics

EPISODES_PER_NEIGHBORHOOD = 4  # of which one tells something about the shape of any one neighborhood


@dataclass(frozen=True)
class Store:
    """Demonstrations cut into windows, indexed and scaled.

    Row i is one window. Windows are views: the actions of row i are `actions[starts[i] : starts[i] + n_action_steps]`.

    Attributes:
        spec: what it was built with.
        episodes: the demonstrations.
        episode_ids: (E,), the number each was given when it was added.
        counts: (E,), windows of each episode.
        lengths: (E,), rows of `actions` of each episode.
        index: the nearest-neighbor index of the rows' features.
        actions: (sum of lengths, D), encoded actions.
        starts: (n,)
        row_episodes: (n,), index into `episodes`.
        row_steps: (n,), the step at which the window acts first.
        poses: (n, bodies, pose width), of the last observation of each window.
        held: (n, hands), which of these bodies each hand holds then; -1 for none.
        turn_sums: (E, hands, 3, 3), of each episode; see `turn_sum`.
        feature_offset, feature_scale: (D_z,), the scale with `entry_weights` in it.
        entry_weights: (D_z,), powers of two; see `entry_weights`.
        scaling: of actions.
    """

    spec: StoreSpec
    episodes: tuple[Episode, ...]
    episode_ids: np.ndarray
    counts: np.ndarray
    lengths: np.ndarray
    index: Any
    actions: Any
    starts: Any
    row_episodes: Any
    row_steps: Any
    poses: Any
    held: Any
    turn_sums: np.ndarray
    feature_statistics: Statistics
    action_statistics: Statistics
    feature_offset: np.ndarray
    feature_scale: np.ndarray
    entry_weights: np.ndarray
    scaling: ActionScaling

    @classmethod
    def build(cls, spec: StoreSpec, episodes: Sequence[Episode], episode_ids: np.ndarray) -> Store:
        """Cuts, indexes and scales the episodes."""
        rows = rows_of(spec, episodes)
        if not rows.counts.sum():
            raise too_short([len(episode) for episode in episodes], spec.n_obs_steps, spec.n_action_steps)
        breathe()
        offset, scale = spec.feature_map.scaling(rows.feature_statistics)
        breathe()
        with np.errstate(over="ignore", invalid="ignore"):
            features = scaled(rows.lifted, offset, scale, "window")
        breathe()
        store = cls(
            spec=spec,
            episodes=tuple(episodes),
            episode_ids=np.asarray(episode_ids, np.int64),
            counts=rows.counts,
            lengths=rows.lengths,
            index=ExactIndex(features),
            actions=rows.actions,
            starts=starts_of(rows.counts, rows.lengths, rows.steps),
            row_episodes=np.repeat(np.arange(len(episodes)), rows.counts),
            row_steps=rows.steps,
            poses=rows.poses,
            held=rows.held,
            turn_sums=rows.turn_sums,
            feature_statistics=rows.feature_statistics,
            action_statistics=rows.action_statistics,
            feature_offset=offset,
            feature_scale=scale,
            entry_weights=np.ones(len(scale)),
            scaling=action_scaling(spec, rows.action_statistics),
        )
        check_binary(store)
        return store.weighed()

    def __len__(self) -> int:
        return len(self.row_steps)

    @cached_property
    def _global_factor(self) -> np.ndarray:
        return covariance_factor(self.global_sample(), self.spec.regularization, self.shrinkage)

    def global_sample(self) -> np.ndarray:
        """Features that tell the covariance of all."""
        return self.index.rows()

    @cached_property
    def shrinkage(self) -> float:
        """How far covariances of features are drawn toward a sphere: all the way if there were infinitely many.

        The shape of a neighborhood in D_z directions cannot be told from few episodes: however many windows each of
        them has, they lie along one path, and only those count that pass here. Without a wish of the user's the share
        is D_z / (D_z + E / 4).
        """
        width, passing = len(self.feature_scale), len(self.episodes) / EPISODES_PER_NEIGHBORHOOD
        return width / (width + passing) if self.spec.shrinkage is None else self.spec.shrinkage

    @property
    def all_rows(self) -> Rows:
        """What the compiled planner reads, of all rows."""
        arrays = self.actions, self.starts, self.row_episodes, self.poses, self.held
        return Rows(self.index.columns, len(self), *arrays)

    @cached_property
    def transfers(self) -> Transfers:
        """How chunks are transferred, as the compiled planner reads it."""
        spec = self.spec
        turns, dimension = self.transfer.turns, spec.body_poses.dimension
        return Transfers(
            spec.n_action_steps, *spec.tables, turns, dimension, *self.scaling, n_voters=N_VOTERS, preference=PREFERENCE
        )

    @cached_property
    def goal(self) -> Goal:
        """Where the episodes end."""
        spec, scaling = self.spec, (self.feature_offset, self.feature_scale)
        lasts = self.last_observations()
        return find_goal(spec.feature_map, spec.action_layout.bodies, spec.n_obs_steps, lasts, scaling)

    def prepare(self, metric: str) -> None:
        """Computes what is computed once, so that no plan has to wait for it."""
        for name in ("transfer", "transfers", "shrinkage", "bounded_actions", "goal"):
            breathe()
            getattr(self, name)
        breathe()
        self.fixed_factor(metric)

    def last_observations(self) -> np.ndarray:
        """(E, D_o), not numbers for empty episodes."""
        none = np.full(self.spec.observation_layout.width, np.nan)
        return np.array([episode.observations[-1] if len(episode) else none for episode in paced(self.episodes)])

    def metric_record(self, metric: str, precision: float) -> Metric:
        """A metric as the compiled planner reads it."""
        return Metric(self.fixed_factor(metric), self.spec.regularization, self.shrinkage, precision)

    def fixed_factor(self, metric: str) -> np.ndarray:
        """The Cholesky factor of a metric that is the same everywhere, (D_z, D_z); empty for the local one."""
        if metric == "local_mahalanobis":
            return np.empty((0, 0))
        return np.eye(len(self.feature_scale)) if metric == "euclidean" else self._global_factor

    def add(self, episode: Episode, episode_id: int) -> Store:
        """The store with one more episode; only the episode is indexed unless it changes the scale of features."""
        rows = rows_of(self.spec, [episode])
        if not rows.counts.sum():
            raise too_short([len(episode)], self.spec.n_obs_steps, self.spec.n_action_steps)
        breathe()
        feature_statistics = self.feature_statistics.append(rows.feature_statistics)
        action_statistics = self.action_statistics.append(rows.action_statistics)
        episodes = (*self.episodes, episode)
        episode_ids = np.append(self.episode_ids, episode_id)
        breathe()
        scaling = action_scaling(self.spec, action_statistics)
        breathe()
        offset, scale = self.spec.feature_map.scaling(feature_statistics)
        if not self._has_scaling(offset, scale):
            return Store.build(self.spec, episodes, episode_ids)
        counts, lengths = np.append(self.counts, rows.counts), np.append(self.lengths, rows.lengths)
        breathe()
        grown = replace(
            self,
            episodes=episodes,
            episode_ids=episode_ids,
            counts=counts,
            lengths=lengths,
            index=self.index.add(scaled(rows.lifted, offset, self.feature_scale, "window")),
            actions=joined(self.actions, rows.actions),
            starts=joined(self.starts, rows.steps + len(self.actions)),
            row_episodes=joined(self.row_episodes, np.full(len(rows.steps), len(self.episodes))),
            row_steps=joined(self.row_steps, rows.steps),
            poses=joined(self.poses, rows.poses),
            held=joined(self.held, rows.held),
            turn_sums=joined(self.turn_sums, rows.turn_sums),
            feature_statistics=feature_statistics,
            action_statistics=action_statistics,
            scaling=scaling,
        )
        breathe()
        check_binary(grown)
        same = n_judging(len(episodes)) == n_judging(len(self.episodes))
        return grown if same else grown.weighed()

    def leave_out(self, index: int) -> Store:
        """What predicts an episode from the others, with the weights of all; `index` is into `episodes`."""
        return self.remove(int(self.episode_ids[index]), weigh=False)

    def remove(self, episode_id: int, *, weigh: bool = True) -> Store:
        """The store without an episode, exactly as if it had never been added; `weigh` if its weights too."""
        keep = self.kept_without(episode_id)
        feature_statistics = self.feature_statistics.keep(keep)
        action_statistics = self.action_statistics.keep(keep)
        episodes = tuple(episode for episode, kept in zip(self.episodes, keep, strict=True) if kept)
        counts, lengths = self.counts[keep], self.lengths[keep]
        if not counts.sum():
            raise too_short([len(episode) for episode in episodes], self.spec.n_obs_steps, self.spec.n_action_steps)
        offset, scale = self.spec.feature_map.scaling(feature_statistics)
        if not self._has_scaling(offset, scale):
            return Store.build(self.spec, episodes, self.episode_ids[keep])
        breathe()
        kept_rows, kept_actions = np.repeat(keep, self.counts), np.repeat(keep, self.lengths)
        steps = kept(self.row_steps, kept_rows)
        left = replace(
            self,
            episodes=episodes,
            episode_ids=self.episode_ids[keep],
            counts=counts,
            lengths=lengths,
            index=self.index.remove(kept_rows),
            actions=kept(self.actions, kept_actions),
            starts=starts_of(counts, lengths, steps),
            row_episodes=np.repeat(np.arange(len(episodes)), counts),
            row_steps=steps,
            poses=kept(self.poses, kept_rows),
            held=kept(self.held, kept_rows),
            turn_sums=self.turn_sums[keep],
            feature_statistics=feature_statistics,
            action_statistics=action_statistics,
            scaling=action_scaling(self.spec, action_statistics),
        )
        judging = n_judging(len(episodes))
        same = judging == n_judging(len(self.episodes)) and keep[:judging].all()
        return left if same or not weigh else left.weighed()

    def kept_without(self, episode_id: int) -> np.ndarray:
        """(E,), which episodes are left without one, if it is there and not the last."""
        keep = self.episode_ids != episode_id
        if keep.all():
            raise DataError(f"unknown episode {episode_id}: it was never added, or was removed")
        if not keep.any():
            raise DataError(f"episode {episode_id} is the last one: a policy needs at least one")
        return keep

    def weighed(self) -> Store:
        """The store with the weights that its episodes call for."""
        if not self.spec.relevance:
            return self
        judges = self._first(n_judging(len(self.episodes)))
        breathe()
        weights = entry_weights(judges, self.index.rows()[: len(judges)] / self.entry_weights)
        if np.array_equal(weights, self.entry_weights):
            return self
        change = weights / self.entry_weights  # powers of two, which lose nothing
        breathe()
        index = ExactIndex(self.index.rows() * change)
        return replace(self, index=index, feature_scale=self.feature_scale * change, entry_weights=weights)

    def _first(self, n: int) -> Store:
        """What a plan reads but for the index, with the first n episodes alone."""
        n_rows, n_actions, keep = self.counts[:n].sum(), self.lengths[:n].sum(), np.arange(len(self.episodes)) < n
        per_row = ("starts", "row_episodes", "row_steps", "poses", "held")
        per_episode = ("episodes", "episode_ids", "counts", "lengths", "turn_sums")
        statistics = self.action_statistics.keep(keep)
        return replace(
            self,
            **{name: getattr(self, name)[:n_rows] for name in per_row},
            **{name: getattr(self, name)[:n] for name in per_episode},
            actions=self.actions[:n_actions],
            feature_statistics=self.feature_statistics.keep(keep),
            action_statistics=statistics,
            scaling=action_scaling(self.spec, statistics) if n else self.scaling,
        )

    def _has_scaling(self, offset: np.ndarray, scale: np.ndarray) -> bool:
        own = self.feature_scale / self.entry_weights
        return np.array_equal(offset, self.feature_offset) and np.array_equal(scale, own)

    @cached_property
    def bounded_actions(self) -> list[tuple[str, slice, np.ndarray, np.ndarray]]:
        """The binary entries and angles of an action: kind, columns, lowest and highest value of each number."""
        bounded = []
        for entry, columns in self.spec.action_layout.slices():
            if entry.kind in ("binary", "angle"):
                low, high = self.action_range()
                bounded.append((entry.kind, columns, low[columns], high[columns]))
        return bounded

    def action_range(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and highest value of each number of an action."""
        actions = np.concatenate([episode.actions for episode in self.episodes])
        return actions.min(0), actions.max(0)

    def features_of(self, windows: np.ndarray) -> np.ndarray:
        """The features of observation windows, refused if they are not finite. (n, N_o, D_o) -> (n, D_z)."""
        lifted = self.spec.feature_map.lift(windows)
        return scaled(lifted, self.feature_offset, self.feature_scale, "observation")

    @cached_property
    def transfer(self) -> Transfer:
        """What transfers chunks."""
        spec = self.spec
        turns = np.array([rotation_near(turn) for turn in self.turn_sums.sum(0)])
        return Transfer(spec.encoding, spec.body_poses.dimension, spec.selected_frames, spec.hands, turns)

    def chunks(self, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The encoded chunks of some rows as they are transferred, see `Transfer`. (m,), (hands, 2) -> (m, N_a, D)."""
        encoded = self.actions[self.starts[rows][:, None] + np.arange(self.spec.n_action_steps)]
        return self.transfer.into(encoded, self.poses[rows], choice)

    def normalized_chunks(self, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The same as diffusion sees them, (m, N_a * D)."""
        offset, scale = self.normalization(choice)
        return ((self.chunks(rows, choice) - offset) * scale).reshape(len(rows), -1)

    def normalization(self, choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offset and scale (D,) of encoded actions that are transferred."""
        if len(choice) == 1:
            return self.scaling.offset[choice[0, 0]], self.scaling.scale[choice[0, 0]]
        offset, scale = (np.empty(self.spec.encoding.width) for _ in range(2))
        for hand, (frame, _) in zip(self.spec.hands, choice, strict=True):
            offset[hand.columns] = self.scaling.offset[frame, hand.columns]
            scale[hand.columns] = self.scaling.scale[frame, hand.columns]
        return offset, scale

    @property
    def as_recorded(self) -> np.ndarray:
        """(hands, 2), transferring nothing: each hand in the world, or in the first frame where that is not one."""
        world = next((i for i, frame in enumerate(self.spec.selected_frames) if frame.body < 0), 0)
        return np.array([(world, -1)] * len(self.spec.hands))


def check_binary(store: Store, *, newest_only: bool = False) -> None:
    """Refuses binary entries of actions that take more than two values."""
    first = len(store.episodes) - 1 if newest_only else 0
    for kind, columns, low, high in store.bounded_actions:
        if kind != "binary":
            continue
        for index, episode in paced(zip(store.episode_ids[first:], store.episodes[first:], strict=True)):
            actions = episode.actions[:, columns]
            third = np.argwhere((actions != low) & (actions != high))
            if len(third):
                step, number = third[0].tolist()
                where = store.spec.action_layout.describe(columns.start + number)
                raise DataError(
                    f"episode {index}: expected two values at {where}, found also {actions[step, number]} "
                    f"at step {step}; declare the entry 'other' if it has more"
                )
