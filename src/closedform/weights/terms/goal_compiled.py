"""The goal, compiled: see `Goal`."""

from __future__ import annotations

import math

import numpy as np

from closedform.kernels.jit import jit


@jit()
def add_goal(goal, rows, query, neighbors, precision, log_weights):
    """Subtracts the term, times the precision, from the log weights (k,) of the neighbors, up to a constant."""
    if not goal.weight > 0.0:
        return
    middle = np.empty(goal.columns.size)
    for g in range(middle.size):
        middle[g] = goal.middle[g] + goal.ratios[g] * query[goal.references[g]]
    for i in range(neighbors.size):
        row = neighbors[i]
        difference = goal.tolerance
        for g in range(goal.columns.size):
            d = goal.columns[g]
            still = goal.ends[rows.episodes[row], g] - rows.columns[d, row]
            difference += ((still - middle[g] + query[d]) * goal.scale[g]) ** 2
        log_weights[i] -= precision * goal.weight * math.log(difference)
