"""Horizons: how many actions are planned and executed at once, whatever the rate of the demonstrations."""

from __future__ import annotations

import numpy as np

from closedform.demos.demos import Demos

N_ACTION_STEPS, N_EXECUTE = 12, 4
_RATE = 10.0  # steps a second up to which they are as many steps
_LENGTH = 150.0  # steps of a demonstration up to which they are as many
_MOST = 50.0  # times as many steps


def horizons(demos: Demos) -> dict[str, int]:
    """The parameters `n_action_steps` and `n_execute` for demonstrations: 1.2 s and 0.4 s, at least 12 and 4 steps.

    An agent that plans again every few milliseconds changes its mind all the time, forgets within a second where it has
    been, and does not see far enough to tell frames and demonstrations apart. So above 10 Hz steps become time: a task
    that is recorded at 100 Hz is planned and executed as at 10 Hz. Where demonstrations are short, it is no more than
    0.08 and 0.027 of one: what takes a second has to be corrected more often than what takes a minute.

    Where the rate is unknown, the numbers of steps stay as they are.
    """
    lengths = [len(episode) for episode in demos if len(episode)]
    if demos.rate is None or not lengths:
        return {}
    times = min(demos.rate / _RATE, float(np.median(lengths)) / _LENGTH, _MOST)
    if times <= 1:
        return {}
    return {"n_action_steps": round(times * N_ACTION_STEPS), "n_execute": round(times * N_EXECUTE)}
