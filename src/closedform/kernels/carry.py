"""Compiled frames: chunks of demonstrations in a body's frame, and the frame in which they agree."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.jit import jit
from closedform.retrieval.frame import CLEARLY, N_AGREEING


@jit()
def axes_of(pose, turns, rotation):
    """Writes the rotation (d, d) of a pose: planar if it has four numbers, spatial if nine."""
    d = rotation.shape[0]
    for a in range(d):
        for b in range(d):
            rotation[a, b] = 1.0 if a == b else 0.0
    if not turns:
        return
    if d == 2:
        rotation[0, 0] = rotation[1, 1] = pose[2]
        rotation[0, 1], rotation[1, 0] = -pose[3], pose[3]
        return
    x, y = pose[3:6], pose[6:9]
    length = max(math.sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2]), 1e-12)
    for a in range(3):
        rotation[a, 0] = x[a] / length
    along = rotation[0, 0] * y[0] + rotation[1, 0] * y[1] + rotation[2, 0] * y[2]
    length = 0.0
    for a in range(3):
        rotation[a, 1] = y[a] - along * rotation[a, 0]
        length += rotation[a, 1] * rotation[a, 1]
    length = max(math.sqrt(length), 1e-12)
    for a in range(3):
        rotation[a, 1] /= length
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        rotation[a, 2] = rotation[b, 0] * rotation[c, 1] - rotation[c, 0] * rotation[b, 1]


@jit()
def carry_chunk(actions, start, n_action_steps, blocks, frame, poses, rotation, offset, scale, chunk):
    """Writes the normalised chunk that begins at `start`, in a frame, to `chunk` (N_a * D,).

    Args:
        blocks: (n_blocks, 4) of start, size, turns, moves.
        frame: (3,) of body, turns, whole; body -1 is the world.
        poses: (bodies, width), at the chunk's first step.
        rotation: (d, d), scratch.
        offset, scale: (D,)
    """
    width, d = actions.shape[1], rotation.shape[0]
    for t in range(n_action_steps):
        for c in range(width):
            chunk[t * width + c] = actions[start + t, c]
    if frame[0] >= 0:
        pose = poses[frame[0]]
        axes_of(pose, frame[1], rotation)
        for block in range(blocks.shape[0]):
            first, size, turns, moves = blocks[block]
            if not turns or size != d:
                continue
            for t in range(n_action_steps):
                for b in range(d):
                    total = 0.0
                    for a in range(d):
                        value = actions[start + t, first + a]
                        if moves:
                            value -= pose[a]
                        total += value * rotation[a, b]
                    chunk[t * width + first + b] = total
    for t in range(n_action_steps):
        for c in range(width):
            chunk[t * width + c] = (chunk[t * width + c] - offset[c]) * scale[c]


@jit()
def find_voters(rows, squared, row_episodes, voters):
    """The reference's `voters`: nearest neighbours, one of each episode unless there is but one. Returns how many."""
    k = squared.size
    alone = True
    for i in range(1, k):
        if row_episodes[rows[i]] != row_episodes[rows[0]]:
            alone = False
            break
    count = 0
    while count < min(voters.size, k):
        best = -1
        for i in range(k):
            if best >= 0 and squared[i] >= squared[best]:
                continue
            taken = False
            for j in range(count):
                other = voters[j]
                if other == i or (not alone and row_episodes[rows[other]] == row_episodes[rows[i]]):
                    taken = True
                    break
            if not taken:
                best = i
        if best < 0:
            break
        voters[count] = best
        count += 1
    return count


@jit()
def choose_frame(
    rows, squared, actions, starts, row_episodes, poses, n_action_steps, blocks, frames, offset, scale, weight, rotation
):
    """The frame in which the voters' chunks have the smallest `disagreement`; of equals the first."""
    n_frames, width = offset.shape
    if n_frames == 1:
        return 0
    voters = np.empty(N_AGREEING, np.int64)
    count = find_voters(rows, squared, row_episodes, voters)
    mean_squared = 0.0
    for v in range(count):
        mean_squared += squared[voters[v]] / count
    mean_squared = max(mean_squared, 1e-300)
    weights = np.empty(count)
    total = 0.0
    for v in range(count):
        weights[v] = math.exp(-0.5 * squared[voters[v]] / mean_squared)
        total += weights[v]
    chunks = np.empty((count, n_action_steps * width))
    best, least = 0, np.inf
    for f in range(n_frames):
        for v in range(count):
            row = rows[voters[v]]
            carry_chunk(
                actions,
                starts[row],
                n_action_steps,
                blocks,
                frames[f],
                poses[row],
                rotation,
                offset[f],
                scale[f],
                chunks[v],
            )
        variance = 0.0
        for c in range(chunks.shape[1]):
            mean = 0.0
            for v in range(count):
                mean += weights[v] / total * chunks[v, c]
            share = weight[c % width] / (scale[f, c % width] * scale[f, c % width])
            for v in range(count):
                deviation = chunks[v, c] - mean
                variance += share * weights[v] / total * deviation * deviation
        if not frames[f, 2]:
            variance *= CLEARLY
        if variance < least * (1.0 - 1e-9) - 1e-12:
            best, least = f, variance
    return best
