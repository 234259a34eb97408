"""Compiled transfer: chunks in other frames and of grasped objects, and the choice of the frame."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.jit import jit


@jit()
def _axes_of(pose, turns, rotation):
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
def _grasp_of(hand, held, turn):
    """The offset (3,) and rotation (3, 3) of a grasped object relative to the hand's commanded axes.

    Args:
        hand, held: (9,), poses of the hand and of the grasped object.
        turn: (3, 3), commanded axes relative to the observed axes.
    """
    observed, body, axes = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    _axes_of(hand, True, observed)
    _axes_of(held, True, body)
    grasp, offset = np.zeros((3, 3)), np.zeros(3)
    for a in range(3):
        for b in range(3):
            axes[a, b] = 0.0
            for c in range(3):
                axes[a, b] += observed[a, c] * turn[c, b]
    for a in range(3):
        for c in range(3):
            offset[a] += axes[c, a] * (held[c] - hand[c])
            for b in range(3):
                grasp[a, b] += axes[c, a] * body[c, b]
    return offset, grasp


@jit()
def _shift(chunk, n_action_steps, width, position, hand, held, sign):
    """Moves the targets of a hand that never turns to the grasped object, or back."""
    for t in range(n_action_steps):
        for a in range(3):
            chunk[t * width + position + a] += sign * (held[a] - hand[a])


@jit()
def onto_grasped(chunk, n_action_steps, width, position, turned, hand, held, turn):
    """Converts targets of a hand into those of the object it grasps, like the reference's `onto_grasped`.

    Args:
        chunk: (N_a * D,), encoded actions.
        width: D.
        position, turned: where the hand's position and rotation begin in an action.
        hand, held: (9,), poses of the hand and of the grasped object, at the first step.
        turn: (3, 3), commanded axes relative to the observed axes.
    """
    if turned < 0:
        _shift(chunk, n_action_steps, width, position, hand, held, 1.0)
        return
    target, pose = np.empty((3, 3)), np.empty(9)
    offset, grasp = _grasp_of(hand, held, turn)
    for t in range(n_action_steps):
        first, second = t * width + position, t * width + turned
        for a in range(6):
            pose[3 + a] = chunk[second + a]
        _axes_of(pose, True, target)
        for a in range(3):
            for c in range(3):
                chunk[first + a] += target[a, c] * offset[c]
            for b in range(2):
                total = 0.0
                for c in range(3):
                    total += target[a, c] * grasp[c, b]
                chunk[second + 3 * b + a] = total


@jit()
def _off_grasped(chunk, n_action_steps, width, position, turned, hand, held, turn):
    """The inverse of `onto_grasped`: targets of the grasped object become those of the hand."""
    if turned < 0:
        _shift(chunk, n_action_steps, width, position, hand, held, -1.0)
        return
    target, commanded, pose = np.empty((3, 3)), np.empty((3, 3)), np.empty(9)
    offset, grasp = _grasp_of(hand, held, turn)
    for t in range(n_action_steps):
        first, second = t * width + position, t * width + turned
        for a in range(6):
            pose[3 + a] = chunk[second + a]
        _axes_of(pose, True, target)
        for a in range(3):
            for b in range(3):
                commanded[a, b] = 0.0
                for c in range(3):
                    commanded[a, b] += target[a, c] * grasp[b, c]
            for c in range(3):
                chunk[first + a] -= commanded[a, c] * offset[c]
            for b in range(2):
                chunk[second + 3 * b + a] = commanded[a, b]


@jit()
def transfer_back(chunks, choices, poses, transfers):
    """Converts normalized chunks, in place, into encoded actions in the current scene: `transfer_chunk` backward.

    Args:
        chunks: (B, n, N_a * D)
        choices: (B, H, 2), how they were transferred.
        poses: (B, bodies, pose width), current; no bodies if nothing was transferred.
        transfers: `Transfers`.
    """
    blocks, hands, frames = transfers.blocks, transfers.hands, transfers.frames
    n_action_steps, offset, scale, d = transfers.n_action_steps, transfers.offset, transfers.scale, transfers.dimension
    width = offset.shape[1]
    rotation, moved = np.empty((d, d)), np.empty(d)
    for b in range(chunks.shape[0]):
        for n in range(chunks.shape[1]):
            chunk = chunks[b, n]
            for block in range(blocks.shape[0]):
                first, size, turning, moves, hand = blocks[block]
                f = choices[b, hand, 0]
                for t in range(n_action_steps):
                    for c in range(first, first + size):
                        chunk[t * width + c] = chunk[t * width + c] / scale[f, c] + offset[f, c]
                if turning and size == d and frames[f, 0] >= 0:
                    pose = poses[b, frames[f, 0]]
                    _axes_of(pose, frames[f, 1], rotation)
                    for t in range(n_action_steps):
                        at = t * width + first
                        for a in range(d):
                            moved[a] = pose[a] if moves else 0.0
                            for c in range(d):
                                moved[a] += rotation[a, c] * chunk[at + c]
                        for a in range(d):
                            chunk[at + a] = moved[a]
            for hand in range(hands.shape[0]):
                held = choices[b, hand, 1]
                if held >= 0:
                    body, position, turned = hands[hand]
                    turn = transfers.turns[hand]
                    _off_grasped(chunk, n_action_steps, width, position, turned, poses[b, body], poses[b, held], turn)


@jit()
def transfer_chunk(rows, row, transfers, choice, rotation, chunk):
    """Writes the chunk of a row, transferred and normalized, to `chunk` (N_a * D,).

    Args:
        rows: `Rows`.
        row: which of them.
        transfers: `Transfers`.
        choice: (H, 2) of frame and grasped body.
        rotation: (d, d), scratch.
        chunk: where to.
    """
    actions, start, poses = rows.actions, rows.starts[row], rows.poses[row]
    blocks, hands, frames, n_action_steps = (
        transfers.blocks,
        transfers.hands,
        transfers.frames,
        transfers.n_action_steps,
    )
    offset, scale = transfers.offset, transfers.scale
    width, d = actions.shape[1], rotation.shape[0]
    for t in range(n_action_steps):
        for c in range(width):
            chunk[t * width + c] = actions[start + t, c]
    for hand in range(hands.shape[0]):
        held = choice[hand, 1]
        if held >= 0:
            body, position, turned = hands[hand]
            turn = transfers.turns[hand]
            onto_grasped(chunk, n_action_steps, width, position, turned, poses[body], poses[held], turn)
    turned_to = -2
    for block in range(blocks.shape[0]):
        first, size, turning, moves, hand = blocks[block]
        f = choice[hand, 0]
        if turning and size == d and frames[f, 0] >= 0:
            pose = poses[frames[f, 0]]
            if turned_to != f:
                _axes_of(pose, frames[f, 1], rotation)
                turned_to = f
            for t in range(n_action_steps):
                at = t * width + first
                x = chunk[at] - pose[0] if moves else chunk[at]
                y = chunk[at + 1] - pose[1] if moves else chunk[at + 1]
                if d == 2:
                    chunk[at] = x * rotation[0, 0] + y * rotation[1, 0]
                    chunk[at + 1] = x * rotation[0, 1] + y * rotation[1, 1]
                else:
                    z = chunk[at + 2] - pose[2] if moves else chunk[at + 2]
                    for b in range(3):
                        chunk[at + b] = x * rotation[0, b] + y * rotation[1, b] + z * rotation[2, b]
        for t in range(n_action_steps):
            for c in range(first, first + size):
                chunk[t * width + c] = (chunk[t * width + c] - offset[f, c]) * scale[f, c]


@jit()
def find_voters(rows, squared, row_episodes, voters):
    """The reference's `voters`: nearest neighbors, one per episode unless there is only one. Returns how many."""
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
def _find_grasped(rows, voters, count, held, hand):
    """The body that more than half of the voters have grasped with a hand; -1 if there is none."""
    for v in range(count):
        body, votes = held[rows[voters[v]], hand], 0
        for u in range(count):
            if held[rows[voters[u]], hand] == body:
                votes += 1
        if 2 * votes > count:
            return body
    return -1


