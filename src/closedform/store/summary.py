"""Summary: statistics of all episodes of a large store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from closedform.demos.episode import Episode
from closedform.store.rows import action_range, last_observation
from closedform.store.spec import ModelSpec
from closedform.transfer.action_scaling import action_statistics
from closedform.weights.feature_statistics import Statistics


@dataclass(frozen=True)
class Summary:
    """Statistics of all episodes, saved so that opening a store need not read the episodes again.

    Attributes:
        feature_statistics, action_statistics: see `Store`, of all as one group.
        turn_sums: (1, hands, 3, 3)
        action_range: (2, D_a), the lowest and highest value of each number of an action.
        last_observations: (E, D_o)
        held: (n, hands), int8, or (0, hands) if grasps cannot be detected.
        scatter: (1, D_z), of features within episodes, see `Statistics`; NaN in files of older versions.
    """

    feature_statistics: Statistics
    action_statistics: Statistics
    turn_sums: np.ndarray
    action_range: np.ndarray
    last_observations: np.ndarray
    held: np.ndarray
    scatter: np.ndarray

    @classmethod
    def of(cls, spec: ModelSpec, episodes: Sequence[Episode], lifted: np.ndarray) -> Summary:
        """Summarizes episodes, given the features of their windows before scaling."""
        transfer = spec.transfer
        steps = [spec.windows.window_steps(len(episode)) for episode in episodes]
        poses, recorded = transfer.poses_of(episodes)
        holds = any(hand.holds for hand in transfer.hands)
        held = [transfer.held(of)[step] for of, step in zip(recorded, steps, strict=True)] if holds else []
        empty = np.empty((0, len(transfer.hands)), np.int8)
        turn_sums = [transfer.turn_sums(*pair) for pair in zip(episodes, recorded, strict=True)]
        ranges = np.array([action_range(episode) for episode in episodes])
        statistics = Statistics.of(lifted, np.array([len(step) for step in steps]))
        return cls(
            feature_statistics=statistics.pooled(),
            action_statistics=action_statistics(transfer, episodes, np.concatenate(poses)).pooled(),
            turn_sums=np.sum(turn_sums, axis=0)[None],
            action_range=np.array([ranges[:, 0].min(0), ranges[:, 1].max(0)]),
            last_observations=np.array([last_observation(episode) for episode in episodes]),
            held=np.concatenate([*held, empty]).astype(np.int8),
            scatter=statistics.scatter.sum(0)[None],
        )

    def append(self, other: Summary) -> Summary:
        """The summary of the episodes of both."""
        low, high = np.stack([self.action_range, other.action_range], axis=1)
        return Summary(
            feature_statistics=self.feature_statistics.append(other.feature_statistics).pooled(),
            action_statistics=self.action_statistics.append(other.action_statistics).pooled(),
            turn_sums=self.turn_sums + other.turn_sums,
            action_range=np.array([low.min(0), high.max(0)]),
            last_observations=np.concatenate([self.last_observations, other.last_observations]),
            held=np.concatenate([self.held, other.held]),
            scatter=self.scatter + other.scatter,
        )

    def without(self, other: Summary, index: int) -> Summary:
        """The summary without an episode, given its summary and index; the extremes stay."""
        last = self.last_observations.copy()
        last[index] = np.nan
        return replace(
            self,
            feature_statistics=self.feature_statistics.without(other.feature_statistics),
            action_statistics=self.action_statistics.without(other.action_statistics),
            turn_sums=self.turn_sums - other.turn_sums,
            last_observations=last,
            scatter=np.maximum(self.scatter - other.scatter, 0),
        )

    def extremes(self) -> np.ndarray:
        """The lowest and highest values of features, and of actions in all frames and as recorded; (m,)."""
        lows = self.feature_statistics.low, self.action_statistics.low, self.action_range[:1]
        highs = self.feature_statistics.high, self.action_statistics.high, self.action_range[1:]
        return np.concatenate([array.ravel() for array in (*lows, *highs)])

    def with_extremes(self, extremes: np.ndarray) -> Summary:
        """With other lowest and highest values, (m,) as of `extremes`."""
        features, actions = self.feature_statistics, self.action_statistics
        widths = features.low.shape[1], actions.low.shape[1]
        (low_z, low, lowest), (high_z, high, highest) = (
            np.split(half[None], np.cumsum(widths), axis=1) for half in np.split(extremes, 2)
        )
        return replace(
            self,
            feature_statistics=replace(features, low=low_z, high=high_z),
            action_statistics=replace(actions, low=low, high=high),
            action_range=np.concatenate([lowest, highest]),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays to save, by name."""
        arrays = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Statistics):
                arrays |= {f"{field.name}.{part.name}": getattr(value, part.name) for part in fields(value)}
            else:
                arrays[field.name] = value
        return {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Summary:
        """The inverse of `to_arrays`."""
        values = {}
        for field in fields(cls):
            if field.name in arrays:
                values[field.name] = arrays[field.name]
            elif field.name == "scatter":
                values[field.name] = np.full_like(arrays["feature_statistics.scatter"], np.nan)
            else:
                values[field.name] = Statistics(
                    **{part.name: arrays[f"{field.name}.{part.name}"] for part in fields(Statistics)}
                )
        return cls(**values)

    def problem(self, spec: ModelSpec, n_episodes: int, n_windows: int, width: int) -> str | None:
        """What is wrong with a summary that was read: a wrong shape or type, or impossible numbers; None if nothing.

        Args:
            spec: of the model.
            n_episodes, n_windows: of its demonstrations.
            width: of features.
        """
        transfer, cutting = spec.transfer, spec.windows
        n_hands, n_bodies = len(transfer.hands), len(transfer.body_poses.bodies)
        rows = len(self.held) and n_windows
        shapes = {
            "turn_sums": (1, n_hands, 3, 3),
            "action_range": (2, cutting.action_layout.width),
            "last_observations": (n_episodes, cutting.observation_layout.width),
            "held": (rows, n_hands),
            "scatter": (1, width),
        }
        unknown = ("held", "last_observations", "scatter")  # empty episodes have no last one
        seen = len(transfer.selected_frames) * transfer.encoding.width
        for name, columns in (("feature_statistics", width), ("action_statistics", seen)):
            shapes[f"{name}.count"] = (1,)
            shapes |= {f"{name}.{part}": (1, columns) for part in ("low", "high", "mean", "scatter")}
        for name, array in self.to_arrays().items():
            kind = "i" if name == "held" or name.endswith(".count") else "f"
            if array.shape != shapes[name] or array.dtype.kind != kind:
                return f"{name} of shape {array.shape} and type {array.dtype}"
            if name not in unknown and not np.isfinite(array).all():
                return f"{name} that are not finite"
            if (name == "held" or name.endswith((".count", ".scatter"))) and np.any(array < -(name == "held")):
                return f"{name} below their minimum"
        if np.any(self.held >= n_bodies):
            return f"grasped bodies out of range for {n_bodies} bodies"
        return None
