"""Signs that demonstrations did not do what was wanted, or do not say how to: nothing in them states success."""

from __future__ import annotations

import numpy as np

from closedform.analysis.problem import Problem
from closedform.demos.demos import Demos
from closedform.geometry.layout import Layout

_SEVERAL = 3  # episodes from which what they share is no accident
_END = 0.5  # seconds at the end of an episode; three steps if the rate is unknown
_STILL = 0.01  # of how differently a body is placed in each episode: what moves less has not been moved


def find_equal_lengths(lengths: list[int]) -> list[Problem]:
    """Whether all episodes have the same length, as those that a limit of steps has cut."""
    if len(lengths) < _SEVERAL or len(set(lengths)) > 1:
        return []
    message = f"all {len(lengths)} episodes have {lengths[0]} steps"
    advice = "check that they end because the task is done, and were not cut at a limit of steps"
    return [Problem("warning", "equal lengths", message, advice)]


def find_never_moved(demos: Demos) -> list[Problem]:
    """Bodies that are elsewhere in each episode and move in none; a warning if nothing but hands ever moves."""
    if len(demos) < _SEVERAL:
        return []
    hands = set(demos.action_layout.bodies)
    still, moved = [], False
    for entry, columns in demos.observation_layout.slices():
        if entry.kind != "position" or entry.body in hands:
            continue
        tracks = [episode.observations[:, columns].astype(np.float64) for episode in demos]
        starts = np.stack([track[0] for track in tracks if len(track)])
        differs = float(np.linalg.norm(np.std(starts, axis=0)))
        moves = max(float(np.linalg.norm(np.ptp(track, axis=0))) for track in tracks if len(track))
        if differs > 0 and moves <= _STILL * differs:
            still.append((entry.body or "a body", columns.start))
        moved = moved or moves > _STILL * differs
    severity = "note" if moved else "warning"
    advice = "if the task is to move it, these episodes failed; a goal or an obstacle is left as it is"
    return [
        Problem(
            severity, "never moved", f"{body} is elsewhere in each episode and moves in none", advice, column=column
        )
        for body, column in still
    ]


def find_ends_in_motion(demos: Demos) -> list[Problem]:
    """Whether most episodes end more than half as fast as they were on average: none shows how to come to rest."""
    n_end = max(1, round(_END * demos.rate)) if demos.rate else 3
    used = list(demos.observation_layout.used_columns)
    scale = np.maximum(demos.all_observations()[:, used].astype(np.float64).std(0), 1e-12)
    ends = []
    for index, episode in enumerate(demos):
        speed = np.linalg.norm(np.diff(episode.observations[:, used].astype(np.float64) / scale, axis=0), axis=1)
        if len(episode) > 2 * n_end and speed[-n_end:].mean() > 0.5 * speed.mean():
            ends.append(index)
    if len(demos) < _SEVERAL or len(ends) <= len(demos) / 2:
        return []
    message = f"{len(ends)} of {len(demos)} episodes end in motion"
    advice = "if the robot is to stop there, record half a second more, as closedform.evaluation.record does"
    return [Problem("note", "ends in motion", message, advice, ends[0], len(demos[ends[0]]) - 1)]


def find_uncommanded(demos: Demos) -> list[Problem]:
    """Whether no observed number follows the actions, as with torques and thrust."""
    declared = any(entry.kind not in ("other", "binary") for entry in demos.action_layout.entries)
    if declared or Layout.infer(demos).commands:
        return []
    message = "no observed number goes where actions say, or by how much: they may be torques, forces or thrust"
    advice = "small errors can then grow: predictions say little, so try the policy in closed loop (closedform eval)"
    return [Problem("warning", "indirect actions", message, advice)]
