"""Tuning: parameters from the demonstrations alone, by leave-one-out prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closedform.analysis.leave_one_out import leave_one_out
from closedform.demos.chosen_layouts import choose_layouts
from closedform.demos.demos import Demos
from closedform.errors import ClosedFormError, ClosedFormWarning, DataError
from closedform.evaluation.pool import Pool, Task, Workers
from closedform.evaluation.processes import as_workers
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import ClosedFormConfig
from closedform.policies.horizons import N_ACTION_STEPS, horizons

_HORIZON = 8  # actions that are predicted, the same for all chunk lengths; longer at high rates, as chunks are
_N_SAMPLES = 2
QUICK = {"n_diffusion_steps": 20, "n_perturbations": 8}  # enough to tell configurations apart
_N_EPISODES = 100  # left out, evenly spread
_N_WINDOWS = 8  # of each
_LEAST_GAIN = 0.01  # of the error, that a change is worth

GRID: dict[str, tuple[Any, ...]] = {
    "n_obs_steps": (1, 2),  # a person's motion predicts their next action better than a policy's predicts its own
    "n_action_steps": (8, 12, 16, 24),
    "bandwidth": (0.01, 0.02, 0.045, 0.09, 0.2, 0.4, 0.8),
    "tau": (0.0, 0.01, 0.03, 0.07, 0.15, 0.3),
    "n_neighbors": (50, 200, 500, 1000, 2000, 5000),
}
"""The values tried for each parameter, one after the other, in two passes; chunks are as long in time at any rate."""


@dataclass(frozen=True)
class Trial:
    """A configuration and its leave-one-out error.

    Attributes:
        config: the parameters.
        error: see `prediction_errors`, in actions normalized to about [-1, 1]; smaller is better.
        standard_error: of its mean over episodes.
    """

    config: ClosedFormConfig
    error: float
    standard_error: float


@dataclass(frozen=True)
class Tuning:
    """The result of tuning.

    Attributes:
        best: the configuration with the smallest error.
        start: the initial configuration.
        trials: all configurations tried.
    """

    best: Trial
    start: Trial
    trials: list[Trial]


def tune(
    demos: Demos,
    start: ClosedFormConfig | None = None,
    *,
    workers: int | Workers = 1,
    progress: Callable[[str, float], object] | None = None,
) -> Tuning:
    """Chooses bandwidth, tau, n_neighbors, n_obs_steps and n_action_steps.

    Coordinate descent: one parameter after the other takes the value that predicts best, given the others. A change has
    to be better by more than one standard error of the paired difference over episodes, and by one percent, so that
    neither noise nor tiny gains change a parameter.

    Args:
        demos: at least two episodes.
        start: the initial configuration, which also sets all other parameters; the default preset by default.
        workers: the number of processes, where 1 is this one; or `Ray(...)`. The result does not depend on it.
        progress: called with a description and the fraction done.
    """
    if len(demos) < 2:
        raise DataError("expected at least two episodes for leave-one-out prediction, found one")
    demos = choose_layouts(demos).demos
    config = first = start or ClosedFormConfig.preset("default", demos)
    times = horizons(demos).get("n_action_steps", N_ACTION_STEPS) / N_ACTION_STEPS
    n_total, n_tried = 2 * sum(map(len, GRID.values())), 0
    with as_workers(workers).pool([TrialJob(demos, round(times * _HORIZON))]) as pool:
        trials = _Trials(pool)
        trials.errors(config)
        for _ in range(2):
            for name, grid in GRID.items():
                values = [round(times * value) for value in grid] if name == "n_action_steps" else grid
                candidates = [_with(config, name, value, demos.n_steps) for value in values]
                say = progress or (lambda *_: None)
                say(f"{name} = {values[0]}", n_tried / n_total)
                for n_done, tried in enumerate(trials.prepare(candidates), n_tried + 1):
                    say(f"{name} = {getattr(tried, name)}", n_done / n_total)
                n_tried += len(values)
                for value in values:
                    candidate = _with(config, name, value, demos.n_steps)
                    if candidate is None:
                        continue
                    try:
                        gain = trials.errors(config) - trials.errors(candidate)
                    except ClosedFormError:  # such as chunks longer than every episode
                        continue
                    least = _LEAST_GAIN * np.mean(trials.errors(config))
                    if np.mean(gain) > max(np.std(gain, ddof=1) / np.sqrt(len(gain)), least):
                        config = candidate
        return Tuning(trials.trial(config), trials.trial(first), trials.all())


class TrialJob:
    """The leave-one-out errors of configurations."""

    def __init__(self, demos: Demos, horizon: int):
        self._demos, self._horizon = demos, horizon

    def run(self, config: ClosedFormConfig) -> np.ndarray | ClosedFormError:
        """The errors of a configuration; an error of ours is a result, since it need not stop the others."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ClosedFormWarning)  # about fewer windows than neighbors
                policy = ClosedFormPolicy(self._demos, config=replace(config, **QUICK))
            return prediction_errors(policy, self._horizon)
        except ClosedFormError as error:
            return error

    def label(self, config: ClosedFormConfig) -> str:
        """What to call a task in a message."""
        return f"the trial of {config}"


