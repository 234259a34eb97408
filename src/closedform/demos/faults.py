"""Faults: numbers so far from all others that they can only be errors, such as the unset field of a packet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.geometry.layout import Layout

FAR = 1000.0
"""How many times farther from the middle than everything in the other episodes a number has to be.

One such number in a range or a variance hides all the others. Peaks that are real are not so far apart: where numbers
have a variance at all, the largest is a thousand times the next with a probability of about 1e-6.
"""
_ALIKE = 2  # episodes, at least, that have to agree on what is usual
_COMPARED = 100  # episodes that a new one is compared with


class Fault(NamedTuple):
    """A number that cannot be right.

    Attributes:
        what: `observations` or `actions`.
        step, column: where it is in its episode.
        value: the number.
        usual: how far everything in the other episodes is from the middle, at most.
    """

    what: str
    step: int
    column: int
    value: float
    usual: float

    def describe(self, entry: str) -> str:
        """What was found, in one line; `entry` names the number."""
        return (
            f"{self.what}: found {self.value:.6g} at step {self.step}, {entry}, where everything in the other episodes "
            f"is within {self.usual:.3g} of the middle; correct it, or leave the episode out"
        )


def find_faults(episodes: Sequence[Episode], layouts: tuple[Layout, Layout]) -> dict[int, Fault]:
    """The episodes with a number that cannot be right, by their index.

    The reach of an episode is how far any of its numbers lies from the middle of that number. The first gap by a factor
    of `FAR` in the reaches, in ascending order, separates the episodes with a fault, which are fewer than the others.
    The numbers of an array are compared together, since a single one may well be 0 but for a moment of one episode.
    """
    found: dict[int, Fault] = {}
    filled = [index for index, episode in enumerate(episodes) if len(episode)]
    for what, layout in zip(("observations", "actions"), layouts, strict=True):
        columns = np.array(layout.used_columns, int)
        if len(filled) <= _ALIKE or not len(columns):
            continue
        arrays = [getattr(episodes[index], what) for index in filled]
        low, high = (
            np.stack([bound(a, axis=0) for a in arrays])[:, columns].astype(float) for bound in (np.min, np.max)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            middle = np.median(np.concatenate([low, high]), axis=0)
            reaches = np.maximum(high - middle, middle - low)
        reach = reaches.max(1)
        order = np.argsort(reach, kind="stable")
        sure = max(_ALIKE, (len(order) + 1) // 2)  # so many are taken to be right
        ranked = reach[order]
        gaps = np.flatnonzero((ranked[sure:] > FAR * ranked[sure - 1 : -1]) & (ranked[sure - 1 : -1] > 0))
        for at in order[sure + gaps[0] :].tolist() if len(gaps) else []:
            best = int(np.argmax(reaches[at]))
            number = arrays[at][:, columns[best]].astype(float)
            step = int(np.argmax(np.abs(number - middle[best])))
            usual = float(ranked[sure + gaps[0] - 1])
            found.setdefault(filled[at], Fault(what, step, int(columns[best]), float(number[step]), usual))
    return found


def refuse_faults(demos: Demos) -> None:
    """Refuses demonstrations with a number that cannot be right."""
    for index, fault in find_faults(demos.episodes, (demos.observation_layout, demos.action_layout)).items():
        raise DataError(f"episode {index}: {fault.describe(demos.describe(fault.what, fault.column))}")


def check_new(episode: Episode, name: int, others: Sequence[Episode], layouts: tuple[Layout, Layout]) -> None:
    """Refuses an episode with a number that cannot be right next to those of others."""
    some = [others[i] for i in np.unique(np.linspace(0, len(others) - 1, min(_COMPARED, len(others))).astype(int))]
    fault = find_faults([*some, episode], layouts).get(len(some))
    if fault is not None:
        layout = layouts[fault.what == "actions"]
        raise DataError(f"episode {name}: {fault.describe(layout.describe(fault.column))}")
