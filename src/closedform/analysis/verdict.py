"""Verdict: what the findings on a set of demonstrations mean, in words, next to data sets that are known to work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from closedform.analysis.health import Health
from closedform.analysis.problem import grouped

_KNOWN = Path(__file__).parent / "known.json"  # made by scripts/known_data.py
_FEW = 5  # episodes, below which nothing can be said from leaving one out


@dataclass(frozen=True)
class Verdict:
    """A judgment on demonstrations.

    Attributes:
        level: `good`, `warning` (look at it before relying on it) or `error` (the demonstrations cannot be used).
        text: one or two sentences.
    """

    level: Literal["good", "warning", "error"]
    text: str


def judge(health: Health) -> Verdict:
    """What the findings mean for a policy made of these demonstrations."""
    errors = [group for group in grouped(health.problems) if group.severity == "error"]
    if errors:
        return Verdict("error", f"These demonstrations cannot be used as they are: {errors[0].describe()}.")
    compared = _compared(health)
    warned = [group for group in grouped(health.problems) if group.severity == "warning"]
    if warned:
        kinds = ", ".join(f"{group.kind} ({group.count})" for group in warned)
        return Verdict("warning", f"Usable, but look at what was found: {kinds}. {compared[1]}")
    if not compared[0]:
        return Verdict("warning", compared[1])
    return Verdict("good", f"These look like demonstrations that work. {compared[1]}")


def _compared(health: Health) -> tuple[bool, str]:
    """Whether episodes are as predictable from the others as in data known to work, and a sentence about it."""
    errors = [error for error in health.prediction_error if error is not None]
    if len(errors) < _FEW:
        return False, f"With {health.n_episodes} episodes, too little is known to judge them: record at least {_FEW}."
    error, largest = (round(value, 2) for value in (float(np.median(errors)), max(_known().values())))  # as printed
    *most, last = (f"{known:.2f} ({name})" for name, known in _known().items())
    listed = f"{', '.join(most)} and {last}"
    told = f"An episode is predicted from the others with a median error of {error:.2f} (actions fill -1 to 1)"
    if error <= largest:
        return True, f"{told}; where the policy is known to succeed, it is {listed}."
    return False, (
        f"{told}, more than where the policy is known to succeed: {listed}. Expect less, declare what the numbers are "
        "(--layout), or record more demonstrations of fewer situations."
    )


@cache
def _known() -> dict[str, float]:
    """The median leave-one-out error of each data set that is known to work."""
    return {row["name"]: row["error"] for row in json.loads(_KNOWN.read_text("utf-8"))["data"]}
