"""Tuning: parameters from the demonstrations alone, by predicting each episode from the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.analysis.leave_one_out import leave_one_out
from closedform.demos.demos import Demos
from closedform.errors import ClosedFormError, DataError
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import ClosedFormConfig

HORIZON = 8  # actions that are predicted, the same for all chunk lengths
N_SAMPLES = 2
N_EPISODES = 100  # left out, evenly spread
N_WINDOWS = 8  # of each

GRID: dict[str, tuple[Any, ...]] = {
    "n_obs_steps": (1, 2, 3),
    "n_action_steps": (8, 12, 16, 24),
    "bandwidth": (0.01, 0.02, 0.045, 0.09, 0.2, 0.4, 0.8),
    "tau": (0.0, 0.01, 0.03, 0.07, 0.15, 0.3),
    "n_neighbors": (50, 200, 500, 1000, 2000, 5000),
}
"""What is tried of each parameter, one after the other, twice around."""


@dataclass(frozen=True)
class Trial:
    """A configuration and how well it predicts demonstrations that were left out.

    Attributes:
        config: the parameters.
        error: the energy score, in actions normalised to about [-1, 1]; smaller is better.
        standard_error: of its mean over episodes.
    """

    config: ClosedFormConfig
    error: float
    standard_error: float


@dataclass(frozen=True)
class Tuning:
    """What was tried, and what to use.

    Attributes:
        best: the configuration with the smallest error.
        start: the configuration that the search began with.
        trials: all that were tried.
    """

    best: Trial
    start: Trial
    trials: list[Trial]


def tune(
    demos: Demos, start: ClosedFormConfig | None = None, *, progress: Callable[[str, float], object] | None = None
) -> Tuning:
    """Chooses bandwidth, tau, n_neighbors, n_obs_steps and n_action_steps.

    One parameter after the other takes the value that predicts best, given the others. A change has to be better by
    more than one standard error of the difference, episode by episode, so that noise does not move anything.

    Args:
        demos: at least two episodes.
        start: where to begin; what it says about other parameters is kept. The default preset by default.
        progress: is told what is tried and the share that is done.
    """
    if len(demos) < 2:
        raise DataError("expected at least two episodes to predict one from the others, found one")
    config = start or ClosedFormConfig.preset()
    errors: dict[ClosedFormConfig, np.ndarray] = {}
    n_total, n_tried = 2 * sum(map(len, GRID.values())), 0

    def try_out(candidate: ClosedFormConfig) -> np.ndarray:
        if candidate not in errors:
            errors[candidate] = prediction_errors(ClosedFormPolicy(demos, config=candidate))
        return errors[candidate]

    try_out(config)
    first = config
    for _ in range(2):
        for name, values in GRID.items():
            for value in values:
                if progress:
                    progress(f"{name} = {value}", n_tried / n_total)
                n_tried += 1
                candidate = _with(config, name, value, len(demos.episodes) and demos.n_steps)
                if candidate is None:
                    continue
                try:
                    gain = try_out(config) - try_out(candidate)
                except ClosedFormError:  # such as chunks longer than every episode
                    continue
                if np.mean(gain) > np.std(gain, ddof=1) / np.sqrt(len(gain)):
                    config = candidate
    trials = [_trial(candidate, error) for candidate, error in errors.items()]
    return Tuning(_trial(config, errors[config]), _trial(first, errors[first]), trials)


def prediction_errors(policy: ClosedFormPolicy) -> np.ndarray:
    """The energy score of each left-out episode, (episodes,): E|X - a| - E|X - X'| / 2, averaged over its windows.

    X and X' are two sampled chunks, a is what was done. It is a proper score (Gneiting and Raftery, 2007): it is
    smallest, on average, for the distribution that a really has, so that neither averaging two ways into one that
    nobody took nor repeating a single one by heart is rewarded.
    """
    n_episodes = len(policy.episode_ids)
    chosen = np.unique(np.linspace(0, n_episodes - 1, min(N_EPISODES, n_episodes)).astype(int)).tolist()
    scores = []
    for left_out in leave_one_out(policy, episodes=chosen, n_windows=N_WINDOWS, n_samples=N_SAMPLES, horizon=HORIZON):
        first, second = left_out.differences[:, 0], left_out.differences[:, 1]
        errors = (_length(first) + _length(second)) / 2 - _length(first - second) / 2
        scores.append(float(np.mean(errors)))
    return np.array(scores)


def _length(differences: np.ndarray) -> np.ndarray:
    """The root mean square over actions. (m, H, D) -> (m,)."""
    return np.sqrt(np.nanmean(np.square(differences), axis=(1, 2)))


def _with(config: ClosedFormConfig, name: str, value: Any, n_steps: int) -> ClosedFormConfig | None:
    """The configuration with one parameter replaced; None if there is nothing to try."""
    if name == "n_neighbors" and value > n_steps // 2:
        return None
    if name == "n_action_steps":
        return replace(config, n_action_steps=value, n_execute=min(config.n_execute, value))
    return replace(config, **{name: value})


def _trial(config: ClosedFormConfig, errors: np.ndarray) -> Trial:
    return Trial(config, float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors))))
