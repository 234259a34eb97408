"""Where hands are, seen from the objects, compiled: see `Relation`."""

from __future__ import annotations

import numpy as np

from closedform.kernels.jit import jit


@jit(reorder=True)
def _read(relation, columns, column, rows, found):
    """Fills `found` (n,) with an encoded number of observations, whose features are some rows of `columns` (D_z, N)."""
    values, inverse, offset = columns[column], relation.inverse[column], relation.offset[column]
    for i in range(rows.size):
        found[i] = values[rows[i]] * inverse + offset


@jit()
def places(relation, columns, rows, hand, body, encoded, found):
    """Fills `found` (3, n) with the positions of a hand in the frame of an object; the last one is 0 in the plane.

    Args:
        relation: the term.
        columns: (D_z, N), features.
        rows: (n,), the observations asked for.
        hand, body: which hand, and which object.
        encoded: (6, n), scratch.
        found: is filled.
    """
    d = relation.hands.shape[1]
    hands, position, axes = relation.hands[hand], relation.objects[body], relation.axes[body]
    for i in range(d):
        _read(relation, columns, hands[i], rows, encoded[i])
        _read(relation, columns, position[i], rows, found[i])
        for n in range(rows.size):
            found[i, n] = encoded[i, n] - found[i, n]
    if d == 2:
        found[2, :] = 0.0
    if axes[0] < 0:
        return
    n_axes = 2 if d == 2 or axes[3] < 0 else 6
    for i in range(n_axes):
        _read(relation, columns, axes[i], rows, encoded[i])
    a, b, c, e, f, g = encoded[0], encoded[1], encoded[2], encoded[3], encoded[4], encoded[5]
    for n in range(rows.size):
        x, y, z = found[0, n], found[1, n], found[2, n]
        if n_axes == 2:  # about the z axis
            found[0, n] = a[n] * x + b[n] * y
            found[1, n] = a[n] * y - b[n] * x
            found[2, n] = z * (a[n] * a[n] + b[n] * b[n])
        else:
            found[0, n] = a[n] * x + b[n] * y + c[n] * z
            found[1, n] = e[n] * x + f[n] * y + g[n] * z
            first, second = b[n] * g[n] - c[n] * f[n], c[n] * e[n] - a[n] * g[n]
            found[2, n] = first * x + second * y + (a[n] * f[n] - b[n] * e[n]) * z


@jit(reorder=True)
def _subtract(log_weights, factor, there, here):
    """log_weights -= factor * |there - here|^2, (k,), (3, k), (3,)."""
    x, y, z = here[0], here[1], here[2]
    for i in range(log_weights.size):
        dx, dy, dz = there[0, i] - x, there[1, i] - y, there[2, i] - z
        log_weights[i] -= factor * (dx * dx + dy * dy + dz * dz)


@jit()
def add_relation(relation, rows, query, neighbors, precision, log_weights):
    """Subtracts the term, times the precision, from the log weights (k,) of the neighbors."""
    if not relation.weight > 0.0:
        return
    n_objects, k = relation.objects.shape[0], neighbors.size
    here, shares = np.empty((n_objects, 3, 1)), np.empty(n_objects)
    there, encoded = np.empty((3, k)), np.empty((6, k))
    now, first = np.empty((query.size, 1)), np.zeros(1, np.int64)
    now[:, 0] = query
    for h in range(relation.hands.shape[0]):
        total = 0.0
        for b in range(n_objects):
            places(relation, now, first, h, b, np.empty((6, 1)), here[b])
            shares[b] = relation.touching
            for i in range(3):
                shares[b] += here[b, i, 0] * here[b, i, 0]
            shares[b] = 1.0 / shares[b]
            total += shares[b]
        for b in range(n_objects):
            places(relation, rows.columns, neighbors, h, b, encoded, there)
            _subtract(log_weights, precision * relation.weight * shares[b] / total, there, here[b, :, 0])
