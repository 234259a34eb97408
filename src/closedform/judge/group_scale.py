"""Crowding: many observed numbers that move together, such as the joints of a hand, count as the few that they are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from closedform.judge.selection import groups_of

if TYPE_CHECKING:
    from closedform.store.spec import ModelSpec
    from closedform.weights.observation_kernel import ObservationKernel

_N_WINDOWS = 2_000  # that the covariance is estimated from
_CROWD = 4.0  # numbers that move together, from which on they count less


def crowd_weights(spec: ModelSpec, features: np.ndarray, kernel: ObservationKernel) -> np.ndarray:
    """What to multiply each feature with, (D_z,): less than 1 for a crowd of numbers without a known meaning.

    Thirty joints that all follow from where the hand is would outweigh the one position of an object. As in multiple
    factor analysis (Escofier and Pages, 1994), such numbers are divided by what they vary along their first principal
    axis, in units of the one that varies most: as a power of two, so that nothing is rounded. Where nothing has a known
    meaning, all numbers keep their weight.

    Args:
        spec: of the model.
        features: (n, D_z), of the windows of the episodes that are asked.
        kernel: which features count at all.
    """
    weights = np.ones(features.shape[1])
    known, numbers = groups_of(spec, kernel)
    if not known or len(numbers) < _CROWD or len(features) < 2:
        return weights
    last = [group[-1] for group in numbers]  # a number and itself a step earlier are no crowd
    some = np.linspace(0, len(features) - 1, min(_N_WINDOWS, len(features))).astype(int)
    covariance = np.cov(np.take(features, some, axis=0)[:, last], rowvar=False)
    most = float(np.diag(covariance).max())
    together = float(np.linalg.eigvalsh(covariance)[-1]) / most if most > 0 else 1.0
    if together >= _CROWD:
        weights[np.concatenate(numbers)] = 2.0 ** -round(math.log2(together) / 2)
    return weights
