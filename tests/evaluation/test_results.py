"""Results: intervals, comparisons, files."""

import copy
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.analysis.report import _charts, _comparisons, _table
from closedform.cli.evaluation import print_results
from closedform.errors import DataError, LoadError
from closedform.evaluation.comparison import compare
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import Interval, bootstrap_ci95, wilson_ci95
from closedform.evaluation.origin import Origin
from closedform.evaluation.subject import Subject

SUBJECT = Subject(env="toy", policy={"name": "default"}, demos={}, parameters={}, n_episodes=4, seed=0)
ODD = [None, True, -1, 2**70, 10**400, 1e308, float("nan"), float("inf"), "", "$x^{$", "\ud800", [], [[]], [1, 2], {}]


def made(scores, first_seed=0, env="toy"):
    episodes = [
        EpisodeResult(
            seed=first_seed + i,
            score=score,
            success=score == 1,
            steps=10,
            most_repeated=1,
            loop=False,
            demonstrations=(),
            distances=(0.5,),
            latency_ms=(1.0, 2.0 + i),
        )
        for i, score in enumerate(scores)
    ]
    return EvaluationResult.of(replace(SUBJECT, env=env), episodes, Origin())


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
    assert results.complete and results.score.mean == 0.625
    assert results.success == Interval(0.5, *wilson_ci95(2, 4))
    assert results.latency_p50_ms == 1.5 and results.latency_p99_ms > 4.5
    assert not made([1, 0.5]).complete
    with pytest.raises(DataError, match="expected at least one episode to summarize, found none"):
        made([])


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
    assert first.score.high > second.score.low


def test_nothing_to_compare_is_said():
    with pytest.raises(DataError, match="found 'toy' and 'other'"):
        compare(made([1]), made([1], env="other"))
    with pytest.raises(DataError, match="found 0 to 1 and 10 to 11"):
        compare(made([1, 1]), made([1, 1], first_seed=10))


