"""Compiled reading of recorded steps: the episodes of windows, and their actions."""

from __future__ import annotations

from closedform.kernels.jit import jit


@jit()
def locate(row_ends, rows, episodes):
    """Fills the episode of each row, given where the rows of each episode end; fastest for ascending rows."""
    low = 0
    for i in range(rows.size):
        if i > 0 and rows[i] < rows[i - 1]:
            low = 0
        high = row_ends.size
        while low < high:
            middle = (low + high) >> 1
            if row_ends[middle] <= rows[i]:
                low = middle + 1
            else:
                high = middle
        episodes[i] = low


@jit()
def gather_actions(first, second, begins, lengths, steps, vector, out):
    """Fills `out` (m, N_a, D) with the actions from each step on, padded beyond an episode's end as `cut` does.

    Args:
        first, second: (T, D), consecutive recorded actions.
        begins, lengths: (m,), of the episodes.
        steps: (m,), the steps in these.
        vector: (D,), which numbers are padded with zeros instead of the last value.
    """
    for i in range(steps.size):
        for t in range(out.shape[1]):
            beyond = steps[i] + t >= lengths[i]
            at = begins[i] + (lengths[i] - 1 if beyond else steps[i] + t)
            for d in range(out.shape[2]):
                if beyond and vector[d]:
                    out[i, t, d] = 0.0
                elif at < first.shape[0]:
                    out[i, t, d] = first[at, d]
                else:
                    out[i, t, d] = second[at - first.shape[0], d]
