"""Conversion: actions that are displacements of observed bodies to targets, and targets to displacements."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.inference.inferred import InferredCommand, span
from closedform.errors import ClosedFormWarning, ConfigError, DataError
from closedform.geometry.layout import Kind, Layout

Meaning = Literal["targets", "displacements"]
KINDS: dict[str, Meaning] = {"position": "targets", "vector": "displacements"}
SURE = 0.9  # confidence from which an inferred meaning of actions is used


@dataclass(frozen=True)
class _Pair:
    """Numbers of an action that move or place numbers of the observation, one for one.

    Attributes:
        actions, observations: which numbers.
        scale: how far one unit of an action moves them; None if unknown.
        lag: steps by which they follow.
    """

    actions: list[int]
    observations: list[int]
    scale: float | None = None
    lag: float = 0.0


def declared_meaning(layout: Layout) -> Meaning | None:
    """Whether actions of a layout are targets or displacements; None if it does not say, or has both."""
    found: set[Meaning] = {KINDS[entry.kind] for entry in layout.entries if entry.kind in KINDS}
    return found.pop() if len(found) == 1 else None


def meaning_of(demos: Demos) -> Meaning | None:
    """Whether actions are targets or displacements, as declared or clear from the numbers; else None."""
    declared = declared_meaning(demos.action_layout)
    if declared is not None or any(entry.kind in KINDS for entry in demos.action_layout.entries):
        return declared
    sure = [command for command in Layout.infer(demos).commands if command.confidence >= SURE]
    found: set[Meaning] = {"targets" if command.how == "target" else "displacements" for command in sure}
    return found.pop() if len(found) == 1 else None


def to_targets(demos: Demos, scale: float | None = None) -> Demos:
    """The same demonstrations with actions that displace observed numbers converted to targets.

    The target of a body that follows its commands without delay is x + s a. One that follows `lag` steps behind has yet
    to make the last `lag` displacements as well: its target is x_t + s (a_t + a_{t-1} + ... + a_{t-lag}). Other numbers
    of the action are unchanged.

    Args:
        demos: their actions have entries of kind `vector` of a body whose position is observed, or, if nothing is
            declared, are detected to displace observed numbers.
        scale: s, how far one unit of an action moves the body; None to estimate it from the data, as the lag always is.
    """
    _check_scale(scale)
    pairs = _pairs(demos, "vector", scale)
    if not pairs:
        if meaning_of(demos) == "targets":
            raise DataError("expected actions that are displacements, found absolute targets: nothing to convert")
        raise DataError(
            "expected actions that are displacements of an observed body, found none: declare them, as in "
            "--observation-layout 'hand position 2, ...' --action-layout 'hand vector 2, ...'"
        )
    for pair in pairs:
        if pair.scale is None:
            raise ConfigError(
                f"actions {span(pair.actions)}: expected a scale, which could not be estimated from the data: give how "
                "far one unit of an action moves the body (--action-scale)"
            )
        if scale is None:
            warnings.warn(
                f"actions {span(pair.actions)}: displacements with scale {pair.scale:.4g} and a lag of {pair.lag:.1f} "
                "steps, estimated from the data; give --action-scale if you know it",
                ClosedFormWarning,
                stacklevel=2,
            )

    def converted(episode: Episode) -> Episode:
        actions = np.array(episode.actions, np.float64)
        for pair in pairs:
            assert pair.scale is not None
            here = np.asarray(episode.observations, np.float64)[:, pair.observations]
            actions[:, pair.actions] = here + pair.scale * _pending(actions[:, pair.actions], pair.lag)
        return Episode(episode.observations, actions, images=episode.images)

    return _made(demos, converted, pairs, "vector", "position")


def to_displacements(demos: Demos, scale: float) -> Demos:
    """The same demonstrations with actions that are targets converted to displacements (target - observed) / scale.

    Args:
        demos: their actions have entries of kind `position` of a body whose position is observed, or, if nothing is
            declared, are detected to be targets of observed numbers.
        scale: how far one unit of an action moves the body, which is up to the environment.
    """
    _check_scale(scale)
    pairs = _pairs(demos, "position", scale)
    if not pairs:
        raise DataError(
            "expected actions that are targets of an observed body, found none: declare them, as in "
            "--observation-layout 'hand position 2, ...' --action-layout 'hand position 2, ...'"
        )

    def converted(episode: Episode) -> Episode:
        actions = np.array(episode.actions, np.float64)
        for pair in pairs:
            here = np.asarray(episode.observations, np.float64)[:, pair.observations]
            actions[:, pair.actions] = (actions[:, pair.actions] - here) / scale
        return Episode(episode.observations, actions, images=episode.images)

    return _made(demos, converted, pairs, "position", "vector")


def _check_scale(scale: float | None) -> None:
    if scale is not None and not (math.isfinite(scale) and scale > 0):
        raise ConfigError(f"action_scale: expected a number above 0, found {scale!r}")


def _pairs(demos: Demos, kind: Kind, scale: float | None) -> list[_Pair]:
    """The pairs that layouts declare, or if they declare nothing, those detected in the numbers."""
    how = "displacements" if kind == "vector" else "targets"
    commands: tuple[InferredCommand, ...] = getattr(Layout.infer(demos), how)
    places = {entry.body: c for entry, c in demos.observation_layout.slices() if entry.kind == "position"}
    pairs = []
    for entry, columns in demos.action_layout.slices():
        place = places.get(entry.body) if entry.body is not None else None
        if entry.kind == kind and place is not None and place.stop - place.start == entry.size:
            pairs.append(_Pair(list(range(columns.start, columns.stop)), list(range(place.start, place.stop))))
    if not pairs and not any(entry.kind in KINDS for entry in demos.action_layout.entries):
        pairs = [_Pair(list(c.action_columns), list(c.observation_columns)) for c in commands]
    known = {(command.action_columns, command.observation_columns): command for command in commands}
    found = []
    for pair in pairs:
        command = known.get((tuple(pair.actions), tuple(pair.observations)))
        if command is not None:
            pair = replace(pair, scale=command.scale, lag=command.lag)
        found.append(pair if scale is None else replace(pair, scale=scale))
    return found


def _pending(actions: np.ndarray, lag: float) -> np.ndarray:
    """The sum of the commands at each step and in the `lag` steps before it. (T, D) -> (T, D)."""
    whole = math.floor(lag)
    total = np.zeros_like(actions)
    for back in range(min(whole + 2, len(actions))):
        share = 1.0 if back <= whole else lag - whole
        total[back:] += share * actions[: len(actions) - back]
    return total


def _made(
    demos: Demos, converted: Callable[[Episode], Episode], pairs: list[_Pair], before: Kind, after: Kind
) -> Demos:
    columns = {column for pair in pairs for column in pair.actions}
    entries = tuple(
        replace(entry, kind=after) if entry.kind == before and set(range(c.start, c.stop)) <= columns else entry
        for entry, c in demos.action_layout.slices()
    )
    return Demos(
        [converted(episode) for episode in demos],
        demos.observation_layout if demos.declared else None,
        Layout(entries) if demos.declared else None,
        demos.rate,
        demos.tasks,
        demos.skipped,
        None,  # in that environment these were not the actions
        finite=demos.finite,
    )
