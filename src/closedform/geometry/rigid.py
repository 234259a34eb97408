"""Rigid motions of encoded actions, written once for numpy arrays and torch tensors.

Leading axes are arbitrary: the reference has one for neighbors, and the batch planner one more before it for plans.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from array_api_compat import array_namespace, is_torch_array

from closedform.geometry.encoding import Block
from closedform.geometry.so3 import rotation_matrix, two_columns


def pose_axes(pose: Any, dimension: int) -> Any:
    """The rotation matrix of poses: 4 numbers if planar, 9 if spatial. (..., width) -> (..., d, d)."""
    if dimension == 3:
        return rotation_matrix(pose[..., 3:])
    xp = array_namespace(pose)
    cos, sin = pose[..., 2], pose[..., 3]
    return xp.stack([xp.stack([cos, -sin], axis=-1), xp.stack([sin, cos], axis=-1)], axis=-2)


def into_frame(encoded: Any, blocks: Iterable[Block], axes: Any, origin: Any) -> Any:
    """Expresses encoded actions in a frame.

    Args:
        encoded: (..., T, D)
        blocks: the blocks of an action to express in the frame.
        axes, origin: of the frame, (..., d, d) and (..., d).

    Returns:
        (..., T, D)
    """
    result = array_namespace(encoded).asarray(encoded, copy=True)
    for columns, moves in _turning(blocks, origin.shape[-1]):
        vectors = encoded[..., columns] - origin[..., None, :] if moves else encoded[..., columns]
        result[..., columns] = _rows_times(vectors, axes)  # rows times R, which is R^T times columns
    return result


def out_of_frame(encoded: Any, blocks: Iterable[Block], axes: Any, origin: Any) -> Any:
    """The inverse of `into_frame`."""
    xp = array_namespace(encoded)
    result = xp.asarray(encoded, copy=True)
    for columns, moves in _turning(blocks, origin.shape[-1]):
        vectors = _rows_times(encoded[..., columns], xp.matrix_transpose(axes))
        result[..., columns] = vectors + origin[..., None, :] if moves else vectors
    return result


def onto_grasped(
    encoded: Any, position: int, rotation: int, turn: Any, hand: Any, grasped: Any, *, back: bool = False
) -> Any:
    """Converts targets of a hand into targets of its grasped object, or `back`; the grasp is taken as rigid.

    Args:
        encoded: (..., T, D), actions.
        position, rotation: where the hand's position and rotation start in an action; -1 for a rotation that is always
            the identity.
        turn: (3, 3), the commanded axes relative to the observed axes.
        hand, grasped: (..., 9), the poses of the hand and the object at the first step.
    """
    xp = array_namespace(encoded)
    result = xp.asarray(encoded, copy=True)
    places, angles = slice(position, position + 3), slice(rotation, rotation + 6)
    if rotation < 0:
        shift = (grasped[..., :3] - hand[..., :3])[..., None, :]
        result[..., places] += -shift if back else shift
        return result
    axes = rotation_matrix(hand[..., 3:]) @ turn
    offset = xp.einsum("...ji,...j->...i", axes, grasped[..., :3] - hand[..., :3])
    grasp = xp.matrix_transpose(axes) @ rotation_matrix(grasped[..., 3:])
    targets = rotation_matrix(encoded[..., angles])
    if back:
        targets = targets @ xp.matrix_transpose(grasp)[..., None, :, :]
        result[..., places] -= xp.einsum("...tij,...j->...ti", targets, offset)
    else:
        result[..., places] += xp.einsum("...tij,...j->...ti", targets, offset)
        targets = targets @ grasp[..., None, :, :]
    result[..., angles] = two_columns(targets)
    return result


def _turning(blocks: Iterable[Block], dimension: int) -> list[tuple[slice, bool]]:
    """The columns of the blocks that turn in a space of this dimension, and whether they also move."""
    return [
        (slice(block.start, block.start + block.size), block.moves)
        for block in blocks
        if block.turns and block.size == dimension
    ]


def _rows_times(vectors: Any, axes: Any) -> Any:
    """(..., T, d) times (..., d, d); written out for torch, since a GPU is slow at millions of tiny matrix products."""
    if not is_torch_array(vectors):
        return vectors @ axes
    return sum(vectors[..., c, None] * axes[..., None, c, :] for c in range(vectors.shape[-1]))
