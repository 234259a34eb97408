"""Metrics measure what they say and stay finite in degenerate neighborhoods."""

import numpy as np
import pytest

from closedform.kernels.records import Metric
from closedform.kernels.search import retrieve
from closedform.store.index import ExactIndex
from closedform.weights.metric import METRICS, covariance_factor, squared_distances


def test_mahalanobis_distance_is_the_textbooks():
    rng = np.random.default_rng(0)
    features, query = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 3)), rng.normal(size=3)
    covariance = np.cov(features.T) + 1e-4 * np.eye(3)
    differences = features - query
    expected = np.einsum("ia,ab,ib->i", differences, np.linalg.inv(covariance), differences)
    np.testing.assert_allclose(squared_distances(features, query, covariance_factor(features, 1e-4)), expected)


def test_an_affine_change_of_units_changes_no_distance():
    rng = np.random.default_rng(1)
    features, query, change = rng.normal(size=(40, 3)), rng.normal(size=3), rng.normal(size=(3, 3))
    before = squared_distances(features, query, covariance_factor(features, 1e-14))
    after = squared_distances(features @ change, query @ change, covariance_factor(features @ change, 1e-14))
    np.testing.assert_allclose(after, before, rtol=1e-6)


DEGENERATE = {
    "one point": np.ones((1, 4)),
    "repeated points": np.ones((30, 4)),
    "constant entries": np.concatenate([np.random.default_rng(2).normal(size=(30, 2)), np.ones((30, 2))], 1),
    "fewer points than entries": np.random.default_rng(3).normal(size=(3, 4)),
    "entries that are copies": np.repeat(np.random.default_rng(4).normal(size=(30, 1)), 4, axis=1),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 1.0])
def test_degenerate_neighborhoods_stay_finite(name, metric, shrinkage):
    features = DEGENERATE[name]
    query = np.array([1.0, 0.5, -2.0, 1.0])
    factor = np.eye(4) if metric == "euclidean" else covariance_factor(features, 1e-4, shrinkage)
    expected = squared_distances(features, query, factor)
    assert np.isfinite(expected).all()
    index = ExactIndex(features)
    fixed = np.empty((0, 0)) if metric == "local_mahalanobis" else factor
    _, compiled = retrieve(index.columns, len(features), query, len(features), Metric(fixed, 1e-4, shrinkage, 1.0))
    np.testing.assert_allclose(compiled, expected, rtol=1e-6)


def test_a_shrunk_covariance_keeps_its_size_and_becomes_a_sphere():
    features = np.random.default_rng(0).normal(size=(50, 3)) * (5.0, 1.0, 0.1)
    covariance = np.cov(features.T)
    for shrinkage in (0.0, 0.4, 1.0):
        factor = covariance_factor(features, 1e-9, shrinkage)
        assert np.trace(factor @ factor.T) == pytest.approx(np.trace(covariance), rel=1e-6)
        expected = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 3 * np.eye(3)
        np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-8)
