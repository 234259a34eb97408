"""Targets: actions that displace an observed body, converted into the absolute targets that they command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.inference.commands import find_commands
from closedform.demos.inference.sample import WIDEST, Sample
from closedform.errors import ConfigError
from closedform.geometry.layout import Layout
from closedform.rewrites.rewrite import Rewrite

_LARGEST = 1e12  # scale, so that dividing by it stays finite


@dataclass(frozen=True)
class Displacement:
    """Numbers of an action that displace the position of an observed body.

    Attributes:
        action, observation: the first column of each.
        size: how many numbers, 2 or 3.
        scale: by how much the body moves for each unit of the action.
        lag: steps by which it follows.
        low, high: (size,), the demonstrated range of these numbers.
    """

    action: int
    observation: int
    size: int
    scale: float
    lag: float
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def keep(self) -> float:
        """The fraction of a lead that remains after a step, for a body that follows `lag` steps late."""
        return self.lag / (1 + self.lag)

    @property
    def action_columns(self) -> slice:
        """Which numbers of the action."""
        return slice(self.action, self.action + self.size)

    @property
    def observation_columns(self) -> slice:
        """Which numbers of the observation."""
        return slice(self.observation, self.observation + self.size)


@dataclass(frozen=True)
class Targets(Rewrite):
    """Converts displacements into the targets that they command, and back.

    A displacement has no location, so that nothing pulls it back to a path, and no frame can move it. Its target has
    one: a controller sums displacements a_t into a target, which a body x_t follows with a delay. How far the target
    leads follows from the actions alone,

        lead_t = lag / (1 + lag) * lead_{t-1} + scale * a_t,     target_t = x_t + lead_t,

    where the first factor is the fraction of a lead that a first-order system, `lag` steps late on average, leaves
    after a step. It makes errors from a wrong scale or a blocked hand decay, which would persist in a plain sum.
    Without delay the target is the next position. In the state in which it was demonstrated, a target converts back to
    its action.

    Attributes:
        displacements: which numbers of actions are converted; the others are unchanged.
    """

    name: ClassVar[str] = "targets"

    displacements: tuple[Displacement, ...]

    @classmethod
    def candidates(cls, observation_layout: Layout, action_layout: Layout) -> list[tuple[slice, slice]]:
        """The columns of an action and an observation where layouts say that one may displace the other."""
        bodies = {e.body: (e.size, s) for e, s in observation_layout.slices() if e.kind == "position"}
        found = []
        for entry, columns in action_layout.slices():
            if entry.kind == "vector" and entry.body is not None and bodies.get(entry.body, (0,))[0] == entry.size:
                found.append((columns, bodies[entry.body][1]))
        return found

    @classmethod
    def find(cls, demos: Demos) -> Targets | None:
        """The displacements that layouts declare and the data confirm, their scale and lag found by regression.

        None if there are none.
        """
        pairs = cls.candidates(demos.observation_layout, demos.action_layout)
        width = max(demos.observation_layout.width, demos.action_layout.width)
        if not pairs or width > WIDEST or not any(len(episode) > 1 for episode in demos):
            return None
        sample, found = Sample.of(demos), []
        low, high = sample.commanded.low, sample.commanded.high
        for columns, observed in pairs:
            free, commanding = np.zeros(sample.x.shape[1], bool), np.zeros(sample.a.shape[1], bool)
            free[observed] = sample.observed.usable[observed]
            commanding[columns] = sample.commanded.usable[columns]
            for match in find_commands(sample, free, commanding):
                whole = match.action == columns.start and match.observation == observed.start
                if match.how == "displacement" and whole and match.size == columns.stop - columns.start:
                    span = tuple(low[columns].tolist()), tuple(high[columns].tolist())
                    part = (columns.start, observed.start, match.size, match.scale, match.lag)
                    found.append(Displacement(*part, *span))
        return cls(tuple(found)) if found else None

    def layouts(self, observations: Layout, actions: Layout) -> tuple[Layout, Layout]:
        """The layouts with positions in place of displacements."""
        starts = {part.action for part in self.displacements}
        converted = (
            replace(entry, kind="position") if columns.start in starts else entry for entry, columns in actions.slices()
        )
        return observations, Layout(tuple(converted))

    def episodes(self, episode: Episode) -> list[Episode]:
        """An episode whose actions are the targets that were commanded."""
        actions = np.array(episode.actions, np.float64)
        for part in self.displacements:
            columns = part.action_columns
            lead, moves = np.zeros(part.size), part.scale * actions[:, columns]
            for step, move in enumerate(moves):
                lead = part.keep * lead + move
                actions[step, columns] = lead
            actions[:, columns] += episode.observations[:, part.observation_columns]
        actions.flags.writeable = False
        return [Episode.view(episode.observations, actions)]

    def begin(self) -> np.ndarray:
        """The lead of a controller at rest, one number for each converted number of an action."""
        return np.zeros(sum(part.size for part in self.displacements))

    def acted(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        """The lead after an action (D_a,) was executed."""
        moved, first = np.empty_like(state), 0
        for part in self.displacements:
            columns = slice(first, first + part.size)
            moved[columns] = part.keep * state[columns] + part.scale * action[part.action_columns]
            first += part.size
        return moved

    def to_actions(self, chunks: np.ndarray, observations: np.ndarray, state: np.ndarray | None = None) -> np.ndarray:
        """The displacements that lead to targets, one after the other, within the demonstrated range.

        What the range cuts off is made up for in later steps of the chunk.

        Args:
            chunks: (..., N_a, D_a), of targets.
            observations: (..., D_o), with the body's position.
            state: the lead of the controller's current target; None for one at rest.
        """
        actions, lead, first = chunks.copy(), self.begin() if state is None else state, 0
        for part in self.displacements:
            columns = part.action_columns
            target = observations[..., part.observation_columns] + part.keep * lead[first : first + part.size]
            for step in range(chunks.shape[-2]):
                move = np.clip((chunks[..., step, columns] - target) / part.scale, part.low, part.high)
                actions[..., step, columns] = move
                target = target + part.scale * move
            first += part.size
        return actions

    def to_json(self) -> list[dict[str, Any]]:
        """The displacements as plain lists and dictionaries."""
        return [asdict(part) for part in self.displacements]

    @classmethod
    def from_json(cls, parts: Any, observation_layout: Layout, action_layout: Layout) -> Targets:
        """The inverse of `to_json`; an error if they do not fit the layouts."""
        if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
            raise ConfigError(f"targets: expected a list of displacements, found {type(parts).__name__}")
        pairs = cls.candidates(observation_layout, action_layout)
        found = [_displacement(part) for part in parts]
        given = [(part.action_columns, part.observation_columns) for part in found]
        if any(pair not in pairs for pair in given) or len({part.action for part in found}) < len(found):
            raise ConfigError("targets: expected displacements of bodies that the layouts name, found others")
        return cls(tuple(found))


def _displacement(part: Any) -> Displacement:
    """A displacement from a file."""
    names = ("action", "observation", "size", "scale", "lag", "low", "high")
    if not isinstance(part, Mapping) or set(part) != set(names):
        raise ConfigError(f"targets: expected displacements with {', '.join(names)}, found another entry")
    counts, ranges = [part[name] for name in names[:3]], [part["low"], part["high"]]
    listed = all(isinstance(values, list | tuple) for values in ranges)
    numbers = [part["scale"], part["lag"], *(value for values in ranges if listed for value in values)]
    sound = (
        listed
        and all(isinstance(count, int) and not isinstance(count, bool) for count in counts)
        and all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
        and len(part["low"]) == len(part["high"]) == part["size"]
        and 1 / _LARGEST <= part["scale"] <= _LARGEST
        and 0 <= part["lag"] <= _LARGEST
        and all(low <= high for low, high in zip(part["low"], part["high"], strict=True))
    )
    if not sound:
        raise ConfigError("targets: expected columns, a positive scale, a lag of 0 or more and ranges, found others")
    low, high = (tuple(float(n) for n in part[name]) for name in ("low", "high"))
    action, observation, size = counts
    return Displacement(action, observation, size, float(part["scale"]), float(part["lag"]), low, high)