def test_files_keep_every_number(tmp_path):
    results = made([1, 0.1 + 0.2, 1 / 3, 0])
    results.save(tmp_path / "deep" / "r.json")
    assert EvaluationResult.load(tmp_path / "deep" / "r.json") == results


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected a results file, found"),
        ("[]", "found another file"),
        (json.dumps({"format": "closedform-results", "format_version": 99}), "expected results of version 1, found 99"),
        (json.dumps({"format": "closedform-results", "format_version": 1, "episodes": []}), "expected episodes"),
        (json.dumps({"format": "closedform-results", "format_version": 1, "episodes": [1]}), "found one without env"),
        (json.dumps({**made([1]).to_json(), "episodes": [{"seed": 1}]}), r"found one without episodes\[0\].score"),
        (json.dumps({**made([1]).to_json(), "score": 3}), "expected score to be an object, found 3"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(LoadError, match=message):
        EvaluationResult.load(tmp_path / "r.json")
    with pytest.raises(LoadError, match="found nothing there"):
        EvaluationResult.load(tmp_path / "no.json")


def places(value, path=()):
    """Where every value of nested lists and dictionaries is."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def whole():
    """Results with every field there is."""
    results = made([1, 0.5, 0.5, 0])
    described = replace(results.episodes[1], neural_shares=(0.25, 1.0), extra={"turns": [[3, 0.5, 30]]})
    episodes = (results.episodes[0], described, *results.episodes[2:])
    return replace(results, episodes=episodes, origin=Origin(machine={"cores": 2}, n_together=2))


RESULTS = json.loads(json.dumps(whole().to_json()))
NUMBERS = st.floats(-1e100, 1e100)
DISTANCES = NUMBERS | st.just(float("inf"))
WHOLE = st.integers(-(2**53), 2**53)
WORDS = st.text(max_size=5)
JSON = st.dictionaries(WORDS, st.none() | st.booleans() | WHOLE | NUMBERS | WORDS | st.lists(NUMBERS), max_size=3)


def tuples(values):
    return st.lists(values, min_size=1, max_size=4).map(tuple)


@st.composite
def drawn_results(draw):
    """Results with anything that an evaluation could find."""
    first, n = draw(st.integers(0, 2**32 - 4)), draw(st.integers(1, 4))
    seeds = draw(st.lists(st.integers(first, first + n - 1), min_size=1, max_size=n, unique=True))
    episodes = [
        EpisodeResult(
            seed=seed,
            score=draw(NUMBERS | WHOLE),
            success=draw(st.booleans()),
            steps=draw(st.integers(1, 2**53)),
            most_repeated=draw(st.integers(0, 2**53)),
            loop=draw(st.booleans()),
            demonstrations=draw(st.just(()) | tuples(st.tuples(WHOLE, NUMBERS))),
            distances=draw(tuples(DISTANCES)),
            latency_ms=draw(tuples(NUMBERS)),
            neural_shares=draw(st.none() | tuples(NUMBERS)),
            extra={f"my {key}": value for key, value in draw(JSON).items()},
        )
        for seed in seeds
    ]
    demos, policy = {**draw(JSON), "name": draw(st.none() | WORDS)}, {"name": draw(WORDS), "class": draw(WORDS)}
    subject = Subject(draw(st.text(min_size=1, max_size=5)), demos, policy, draw(JSON), first, n)
    origin = Origin(
        command=draw(WORDS),
        commit=draw(st.none() | WORDS),
        date=draw(WORDS),
        versions=draw(JSON),
        machine=draw(JSON),
        n_together=draw(st.integers(1, 2**53)),
    )
    return replace(
        EvaluationResult.of(subject, episodes, origin), extra={f"my {key}": value for key, value in draw(JSON).items()}
    )


@settings(max_examples=60)
@given(results=drawn_results())
def test_every_field_survives_a_file(tmp_path, results):
    results.save(tmp_path / "r.json")
    read = EvaluationResult.load(tmp_path / "r.json")
    assert read == results
    read.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()


def test_a_file_has_the_order_and_the_lines_that_it_always_had(tmp_path):
    whole().save(tmp_path / "r.json")
    lines = (tmp_path / "r.json").read_text().splitlines()
    assert lines[:3] == ["{", '  "format": "closedform-results",', '  "format_version": 1,']
    assert lines[-3:] == [f"    {json.dumps(RESULTS['episodes'][-1])}", "  ]", "}"]
    names = "env demos policy parameters seed n_episodes complete score success steps latency_ms"
    names += " command commit date versions machine n_together episodes"
    assert list(RESULTS) == ["format", "format_version", *names.split()]
    row = "seed score success steps most_repeated loop demonstrations distances latency_ms neural_shares turns"
    assert list(RESULTS["episodes"][1]) == row.split() and list(RESULTS["episodes"][0]) == row.split()[:-2]


def test_a_description_cannot_replace_what_was_measured():
    with pytest.raises(DataError, match="new field names, found the existing one 'score'"):
        replace(whole().episodes[0], extra={"score": 1.0})
    with pytest.raises(DataError, match="new names, found the existing one 'episodes'"):
        replace(whole(), extra={"episodes": []})


@pytest.mark.parametrize("row", [None, [], 3, {}, {**RESULTS["episodes"][0], "neural_shares": "all"}])
def test_a_row_that_is_none_is_refused(row):
    with pytest.raises(LoadError, match="an episode: expected"):
        EpisodeResult.from_json(row)


def test_public_names_are_light_and_those_of_their_modules():
    code = """
import sys, closedform
print("closedform.evaluation" in sys.modules)
import closedform.evaluation.evaluate
from closedform.evaluation import EpisodeResult, EvaluationResult, evaluate
print(evaluate is sys.modules["closedform.evaluation.evaluate"].evaluate)
print([m for m in "numba torch h5py matplotlib zarr faiss gymnasium tyro scipy".split() if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["False", "True", "[]", ""]


@settings(max_examples=300)
@given(place=st.sampled_from(sorted(places(RESULTS), key=repr)), value=st.sampled_from(ODD), remove=st.booleans())
def test_a_file_with_odd_fields_is_refused_or_can_be_used(tmp_path, place, value, remove):
    results = copy.deepcopy(RESULTS)
    inner = results
    for key in place[:-1]:
        inner = inner[key]
    if remove:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    (tmp_path / "r.json").write_text(json.dumps(results))
    try:
        read = EvaluationResult.load(tmp_path / "r.json")
    except LoadError:
        return
    assert np.isfinite(compare(read, read).score)
    print_results([read], ["name"])
    assert _table({"name": read}) + _comparisons({"name": read, "other": read})


@pytest.mark.parametrize("distance", [0, 1e90, float("inf")])
def test_figures_bear_every_number_that_is_read(tmp_path, distance):
    results = copy.deepcopy(RESULTS)
    results["episodes"][0] |= {"distances": [distance], "demonstrations": []}
    (tmp_path / "r.json").write_text(json.dumps(results))
    assert "<svg" in _charts({"name": EvaluationResult.load(tmp_path / "r.json")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": RESULTS["episodes"][:1] * 2}, "expected each seed from 0 to 3 at most once"),
        ({"seed": 1}, "expected each seed from 1 to 4 at most once"),
        ({"complete": False}, "expected complete to be True with 4 of 4 episodes, found False"),
        (
            {"score": {"mean": 0.6, "ci95": [0.5, 0.7]}},
            "expected score.mean to be that of the episodes, 0.5, found 0.6",
        ),
        ({"demos": {"name": 5}}, "expected demos.name to be a name or null, found 5"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, change, message):
    (tmp_path / "r.json").write_text(json.dumps({**RESULTS, **change}))
    with pytest.raises(LoadError, match=message):
        EvaluationResult.load(tmp_path / "r.json")
