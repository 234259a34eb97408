"""Worlds of known layouts, and data that has none, for tests of what is found in demonstrations."""

import numpy as np

from closedform import Demos
from closedform.geometry.so3 import matrix_of_axis_angle, quaternion_of, two_columns


def smooth(rng: np.random.Generator, n_steps: int, width: int, scale: float = 1.0) -> np.ndarray:
    """Random paths without jumps. (n_steps, width)"""
    path = np.cumsum(np.cumsum(rng.normal(size=(n_steps, width)), 0) * 0.02, 0)
    return scale * (path - path[:1]) / max(np.abs(path - path[:1]).max(), 1e-9) + rng.normal(size=width) * scale * 0.1


def stacked_pick(rng: np.random.Generator, n_episodes: int = 12, order: str = "xyzw", goal: bool = True) -> Demos:
    """A hand that goes to an object and carries it to a goal, in the 39 numbers of Meta-World.

    The hand's position, how open it is, the object's position and quaternion, seven zeros for a second object, the same
    18 numbers a step ago, the goal. An action is by how much the hand's target moves, in centimeters, and the gripper.
    """
    episodes = []
    for _ in range(n_episodes):
        hand = np.array([0.0, 0.6, 0.2]) + rng.normal(size=3) * 0.02
        place = np.array([rng.uniform(-0.2, 0.2), rng.uniform(0.5, 0.8), 0.02])
        wanted = np.array([rng.uniform(-0.2, 0.2), rng.uniform(0.5, 0.8), rng.uniform(0.1, 0.3)])
        target, yaw, held, opened = hand.copy(), rng.uniform(-2, 2), False, 1.0
        rows, actions, last = [], [], None
        for _ in range(140):
            quaternion = np.array([0, 0, np.sin(yaw / 2), np.cos(yaw / 2)])
            if order == "wxyz":
                quaternion = np.roll(quaternion, 1)
            frame = np.concatenate([hand, [opened], place, quaternion, np.zeros(7)])
            rows.append(np.concatenate([frame, frame if last is None else last, wanted if goal else np.zeros(3)]))
            last = frame
            to = wanted if held else place
            action = np.clip(np.append(10 * (to - hand), 1.0 if held else -1.0) + rng.normal(size=4) * 0.1, -1, 1)
            actions.append(action)
            target += 0.01 * action[:3]
            step = 0.3 * (target - hand)
            hand = hand + step
            if held:
                place, yaw = place + step, yaw + 0.02
            elif np.linalg.norm(hand - place) < 0.02:
                held, opened = True, 0.4
        episodes.append((np.array(rows), np.array(actions)))
    return Demos(episodes)


def poses(rng: np.random.Generator, kind: str, n_episodes: int = 8, n_steps: int = 90) -> Demos:
    """A hand that tumbles through space after its targets; both rotations are written as one kind.

    The hand's position and rotation are observed, and a number more; targets of both are commanded.
    """
    episodes = []
    for _ in range(n_episodes):
        path = smooth(rng, n_steps + 3, 3, 0.3)
        turns = smooth(rng, n_steps + 3, 3, 2.0) + rng.normal(size=3)
        axes = matrix_of_axis_angle(turns)
        quaternion = quaternion_of(axes)
        written = {
            "quaternion": quaternion,
            "quaternion_wxyz": np.roll(quaternion, 1, -1),
            "rotation6d": two_columns(axes),
            "rotation6d_rows": two_columns(np.swapaxes(axes, 1, 2)),
        }
        number = smooth(rng, n_steps, 1)
        rows = np.concatenate([path[:n_steps], written[kind][:n_steps], number], 1)
        actions = np.concatenate([path[3:], written["rotation6d" if "6d" in kind else kind][3:]], 1)
        episodes.append((rows, actions))
    return Demos(episodes)


def joints(rng: np.random.Generator, how: str, n_joints: int = 7, extra: int = 21, n_episodes: int = 10) -> Demos:
    """An arm of which all joints are commanded, as targets or as changes; and other joints that are only observed."""
    episodes = []
    for _ in range(n_episodes):
        path = smooth(rng, 121, n_joints + extra, 1.5)
        now, after = path[:-1], path[1:]
        command = after[:, :n_joints] if how == "target" else 20 * (after - now)[:, :n_joints]
        episodes.append((now, command))
    return Demos(episodes)


def handwriting(rng: np.random.Generator, how: str, n_episodes: int = 7, n_steps: int = 200) -> Demos:
    """A planar path whose next point, or whose velocity, is the action."""
    episodes = []
    time = np.linspace(0, 1, n_steps)[:, None]
    for _ in range(n_episodes):
        bend = np.array([np.sin(3 * time), np.cos(4 * time)])[..., 0].T
        path = 40 * (1 - time) * (bend + rng.normal(size=2) * 0.1)
        actions = path[1:] if how == "next" else np.diff(path, axis=0) / 0.01
        episodes.append((path[:-1], actions))
    return Demos(episodes)


def door(rng: np.random.Generator, n_episodes: int = 15, n_steps: int = 150) -> Demos:
    """A hand of 27 joints that goes to a handle and pulls it; the palm, the handle and their difference are observed.

    Joint targets are commanded in shares of each joint's range.
    """
    episodes = []
    for _ in range(n_episodes):
        angles = smooth(rng, n_steps + 1, 27)
        start = np.array([0.0, 0.0, 0.2])
        handle = np.array([rng.uniform(-0.3, 0.3), rng.uniform(0.2, 0.4), 0.3])
        along = np.minimum(np.linspace(0, 1.5, n_steps), 1)[:, None]
        pulled = np.maximum(np.linspace(-0.4, 0.2, n_steps), 0)[:, None] * np.array([1, 0.5, 0])
        palm = start + along * (handle - start) + pulled + 0.01 * smooth(rng, n_steps, 3)
        observations = [angles[:-1], palm, handle + pulled, palm - handle - pulled]
        gain = np.linspace(0.3, 2, 27)
        episodes.append((np.concatenate(observations, 1), angles[1:] * gain + gain - 1))
    return Demos(episodes)
