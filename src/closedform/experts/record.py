"""Recording: an expert's episode, kept if the task was accomplished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from closedform.evaluation.robomimic import Robomimic
from closedform.experts.person import HandCommand
from closedform.experts.single_arm import can, lift, square
from closedform.experts.tool_hang import tool_hang
from closedform.experts.transport import transport

_AFTER = 10  # steps recorded from success on, as robosuite's own collection does

EXPERTS: dict[
    str, Callable[[Robomimic, np.random.Generator], Iterator[HandCommand] | Iterator[tuple[HandCommand, ...]]]
] = {
    "lift": lift,
    "can": can,
    "square": square,
    "transport": transport,
    "tool_hang": tool_hang,
}


class RecordedEpisode(NamedTuple):
    """An episode as robomimic stores it.

    Attributes:
        seed: of its start state and of the expert.
        observations: by key, (T, ...) each.
        actions: (T, 7 per arm), absolute.
        successes: (T,), whether the task was accomplished after each action.
        states: (T, ...), of the simulator.
        model: the simulator's model (MJCF).
    """

    seed: int
    observations: dict[str, np.ndarray]
    actions: np.ndarray
    successes: np.ndarray
    states: np.ndarray
    model: str


def record(environment: Robomimic, seed: int) -> RecordedEpisode | None:
    """Runs the expert of a task from the start state of a seed; None if it fails."""
    environment.reset(seed)
    observations, actions, successes, states, after = [], [], [], [], None
    for command in EXPERTS[environment.task.name](environment, np.random.default_rng(seed)):
        commands = (command,) if isinstance(command, HandCommand) else command
        observations.append(environment.keyed())
        states.append(environment.state())
        actions.append(np.concatenate([one.action() for one in commands]))
        successes.append(environment.step(actions[-1]).success)
        after = _AFTER if after is None and successes[-1] else after
        if after is not None:
            after -= 1
        if after == 0 or len(actions) >= environment.max_steps:
            break
    if not successes[-1]:
        return None
    stacked = {key: np.array([observed[key] for observed in observations]) for key in observations[0]}
    return RecordedEpisode(seed, stacked, np.array(actions), np.array(successes), np.array(states), environment.model())
