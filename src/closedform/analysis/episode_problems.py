"""Problems of whole episodes: faulty numbers, duplicates, idle stretches, and episodes that are too short."""

from __future__ import annotations

import hashlib

import numpy as np

from closedform.analysis.problem import Problem, listed
from closedform.demos.demos import Demos
from closedform.demos.faults import find_faults

_IDLE_SECONDS, _IDLE_STEPS = 1.0, 10  # how long nothing may change before it counts as idle


def find_faulty(demos: Demos) -> list[Problem]:
    """Episodes with a number so far from all others that it cannot be right."""
    layouts = demos.observation_layout, demos.action_layout
    return [
        Problem(
            "error",
            "faulty number",
            f"{fault.what[:-1]} {demos.describe(fault.what, fault.column)} is {fault.value:.6g}, where everything in "
            f"the other episodes is within {fault.usual:.3g} of the middle",
            "correct it, or leave the episode out",
            index,
            fault.step,
            fault.column,
        )
        for index, fault in find_faults(demos.episodes, layouts).items()
    ]


def find_duplicates(demos: Demos) -> list[Problem]:
    """Episodes identical to an earlier one."""
    seen: dict[bytes, int] = {}
    problems = []
    for index, episode in enumerate(demos):
        digest = hashlib.sha256(episode.observations.tobytes() + episode.actions.tobytes()).digest()
        if digest in seen:
            message = f"episode {index} is the same as episode {seen[digest]}"
            problems.append(Problem("warning", "duplicate", message, "remove one of them", index, 0))
        seen.setdefault(digest, index)
    return problems


def find_idle(demos: Demos) -> list[Problem]:
    """Runs of steps in which neither observations nor actions change by a thousandth of their spread."""
    shortest = max(_IDLE_STEPS, int(_IDLE_SECONDS * demos.rate)) if demos.rate else _IDLE_STEPS
    scales = []
    for values in (demos.all_observations(), demos.all_actions()):
        finite = np.where(np.isfinite(values), values, 0)
        scales.append(np.maximum(finite.std(0), 1e-12) * 1e-3)
    stretches = []
    for index, episode in enumerate(demos):
        if len(episode) < 2:
            continue
        still = np.ones(len(episode) - 1, bool)
        for values, scale in zip((episode.observations, episode.actions), scales, strict=True):
            with np.errstate(invalid="ignore"):
                still &= (np.abs(np.diff(values, axis=0)) <= scale).all(1)
        edges = np.diff(np.concatenate([[0], still, [0]]).astype(int))
        for begin, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            if end - begin >= shortest:
                stretches.append((index, int(begin), int(end - begin)))
    stretches.sort(key=lambda s: -s[2])

    def make(row: int) -> Problem:
        episode, step, length = stretches[row]
        return Problem("note", "idle", f"nothing changes for {length} steps", "remove these steps", episode, step)

    return listed(np.arange(len(stretches)), make, "idle", "note")


def find_short(lengths: list[int]) -> list[Problem]:
    """Episodes shorter than a fifth of the median length."""
    typical = float(np.median(lengths))

    def make(row: int) -> Problem:
        message = f"episode {row} has {lengths[row]} steps, the median is {typical:g}"
        return Problem("warning", "short", message, "check that it is complete", row, 0)

    return listed(np.flatnonzero(np.array(lengths) < 0.2 * typical), make, "short", "warning")
