"""Transfer: how a demonstrated chunk applies to the current scene."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from closedform import kernels
from closedform.demos.episode import Episode
from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import Layout
from closedform.geometry.rigid import into_frame, onto_grasped, out_of_frame
from closedform.kernels.records import Transfers
from closedform.transfer.action_scaling import ActionScaling, action_scaling
from closedform.transfer.frame import (
    N_VOTERS,
    PREFERENCE,
    BodyPoses,
    Frame,
    counted,
    disagreement,
    frame_axes,
    is_less,
    voters,
)
from closedform.transfer.hand import LOOSE, Hand, hands_of, held_bodies, rotation_near, turn_sum

if TYPE_CHECKING:
    from closedform.store.store import Store

_UNDECIDED = (
    1e-5  # of the step between two values: so close to the middle, rounding must not decide; it is the lower one
)


@dataclass(frozen=True)
class TransferSpec:
    """What layouts say about actions: how they are encoded, and in which frames and hands they can be transferred.

    Attributes:
        observation_layout, action_layout: of the demonstrations.
        frames: the frames that actions can be expressed in, `auto` or names.
        n_action_steps: actions of a chunk.
        identity: whether a hand whose rotation is not commanded never turns, and can grasp; else it grasps nothing.
        position_frames: whether bodies without a rotation can count as whole poses among others; only if frames are
            `auto`.
    """

    observation_layout: Layout
    action_layout: Layout
    frames: str
    n_action_steps: int
    identity: bool = False
    position_frames: bool = False

    def __post_init__(self) -> None:
        self.action_layout.check_commands()

    @cached_property
    def encoding(self) -> Encoding:
        """The encoding of actions."""
        return Encoding(self.action_layout)

    @cached_property
    def body_poses(self) -> BodyPoses:
        """The bodies whose frames actions can be expressed in."""
        layouts = self.observation_layout, self.encoding.dimension, self.action_layout.bodies
        return BodyPoses(*layouts, identity=self.identity)

    @cached_property
    def recorded_poses(self) -> BodyPoses:
        """The same without symmetries: a body that looks the same when it is turned is seen to turn with a hand."""
        if self.observation_layout.asymmetric == self.observation_layout:
            return self.body_poses
        layouts = self.observation_layout.asymmetric, self.encoding.dimension, self.action_layout.bodies
        return BodyPoses(*layouts, identity=self.identity)

    def poses_of(self, episodes: Sequence[Episode]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The poses of bodies at each step of episodes, with and without symmetries."""
        recorded = [self.recorded_poses(episode.observations) for episode in episodes]
        if self.recorded_poses is self.body_poses:
            return recorded, recorded
        return [self.body_poses(episode.observations) for episode in episodes], recorded

    @cached_property
    def selected_frames(self) -> tuple[Frame, ...]:
        """The requested frames."""
        return self.body_poses.select(self.frames)

    @property
    def is_fair(self) -> bool:
        """Whether bodies without a rotation can count as whole poses; the world is then the first frame."""
        return self.position_frames and self.frames == "auto"

    @cached_property
    def hands(self) -> tuple[Hand, ...]:
        """The hands that actions command; in the paper's policy, grasps are not detected."""
        return hands_of(self.encoding, self.body_poses, holding=self.frames == "auto")

    @cached_property
    def tables(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Blocks, frames and hands as the kernels read them.

        (blocks, 5) of start, size, turns, moves and hand; (frames, 3) of body, turns and 1 if whole or 2 if bare;
        (hands, 3) of body, position and rotation.
        """
        blocks = [
            (b.start, b.size, b.turns, b.moves, next(i for i, hand in enumerate(self.hands) if b.start in hand.columns))
            for b in self.encoding.blocks
        ]
        frames = [(f.body, f.turns, 2 if self.is_fair and f.bare else f.whole) for f in self.selected_frames]
        hands = [(hand.body, hand.position, hand.rotation) for hand in self.hands]
        return np.array(blocks, np.int64), np.array(frames, np.int64), np.array(hands, np.int64)

    def held(self, poses: np.ndarray) -> np.ndarray:
        """(T, hands), the body that each hand has grasped at the steps of an episode with these poses."""
        commanded = self.action_layout.bodies
        others = [index for index, (name, *_) in enumerate(self.body_poses.bodies) if name not in commanded]
        n_back = max(self.n_action_steps // 4, 1)
        return np.stack([held_bodies(hand, poses, others, n_back) for hand in self.hands], axis=1)

    def turn_sums(self, episode: Episode, poses: np.ndarray) -> np.ndarray:
        """(hands, 3, 3), see `turn_sum`."""
        holds = any(hand.holds for hand in self.hands)
        encoded = self.encoding.encode(episode.actions) if holds else np.empty((0, 0))
        return np.array([turn_sum(hand, encoded, poses) for hand in self.hands])


class Bounded(NamedTuple):
    """A binary entry or an angle of actions: its numbers, and the lowest and highest value of each of them."""

    kind: str
    columns: slice
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Transfer:
    """Transfers chunks from where they were demonstrated to the current scene, and back to robot actions.

    How a chunk is transferred is a *choice*, (hands, 2): of each hand the frame, and the body it has grasped or -1.
    Transferred chunks are normalized, to about [-1, 1], for diffusion.

    Attributes:
        spec: what layouts say.
        turns: (hands, 3, 3), see `turn_sum`.
        scaling: how actions in each frame are normalized.
        bounded: the action entries that stay within the demonstrated values.
    """

    spec: TransferSpec
    turns: np.ndarray
    scaling: ActionScaling
    bounded: tuple[Bounded, ...]

    @classmethod
    def of(cls, spec: TransferSpec, store: Store) -> Transfer:
        """Of demonstrations."""
        scaling = action_scaling(spec, store.action_statistics)  # raises an error if actions cannot be scaled
        low, high = store.action_range
        return cls(
            spec=spec,
            turns=np.array([rotation_near(turn) for turn in store.turn_sums.sum(0)]),
            scaling=scaling,
            bounded=tuple(
                Bounded(entry.kind, columns, low[columns], high[columns])
                for entry, columns in spec.action_layout.slices()
                if entry.kind in ("binary", "angle")
            ),
        )

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The frames to choose from."""
        return self.spec.selected_frames

    @property
    def hands(self) -> tuple[Hand, ...]:
        """The hands, each transferred separately."""
        return self.spec.hands

    @property
    def encoding(self) -> Encoding:
        """Of actions."""
        return self.spec.encoding

    @property
    def chunk_size(self) -> int:
        """How many numbers an encoded chunk has."""
        return self.spec.n_action_steps * self.encoding.width

    @cached_property
    def record(self) -> Transfers:
        """As the compiled planners read it."""
        return Transfers(
            self.spec.n_action_steps,
            *self.spec.tables,
            self.turns,
            self.spec.body_poses.dimension,
            *self.scaling,
            n_voters=N_VOTERS,
            preference=PREFERENCE,
            slack=self.slack,
        )

    @cached_property
    def slack(self) -> np.ndarray:
        """(hands,), how much farther from a hand than in demonstrated grasps a body may be while it is grasped."""
        world = self.world[0, 0]
        reach = [1 / self.scaling.scale[world, h.position : h.position + 3].min() if h.holds else 0 for h in self.hands]
        return LOOSE * np.array(reach, np.float64)

    @cached_property
    def world(self) -> np.ndarray:
        """(hands, 2), the choice that transfers nothing: each hand in the world, or else in the first frame."""
        world = next((i for i, frame in enumerate(self.frames) if frame.body < 0), 0)
        choice = np.array([(world, -1)] * len(self.hands))
        choice.flags.writeable = False
        return choice

    def is_world(self, choice: np.ndarray) -> bool:
        """Whether nothing is transferred: every hand is in the world and has grasped nothing."""
        return all(held < 0 and self.frames[frame].body < 0 for frame, held in choice.tolist())

    def names(self, choice: np.ndarray) -> tuple[str, str]:
        """The frames of a choice, such as `lid / trash`, and the grasped bodies, such as `nothing / hammer`, or ""."""
        pairs, bodies = choice.tolist(), self.spec.body_poses.bodies
        frames = " / ".join([self.frames[frame].name for frame, _ in pairs])
        if all(body < 0 for _, body in pairs):
            return frames, ""
        return frames, " / ".join([bodies[body][0] if body >= 0 else "nothing" for _, body in pairs])

    def choose(self, store: Store, rows: np.ndarray, squared: np.ndarray, poses: np.ndarray) -> np.ndarray:
        """The choice for some rows: for each hand the grasped body, and the frame in which chunks vary least.

        A body is grasped if most voters have grasped it, and it is now about as near to the hand as in their grasps. It
        moves with the hand, so its frame is not considered; instead, the targets are those of the grasped body. Among
        equally good frames the first is chosen.

        Args:
            store: the store of the rows.
            rows, squared: (k,), neighbors and their squared distances; the nearest vote.
            poses: (bodies, width), now.
        """
        if len(self.frames) == 1 and not any(hand.holds for hand in self.hands):
            return np.array([(0, -1)] * len(self.hands))
        voting = voters(squared, store.row_episodes[rows])
        choice = self.world.copy()
        for h, hand in enumerate(self.hands):
            choice[h, 1] = self._grasped(store, rows[voting], h, poses)
            least = world = np.inf
            for f, frame in enumerate(self.frames):
                if frame.body >= 0 and frame.body == choice[h, 1]:
                    continue
                tried = choice.copy()
                tried[h, 0] = f
                chunks = self.chunks(store, rows[voting], tried) * np.sqrt(self.scaling.weight)
                chunks = chunks[..., hand.columns].reshape(len(voting), -1)
                variance = disagreement(chunks, squared[voting])
                if frame.body < 0:
                    world = variance
                variance = counted(variance, frame, world, fair=self.spec.is_fair)
                if is_less(variance, least):
                    choice[h, 0], least = f, variance
        return choice

    def _grasped(self, store: Store, voting: np.ndarray, h: int, poses: np.ndarray) -> int:
        """The body that a hand has grasped, as the voters say and the poses allow; -1 for none."""
        held = store.held[voting][:, h]
        body, hand = _majority(held), self.hands[h].body
        if body < 0:
            return -1
        then = store.poses[voting[held == body]]
        farthest = np.linalg.norm(then[:, hand, :3] - then[:, body, :3], axis=1).max()
        now = np.linalg.norm(poses[hand, :3] - poses[body, :3])
        return body if now <= farthest + self.slack[h] else -1

    def chunks(self, store: Store, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The encoded chunks of some rows, transferred. (m,), (hands, 2) -> (m, N_a, D)."""
        return self.into(store.encoded_chunks(rows), store.poses[rows], choice)

    def normalized_chunks(self, store: Store, rows: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The same, normalized for diffusion, (m, N_a * D)."""
        offset, scale = self.normalization(choice)
        return ((self.chunks(store, rows, choice) - offset) * scale).reshape(len(rows), -1)

    def normalization(self, choice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Offset and scale (D,) of transferred encoded actions: normalized = (encoded - offset) * scale."""
        if len(choice) == 1:
            frame = choice[0, 0]
            return self.scaling.offset[frame], self.scaling.scale[frame]
        offset, scale = (np.empty(self.encoding.width) for _ in range(2))
        for hand, (frame, _) in zip(self.hands, choice, strict=True):
            offset[hand.columns] = self.scaling.offset[frame, hand.columns]
            scale[hand.columns] = self.scaling.scale[frame, hand.columns]
        return offset, scale

    def into(self, encoded: np.ndarray, poses: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """Expresses each hand's targets in its frame, as those of the body it has grasped.

        Args:
            encoded: (n, T, D)
            poses: (n, bodies, width), at the first step.
            choice: (hands, 2)
        """
        if self.is_world(choice):
            return encoded
        result = encoded.copy()
        for hand, turn, (frame, held) in zip(self.hands, self.turns, choice, strict=True):
            chunks = encoded if held < 0 else _onto(encoded, hand, held, turn, poses)
            axes = frame_axes(self.frames[frame], poses, self.spec.body_poses.dimension)
            result[..., hand.columns] = into_frame(chunks, self.encoding.blocks, *axes)[..., hand.columns]
        return result

    def out_of(self, encoded: np.ndarray, poses: np.ndarray, choice: np.ndarray) -> np.ndarray:
        """The inverse of `into`."""
        if self.is_world(choice):
            return encoded
        result = encoded.copy()
        for hand, turn, (frame, held) in zip(self.hands, self.turns, choice, strict=True):
            axes = frame_axes(self.frames[frame], poses, self.spec.body_poses.dimension)
            chunks = out_of_frame(encoded, self.encoding.blocks, *axes)
            if held >= 0:
                chunks = _onto(chunks, hand, held, turn, poses, back=True)
            result[..., hand.columns] = chunks[..., hand.columns]
        return result

    def back(self, chunks: np.ndarray, choices: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """Encoded actions in the current scenes for normalized chunks.

        Args:
            chunks: (B, n, N_a * D)
            choices: (B, hands, 2), how they were transferred.
            observations: (B, D_o), of the current scenes.

        Returns:
            (B, n, N_a * D)
        """
        back = self._back_compiled if kernels.enabled() else self._back_reference
        return back(chunks, choices, observations).reshape(chunks.shape)

    def decoded(self, encoded: np.ndarray) -> np.ndarray:
        """Decodes actions (B, n, N_a, D); bounded entries stay within the demonstrated values."""
        actions = self.encoding.decode(encoded)
        for kind, columns, low, high in self.bounded:
            values = actions[..., columns]
            if kind == "binary":
                actions[..., columns] = np.where(values * 2 > low + high + _UNDECIDED * (high - low), high, low)
            else:  # an angle, without jumps and within the demonstrated turns
                values = np.unwrap(values, axis=2)
                turns = np.round((values.mean(2, keepdims=True) - (low + high) / 2) / (2 * np.pi))
                actions[..., columns] = values - 2 * np.pi * turns
        return actions

    def _back_reference(self, chunks: np.ndarray, choices: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """Encoded actions in the current scenes, one choice after the other."""
        size, n_samples, _ = chunks.shape
        encoded = chunks.reshape(size, n_samples * self.spec.n_action_steps, self.encoding.width).copy()
        for choice in choices if size == 1 else np.unique(choices, axis=0):
            chosen = slice(None) if size == 1 else (choices == choice).all((1, 2))
            offset, scale = self.normalization(choice)
            encoded[chosen] = encoded[chosen] / scale + offset
            if not self.is_world(choice):
                encoded[chosen] = self.out_of(encoded[chosen], self.spec.body_poses(observations[chosen]), choice)
        return encoded

    def _back_compiled(self, chunks: np.ndarray, choices: np.ndarray, observations: np.ndarray) -> np.ndarray:
        """The same in one compiled pass."""
        from closedform.kernels.transfer import transfer_back

        encoded = np.array(chunks, order="C")
        transfer_back(encoded, choices, self.poses(observations), self.record)
        return encoded

    @cached_property
    def moves(self) -> bool:
        """Whether chunks can be transferred at all."""
        return any(frame.body >= 0 for frame in self.frames) or any(hand.holds for hand in self.hands)

    def poses(self, observations: np.ndarray) -> np.ndarray:
        """The poses (B, bodies, width) that chunks are transferred to; of no bodies if nothing can be transferred."""
        return self.spec.body_poses(observations) if self.moves else np.empty((len(observations), 0, 0))


def _majority(held: np.ndarray) -> int:
    """The body grasped in more than half of some demonstrations; -1 if there is none."""
    bodies, counts = np.unique(held, return_counts=True)
    return int(bodies[np.argmax(counts)]) if 2 * counts.max() > len(held) else -1


def _onto(
    encoded: np.ndarray, hand: Hand, held: int, turn: np.ndarray, poses: np.ndarray, *, back: bool = False
) -> np.ndarray:
    return onto_grasped(encoded, hand.position, hand.rotation, turn, poses[:, hand.body], poses[:, held], back=back)
