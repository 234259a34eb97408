"""Metrics: how far a query is from each of its neighbors."""

from __future__ import annotations

import numpy as np

from closedform.errors import DataError

_EPISODES_PER_NEIGHBORHOOD = 4  # of which one says something about the shape of any one neighborhood
LEFT_OUT = 2.0**-20  # the relevance of what counts nothing: a power of two, so that no bit of the scale is lost
METRICS = ("euclidean", "global_mahalanobis", "local_mahalanobis")


def covariance_factor(
    features: np.ndarray, regularization: float, shrinkage: float = 0.0, n_counted: int | None = None
) -> np.ndarray:
    """The Cholesky factor L of the sample covariance plus lambda I (the paper's "Mahalanobis Distance Kernel").

    Well defined for any neighborhood: for a single or repeated point, lambda I remains.

    Args:
        features: (k, D)
        regularization: lambda.
        shrinkage: from 0 to 1, the share of the covariance that is replaced by a sphere of the same size (Ledoit and
            Wolf, 2004); 0 is the paper.
        n_counted: how many features count; the size of the sphere is their mean variance. All by default.

    Returns:
        (D, D), lower triangular.
    """
    deviations = features - features.mean(0)
    covariance = deviations.T @ deviations / max(len(features) - 1, 1)
    sphere = np.trace(covariance) / (n_counted or len(covariance)) * np.eye(len(covariance))
    covariance = (1 - shrinkage) * covariance + shrinkage * sphere
    if not np.isfinite(covariance).all():  # distances are undefined
        return np.full_like(covariance, np.nan)
    try:
        return np.linalg.cholesky(covariance + regularization * np.eye(features.shape[1]))
    except np.linalg.LinAlgError:  # lambda was lost to rounding; no eigenvalue may be below it
        values, vectors = np.linalg.eigh(covariance)
        scaled = np.sqrt(np.maximum(values, 0) + regularization)[:, None] * vectors.T
        lower = np.asarray(np.linalg.qr(scaled, mode="r")).T
        return lower * np.sign(np.diag(lower))


def cholesky(covariance: np.ndarray, of: str) -> np.ndarray:
    """The Cholesky factor of a covariance; `of` names it in the error if it has none."""
    try:
        factor = np.linalg.cholesky(np.asarray(covariance, np.float64))
    except np.linalg.LinAlgError:
        factor = np.full((1, 1), np.nan)
    if not np.isfinite(factor).all():
        raise DataError(f"expected a positive definite covariance of {of}, found one that is not")
    return factor


def squared_distances(neighbors: np.ndarray, query: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """|L^-1 (z_i - z)|^2 for each neighbor. (k, D), (D,), (D, D) -> (k,)."""
    whitened = np.linalg.solve(factor, (neighbors - query).T)
    return np.sum(whitened * whitened, axis=0)


def usual_shrinkage(n_features: int, n_episodes: int) -> float:
    """D / (D + E / 4).

    The shape of a neighborhood in D directions cannot be estimated from few episodes: however many windows an episode
    has, they lie along one path, and only episodes that pass nearby count.
    """
    return n_features / (n_features + n_episodes / _EPISODES_PER_NEIGHBORHOOD)
