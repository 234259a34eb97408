"""Indexes return the nearest rows, at once after a change, and never disturb an older index."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.kernels.records import Metric
from closedform.kernels.search import retrieve
from closedform.store.index import ExactIndex


def brute_force(features, query, k):
    order = np.argsort(((features - query) ** 2).sum(1), kind="stable")
    return np.sort(order[:k])


def test_changes_are_visible_to_the_next_query():
    rng = np.random.default_rng(0)
    features, more, query = rng.normal(size=(200, 4)), rng.normal(size=(150, 4)), rng.normal(size=4)
    first = ExactIndex(features)
    grown = first.add(more)
    both = np.concatenate([features, more])
    np.testing.assert_array_equal(grown.query(query, 20), brute_force(both, query, 20))
    np.testing.assert_array_equal(first.query(query, 20), brute_force(features, query, 20))
    keep = rng.uniform(size=350) < 0.6
    kept = grown.remove(keep)
    np.testing.assert_array_equal(kept.query(query, 20), brute_force(both[keep], query, 20))
    np.testing.assert_array_equal(grown.query(query, 20), brute_force(both, query, 20))
    assert (len(first), len(grown), len(kept)) == (200, 350, keep.sum())


def test_two_branches_of_one_index_do_not_mix():
    rng = np.random.default_rng(1)
    base, left, right = rng.normal(size=(50, 3)), rng.normal(size=(5, 3)), rng.normal(size=(7, 3))
    index = ExactIndex(base)
    with_left, with_right = index.add(left), index.add(right)
    query = rng.normal(size=3)
    np.testing.assert_allclose(with_left.rows(), np.concatenate([base, left]))
    np.testing.assert_allclose(with_right.rows(), np.concatenate([base, right]))
    np.testing.assert_array_equal(with_right.query(query, 9), brute_force(np.concatenate([base, right]), query, 9))


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(1, 5), st.integers(1, 320), st.booleans(), st.integers(0, 2**31))
def test_the_compiled_search_is_exact_and_breaks_ties_alike(n, width, k, on_grid, seed):
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 3, size=(n, width)).astype(float) if on_grid else rng.normal(size=(n, width))
    query = features[rng.integers(n)] if on_grid else rng.normal(size=width)
    index = ExactIndex(features)
    rows, _ = retrieve(index.columns, n, query, min(k, n), Metric(np.empty((0, 0)), 1e-4, 0.0, 1.0))
    np.testing.assert_array_equal(rows, index.query(query, min(k, n)))
