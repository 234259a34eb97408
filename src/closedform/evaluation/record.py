"""record: demonstrations made by any function that acts in an environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import DataError
from closedform.evaluation.environment import Environment, make_environment
from closedform.geometry.layout import Layout


def record(
    environment: str | Environment,
    act: Callable[[np.ndarray], Any],
    seeds: Iterable[int],
    *,
    successes: bool = True,
    beyond: float = 0.5,
    start: Callable[[int], Any] | None = None,
    observation_layout: Layout | None = None,
    action_layout: Layout | None = None,
) -> Demos:
    """Records an episode per seed.

        demos = record("gym:MountainCarContinuous-v0,success=terminated", lambda o: [np.sign(o[1])], range(10))

    Args:
        environment: one, or its name; see `make_environment`.
        act: the action (D_a,) for an observation (D_o,): a script, a network, a person.
        seeds: of the start states; evaluations use seeds from 100000.
        successes: whether to keep only episodes that accomplish the task.
        beyond: seconds that are recorded after success, so that demonstrations show how to stay; 0 to end there. An
            environment that cannot go on then ends the episode.
        start: called with the seed before each episode, for what remembers something.
        observation_layout, action_layout: what the numbers are; by default as the environment says.
    """
    place = make_environment(environment) if isinstance(environment, str) else environment
    kept: list[Episode] = []
    tried = 0
    for seed in seeds:
        if start is not None:
            start(seed)
        episode, success = _episode(place, act, seed, round(beyond * place.rate))
        tried += 1
        if success or not successes:
            kept.append(episode)
    if not kept:
        raise DataError(f"record: expected an episode that accomplishes the task, found none in {tried}")
    layouts = observation_layout or place.observation_layout, action_layout or place.action_layout
    demos = Demos(kept, *layouts, place.rate)
    demos.column_names = getattr(place, "observation_names", None), None
    return demos


def _episode(place: Environment, act: Callable[[np.ndarray], Any], seed: int, n_beyond: int) -> tuple[Episode, bool]:
    """An episode up to `n_beyond` steps after success, and whether there was one."""
    observation, width = place.reset(seed), place.action_layout.width
    observations, actions, left = [], [], math.inf  # steps, if the task is done
    done = False
    while left > 0 and not (done and left == math.inf) and len(actions) < place.max_steps:
        observed = np.array(observation)  # copied, since either side may reuse its array
        try:
            action = np.array(act(observation), np.float64)
            if action.shape != (width,):
                raise DataError(f"record: expected actions of {width} numbers, found shape {action.shape}")
            observation, _, succeeded, done = place.step(action)
        except Exception:
            if left == math.inf:
                raise
            break  # a script or an environment that is finished
        observations.append(observed)
        actions.append(action)
        left = min(left - 1, n_beyond if succeeded else math.inf)
    return Episode(np.array(observations), np.array(actions)), left < math.inf