class _Trials:
    """Configurations that were tried, and those that were prepared and may turn out not to be needed."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._found: dict[ClosedFormConfig, np.ndarray | ClosedFormError] = {}
        self._used: dict[ClosedFormConfig, np.ndarray] = {}

    def prepare(self, configs: Iterable[ClosedFormConfig | None]) -> Iterator[ClosedFormConfig]:
        """Computes the errors of all configurations that are new, at once, and yields each when it is done."""
        new = [config for config in dict.fromkeys(configs) if config is not None and config not in self._found]
        for task, found in self._pool.results(Task(0, config) for config in new):
            self._found[task.task] = found
            yield task.task

    def errors(self, config: ClosedFormConfig) -> np.ndarray:
        """The errors of a configuration, which now counts as tried."""
        for _ in self.prepare([config]):
            pass
        found = self._found[config]
        if isinstance(found, ClosedFormError):
            raise found
        return self._used.setdefault(config, found)

    def trial(self, config: ClosedFormConfig) -> Trial:
        """The summary of a configuration."""
        errors = self.errors(config)
        return Trial(config, float(errors.mean()), float(errors.std(ddof=1) / np.sqrt(len(errors))))

    def all(self) -> list[Trial]:
        """All that were tried."""
        return [self.trial(config) for config in self._used]


def prediction_errors(policy: ClosedFormPolicy, horizon: int = _HORIZON) -> np.ndarray:
    """The leave-one-out error of each episode, (episodes,): E|X - a| + E min_i |X - A_i|, averaged over windows.

    X is a sampled chunk, a the recorded chunk, and A_i the demonstrated chunks behind X. The first term alone rewards
    averaging over modes, since the mean is nearest to all of them although nobody demonstrated it; the second term
    penalizes the distance of a sample to anything that was demonstrated. The first `horizon` actions are compared.
    """
    n_episodes = len(policy.episode_ids)
    chosen = np.unique(np.linspace(0, n_episodes - 1, min(_N_EPISODES, n_episodes)).astype(int)).tolist()
    errors = []
    for left_out in leave_one_out(policy, episodes=chosen, n_windows=_N_WINDOWS, n_samples=_N_SAMPLES, horizon=horizon):
        missed = np.sqrt(np.nanmean(np.square(left_out.differences), axis=(2, 3)))
        errors.append(float(np.mean(missed + left_out.departures)))
    return np.array(errors)


def _with(config: ClosedFormConfig, name: str, value: Any, n_steps: int) -> ClosedFormConfig | None:
    """The configuration with one parameter replaced; None if there is nothing to try."""
    if name == "n_neighbors" and value > n_steps // 2:
        return None
    if name == "n_action_steps":
        return replace(config, n_action_steps=value, n_execute=min(config.n_execute, value))
    return replace(config, **{name: value})
