"""Results: intervals, comparisons, files."""

import json

import numpy as np
import pytest

from closedform.errors import DataError, LoadError
from closedform.evaluation.intervals import bootstrap_ci95, wilson_ci95
from closedform.evaluation.results import compare, read_results, summarise, write_results

SUBJECT = {"env": "toy", "policy": {"name": "default"}, "demos": {}, "parameters": {}, "n_episodes": 4, "seed": 0}
ROW = {"steps": 10, "distances": [0.5], "loop": False, "most_repeated": 1, "demonstrations": []}


def made(scores, first_seed=0, env="toy"):
    rows = [
        {"seed": first_seed + i, "score": s, "success": s == 1, "latency_ms": [1.0, 2.0 + i], **ROW}
        for i, s in enumerate(scores)
    ]
    return summarise({**SUBJECT, "env": env}, rows, {"commit": None, "versions": {}})


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [(0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662))],  # the last from Newcombe (1998)
)
def test_wilson(successes, n, expected):
    assert wilson_ci95(successes, n) == pytest.approx(expected, abs=1e-4)


def test_the_bootstrap_covers_the_mean_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        low, high = bootstrap_ci95(rng.exponential(size=60))
        hits += low <= 1 <= high
    assert 0.87 <= hits / 200 <= 0.98
    assert bootstrap_ci95(np.array([0.5, 0.5])) == (0.5, 0.5)


def test_a_summary_has_means_intervals_and_latencies():
    results = made([1, 0.5, 1, 0])
    assert results["complete"] and results["score"]["mean"] == 0.625 and results["success"]["mean"] == 0.5
    assert results["success"]["ci95"] == wilson_ci95(2, 4)
    assert results["latency_ms"]["p50"] == 1.5 and results["latency_ms"]["p99"] > 4.5
    assert not made([1, 0.5])["complete"]


def test_episodes_are_paired_by_seed():
    c = compare(made([0.5, 0.5, 1, 0.2], first_seed=1), made([0.9, 0.6, 0.4, 1], first_seed=0))
    # Seeds 1, 2, 3 are in both: 0.5 -> 0.6, 0.5 -> 0.4, 1 -> 1.
    assert (c.n, c.wins, c.ties, c.losses) == (3, 1, 1, 1)
    assert c.score == pytest.approx(0.0) and c.success == 0
    assert sorted(c.differences) == [(1, pytest.approx(0.1)), (2, pytest.approx(-0.1))]


def test_pairing_finds_a_small_difference_that_unpaired_means_hide():
    rng = np.random.default_rng(1)
    hard = rng.uniform(0, 0.9, 200)
    first, second = made(hard.tolist()), made((hard + 0.01).tolist())
    assert compare(first, second).score_ci95[0] > 0.009
    assert first["score"]["ci95"][1] > second["score"]["ci95"][0]


def test_nothing_to_compare_is_said():
    with pytest.raises(DataError, match="found 'toy' and 'other'"):
        compare(made([1]), made([1], env="other"))
    with pytest.raises(DataError, match="found 0 to 1 and 10 to 11"):
        compare(made([1, 1]), made([1, 1], first_seed=10))


def test_files_keep_every_number(tmp_path):
    results = made([1, 0.1 + 0.2, 1 / 3, 0])
    write_results(results, tmp_path / "deep" / "r.json")
    read = read_results(tmp_path / "deep" / "r.json")
    assert read["episodes"] == results["episodes"] and read["score"]["mean"] == results["score"]["mean"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected a results file, found"),
        ("[]", "found another file"),
        (json.dumps({"format": "closedform-results", "format_version": 99}), "expected results of version 1, found 99"),
        (json.dumps({"format": "closedform-results", "format_version": 1, "episodes": []}), "expected episodes"),
        (json.dumps({"format": "closedform-results", "format_version": 1, "episodes": [1]}), "found one without env"),
        (json.dumps({**made([1]), "episodes": [{"seed": 1}]}), "found one without episodes: score"),
        (json.dumps({**made([1]), "score": 3}), "found one without score"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(LoadError, match=message):
        read_results(tmp_path / "r.json")
    with pytest.raises(LoadError, match="found nothing there"):
        read_results(tmp_path / "no.json")