@jit()
def _apart(poses, hand, body):
    """The distance between a hand and a body in space."""
    total = 0.0
    for a in range(3):
        total += (poses[hand, a] - poses[body, a]) ** 2
    return math.sqrt(total)


@jit()
def _is_near(rows, neighbors, voters, count, poses, h, hand, held, slack):
    """Whether a body is now about as near to a hand as in the grasps of the voters."""
    farthest = 0.0
    for v in range(count):
        row = neighbors[voters[v]]
        if rows.held[row, h] == held:
            farthest = max(farthest, _apart(rows.poses[row], hand, held))
    return _apart(poses, hand, held) <= farthest + slack


@jit()
def choose_transfer(rows, neighbors, squared, poses, transfers, rotation, choice):
    """Fills `choice` (H, 2): the body each hand has grasped, and the frame in which the voters' chunks agree best.

    Args:
        rows: `Rows`.
        neighbors, squared: (k,), which of them are near, and their squared distances.
        poses: (bodies, pose width), current.
        transfers: `Transfers`.
        rotation: (d, d), scratch.
        choice: where to.
    """
    blocks, frames, hands, n_action_steps = (
        transfers.blocks,
        transfers.frames,
        transfers.hands,
        transfers.n_action_steps,
    )
    scale, weight = transfers.scale, transfers.weight
    n_frames, width = scale.shape
    n_hands = hands.shape[0]
    world = 0
    for f in range(n_frames - 1, -1, -1):
        if frames[f, 0] < 0:
            world = f
    holding = False
    for h in range(n_hands):
        choice[h, 0], choice[h, 1] = world, -1
        holding = holding or (hands[h, 0] >= 0 and hands[h, 1] >= 0)
    if n_frames == 1 and not holding:
        return
    voters = np.empty(transfers.n_voters, np.int64)
    count = find_voters(neighbors, squared, rows.episodes, voters)
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
    for h in range(n_hands):
        held = _find_grasped(neighbors, voters, count, rows.held, h)
        if held >= 0 and not _is_near(rows, neighbors, voters, count, poses, h, hands[h, 0], held, transfers.slack[h]):
            held = -1
        choice[h, 1] = held
        best, least, in_world = choice[h, 0], np.inf, np.inf
        for f in range(n_frames):
            if frames[f, 0] >= 0 and frames[f, 0] == choice[h, 1]:
                continue
            choice[h, 0] = f
            for v in range(count):
                transfer_chunk(rows, neighbors[voters[v]], transfers, choice, rotation, chunks[v])
            variance = 0.0
            for block in range(blocks.shape[0]):
                if blocks[block, 4] != h:
                    continue
                for c in range(blocks[block, 0], blocks[block, 0] + blocks[block, 1]):
                    share = weight[c] / (scale[f, c] * scale[f, c])
                    if share == 0.0:
                        continue
                    for t in range(n_action_steps):
                        mean = 0.0
                        for v in range(count):
                            mean += weights[v] / total * chunks[v, t * width + c]
                        for v in range(count):
                            deviation = chunks[v, t * width + c] - mean
                            variance += share * weights[v] / total * deviation * deviation
            if frames[f, 0] < 0:
                in_world = variance
            if frames[f, 2] == 0 or (frames[f, 2] == 2 and not variance < in_world * (1.0 - 1e-9) - 1e-12):
                variance *= transfers.preference
            if variance < least * (1.0 - 1e-9) - 1e-12:
                best, least = f, variance
        choice[h, 0] = best
