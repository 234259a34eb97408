"""The energy: how much each demonstrated window weighs, given an observation. This is all of it:

    log w_i = -(d_i^2 + sum_t term_t(i, state)) / 2 h^2

with d_i the distance in the metric and h the bandwidth. Each term that prefers one demonstration to another has a file
of its own in `terms/`. Some remember what was planned before and concern a few windows only (`RememberingTerm`); their
sum is the penalty of a plan. `policies/backends/compiled_plan.py:weigh` is the same in compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closedform.kernels.records import Candidates
from closedform.weights.penalty import Penalty
from closedform.weights.term import Term


def energies(squared: np.ndarray, candidates: Candidates, terms: Sequence[Term], penalty: Penalty) -> np.ndarray:
    """d_i^2 + sum_t term_t(i, state), (k,); NaN or infinite if numbers are too large.

    Args:
        squared: (k,), squared distances in the metric.
        candidates: the windows that are weighed.
        terms: those that are a function of the observation.
        penalty: those that remember, summed.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = squared + penalty.at(candidates.rows)
        for term in terms:
            total = total + term(candidates)
    return total


def log_weights(squared: np.ndarray, energies: np.ndarray, width: float) -> np.ndarray | None:
    """The log weights (k,), the largest being 0; None if distances or weights are not finite.

    Args:
        squared: (k,), squared distances in the metric.
        energies: (k,), see `energies`.
        width: 2 h^2.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        measured = squared / width < np.inf
        found = -(energies - energies.min()) / width
    # The largest is 0, or NaN if all of them are infinitely far away.
    return found if measured.all() and not np.isnan(found).any() else None
