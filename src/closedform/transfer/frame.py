"""Frames: the pose of a body, in which a demonstrated chunk can be transferred to the current scene."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import ROTATIONS, Layout
from closedform.geometry.rigid import pose_axes
from closedform.geometry.so3 import columns_about_z

PREFERENCE = 2.0  # how many times less variance makes another frame better than a body's whole pose
N_VOTERS = 10  # neighbors that vote on the frame, each from a different episode if there are enough


@dataclass(frozen=True)
class Frame:
    """A coordinate frame attached to a body, or the world.

    Attributes:
        name: `"world"`, a body's name (its position and rotation), or `"body.position"` (its position alone, with the
            world's axes).
        body: which of the poses of `BodyPoses` it is; -1 for the world.
        turns: whether its axes turn with the body.
        whole: whether it is the whole pose of a body: position and rotation, if any body's rotation is observed.
        bare: whether it is all there is of a body without a rotation, where others have one.
    """

    name: str
    body: int
    turns: bool
    whole: bool
    bare: bool = False


class BodyPoses:
    """Reads the poses of the bodies of an observation that actions could be expressed in.

    A planar pose is (x, y, cos, sin), a spatial one a position and the first two columns of a rotation.

    Args:
        layout: of observations.
        dimension: 2 or 3, that of the actions; None if no frame can change an action.
        commanded: the bodies that actions command.
        identity: whether a hand whose rotation is not commanded counts as one that never turns.
    """

    def __init__(
        self, layout: Layout, dimension: int | None, commanded: tuple[str, ...] = (), *, identity: bool = False
    ):
        self.layout = layout
        self.identity = identity
        self.commanded = commanded
        self.dimension = dimension or 2
        self.bodies: list[tuple[str, slice, slice | None, Encoding | None]] = []
        if dimension is None:
            return
        for body in layout.bodies:
            own = [(entry, columns) for entry, columns in layout.slices() if entry.body == body]
            position = next((columns for e, columns in own if e.kind == "position" and e.size == dimension), None)
            rotation = next(((e, columns) for e, columns in own if e.kind in ROTATIONS), None)
            if position is None:
                continue
            if rotation is None:
                self.bodies.append((body, position, None, None))
            else:
                self.bodies.append((body, position, rotation[1], Encoding(Layout((rotation[0],)))))

    @property
    def width(self) -> int:
        """How many numbers a pose has."""
        return 4 if self.dimension == 2 else 9

    def frames(self) -> tuple[Frame, ...]:
        """The world, then each body; a body that can turn also without its rotation."""
        frames = [Frame("world", -1, turns=False, whole=False)]
        some_turn = any(rotation is not None for _, _, rotation, _ in self.bodies)
        for index, (body, _, rotation, _) in enumerate(self.bodies):
            turns = rotation is not None
            frames.append(Frame(body, index, turns, whole=turns or not some_turn, bare=some_turn and not turns))
            if rotation is not None:
                frames.append(Frame(f"{body}.position", index, turns=False, whole=False))
        return tuple(frames)

    def select(self, choice: str) -> tuple[Frame, ...]:
        """The frames that a policy may use: `"auto"`, or names separated by commas.

        `auto` omits the frames of bodies that the action itself commands. In a hand's own frame the hand's actions
        always agree well, since each begins where the hand is; but a plan that is only relative to the hand never
        corrects the hand's position, and drifts.
        """
        frames = self.frames()
        if choice == "auto":
            return tuple(frame for frame in frames if frame.name.split(".")[0] not in self.commanded)
        by_name = {frame.name: frame for frame in frames}
        names = [name.strip() for name in choice.split(",")]
        for name in names:
            if name not in by_name:
                raise ConfigError(f"unknown frame {name!r}: expected 'auto' or some of {', '.join(by_name)}")
        return tuple(by_name[name] for name in dict.fromkeys(names))

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """(n, D_o) -> (n, bodies, width)."""
        poses = np.zeros((len(observations), len(self.bodies), self.width))
        d = self.dimension
        for index, (_, position, rotation, encoding) in enumerate(self.bodies):
            poses[:, index, :d] = observations[:, position]
            if rotation is None or encoding is None:
                poses[:, index, d] = 1.0
                if d == 3:
                    poses[:, index, 7] = 1.0
            else:
                columns = encoding.encode(observations[:, rotation])
                if d == 3 and columns.shape[1] == 2:  # an angle about z
                    columns = columns_about_z(columns)
                poses[:, index, d:] = columns
        return poses


def frame_axes(frame: Frame, poses: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The rotation (n, d, d) and origin (n, d) of a frame, given the poses (n, bodies, width)."""
    d = dimension
    rotation = np.broadcast_to(np.eye(d), (len(poses), d, d))
    if frame.body < 0:
        return rotation, np.zeros((len(poses), d))
    pose = poses[:, frame.body]
    return pose_axes(pose, d) if frame.turns else rotation, pose[:, :d]


def voters(squared_distances: np.ndarray, episodes: np.ndarray) -> np.ndarray:
    """The nearest neighbors, one per episode, that vote on the frame; if there is only one episode, all from it.

    Consecutive steps agree in every frame because nothing moved between them; only other episodes tell frames apart.

    Args:
        squared_distances: (k,)
        episodes: (k,), the episode of each neighbor.

    Returns:
        Indices into the neighbors, nearest first.
    """
    order = np.argsort(squared_distances, kind="stable")
    _, first = np.unique(episodes[order], return_index=True)
    if len(first) < 2:
        return order[:N_VOTERS]
    return order[np.sort(first)[:N_VOTERS]]


def disagreement(chunks: np.ndarray, squared_distances: np.ndarray) -> float:
    """The weighted variance of chunks (n, T * D) around their mean; near neighbors count more."""
    weights = np.exp(-0.5 * squared_distances / max(float(squared_distances.mean()), 1e-300))
    weights /= weights.sum()
    deviations = chunks - weights @ chunks
    return float(weights @ np.sum(deviations * deviations, axis=1))


def counted(variance: float, frame: Frame, world: float, *, fair: bool) -> float:
    """The variance of chunks in a frame as it counts when frames are compared.

    Among frames that are about as good, the whole pose of a body is preferred: even far from all demonstrations, it
    preserves where a chunk touches the body. So the variance in any other frame counts twice. A body that has no
    rotation has no other pose either: if chunks agree better in its frame than in the world, it counts as a whole one.

    Args:
        variance: in this frame.
        frame: the frame.
        world: the variance in the world's.
        fair: whether a body without a rotation can count as a whole pose among others that have one.
    """
    whole = frame.whole or (fair and frame.bare and is_less(variance, world))
    return variance if whole else PREFERENCE * variance


def is_less(variance: float, other: float) -> bool:
    """Whether a variance is less than another, beyond rounding."""
    return variance < other * (1 - 1e-9) - 1e-12
