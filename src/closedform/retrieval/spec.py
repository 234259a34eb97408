"""StoreSpec: what a store is built with, besides the episodes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closedform.demos.encoding import Encoding
from closedform.demos.episode import Episode
from closedform.demos.layout import Layout
from closedform.retrieval.feature_map import FeatureMap
from closedform.retrieval.frame import BodyPoses, Frame
from closedform.retrieval.hand import Hand, hands_of, held_bodies, turn_sum
from closedform.retrieval.limits import check_size


@dataclass(frozen=True)
class StoreSpec:
    """What a store is built with, besides the episodes.

    Attributes:
        observation_layout, action_layout: of the demonstrations.
        feature_map: from observation windows to features.
        n_obs_steps, n_action_steps, padding: the windows.
        frames: the frames that actions can be expressed in.
        regularization: lambda, added to the covariance of features.
        shrinkage: of this covariance; None to have it follow from the data.
        relevance: whether entries of observations that make predictions worse count less.
        index: `exact`, `faiss`, or `auto` for the faster one.
        recall: share of the neighbors that carry weight which faiss has to find.
        n_neighbors, metric, bandwidth: which neighbors these are; see `PolicyConfig`.
    """

    observation_layout: Layout
    action_layout: Layout
    feature_map: FeatureMap
    n_obs_steps: int
    n_action_steps: int
    padding: bool
    frames: str
    regularization: float
    shrinkage: float | None
    relevance: bool
    index: str = "auto"
    recall: float = 0.95
    n_neighbors: int = 2000
    metric: str = "local_mahalanobis"
    bandwidth: float = 0.09

    def n_windows(self, lengths: np.ndarray) -> np.ndarray:
        """How many windows episodes of these lengths have."""
        missing = 0 if self.padding else self.n_obs_steps + self.n_action_steps - 2
        return np.maximum(lengths - missing, 0)

    def check_size(self, lengths: np.ndarray) -> None:
        """Refuses windows or padded actions of episodes of these lengths that would take more memory than there is."""
        n_windows, n_steps = int(self.n_windows(lengths).sum()), int(lengths.sum())
        windows = n_windows * self.n_obs_steps * self.observation_layout.width
        what = f"{n_windows} windows of n_obs_steps = {self.n_obs_steps} observations"
        check_size(windows, what, "lower n_obs_steps, or use fewer demonstrations")
        padded = n_steps + self.padding * len(lengths) * (self.n_action_steps - 1)
        what = f"{len(lengths)} episodes padded for n_action_steps = {self.n_action_steps}"
        check_size(padded * self.encoding.width, what, "lower n_action_steps, or use fewer demonstrations")

    @property
    def first_step(self) -> int:
        """The step at which the first window of an episode acts."""
        return 0 if self.padding else self.n_obs_steps - 1

    def window_steps(self, length: int) -> np.ndarray:
        """The steps at which the windows of an episode act first."""
        return self.first_step + np.arange(int(self.n_windows(np.array(length))))

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of actions."""
        return Encoding(self.action_layout)

    @cached_property
    def body_poses(self) -> BodyPoses:
        """The bodies whose frames actions can be expressed in."""
        return BodyPoses(self.observation_layout, self.encoding.dimension, self.action_layout.bodies)

    @cached_property
    def selected_frames(self) -> tuple[Frame, ...]:
        """The frames asked for."""
        return self.body_poses.select(self.frames)

    @cached_property
    def hands(self) -> tuple[Hand, ...]:
        """The hands that actions command; the paper's do not know what they hold."""
        return hands_of(self.encoding, self.body_poses, holding=self.frames == "auto")

    @cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Blocks, frames and hands as the kernels read them.

        (blocks, 5) of start, size, turns, moves and hand; (frames, 3) of body, turns and whole; (hands, 3) of body,
        position and rotation.
        """
        blocks = [
            (b.start, b.size, b.turns, b.moves, next(i for i, hand in enumerate(self.hands) if b.start in hand.columns))
            for b in self.encoding.blocks
        ]
        frames = [(f.body, f.turns, f.whole) for f in self.selected_frames]
        hands = [(hand.body, hand.position, hand.rotation) for hand in self.hands]
        return np.array(blocks, np.int64), np.array(frames, np.int64), np.array(hands, np.int64)

    def held(self, poses: np.ndarray) -> np.ndarray:
        """(T, hands), the body that each hand holds at the steps of an episode with these poses."""
        commanded = self.action_layout.bodies
        others = [index for index, (name, *_) in enumerate(self.body_poses.bodies) if name not in commanded]
        n_back = max(self.n_action_steps // 4, 1)
        return np.stack([held_bodies(hand, poses, others, n_back) for hand in self.hands], axis=1)

    def turn_sums(self, episode: Episode, poses: np.ndarray) -> np.ndarray:
        """(hands, 3, 3), see `turn_sum`."""
        holds = any(hand.holds for hand in self.hands)
        encoded = self.encoding.encode(episode.actions) if holds else np.empty((0, 0))
        return np.array([turn_sum(hand, encoded, poses) for hand in self.hands])
