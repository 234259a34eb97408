import json
import sys

import numpy as np
import pytest

import check
import energy
import push_t
import readme
import report
import timing
from breakdown import measure_parts
from closedform import ClosedFormPolicy
from tests.conftest import planar_demos


def run_with(ratio: float, **others: float) -> dict:
    return {"sections": {"push_t": {"ratios": {"direct JAX / kernel": ratio, **others}}, "no ratios": {}}}


def regressed(before: dict, now: dict) -> list[str]:
    return [comparison.name for comparison in check.compare(before, now) if comparison.regressed]


def test_an_equal_or_better_ratio_passes():
    assert regressed(run_with(28.0), run_with(28.0)) == []
    assert regressed(run_with(28.0), run_with(100.0)) == []
    assert regressed(run_with(28.0), run_with(28.0 / 1.49)) == []


def test_a_ratio_that_is_worse_by_more_than_the_tolerance_fails():
    assert regressed(run_with(28.0), run_with(28.0 / 1.51)) == ["push_t: direct JAX / kernel"]


def test_what_only_one_run_measured_is_listed_and_does_not_fail():
    comparisons = check.compare(run_with(28.0, compiled=500.0), run_with(28.0, new=3.0))
    assert [(c.name, c.regressed) for c in comparisons] == [
        ("push_t: direct JAX / kernel", False),
        ("push_t: compiled", False),
        ("push_t: new", False),
    ]
    assert "not measured" in str(comparisons[1])


@pytest.mark.parametrize(("before", "code"), [(28.0, None), (50.0, 1)])
def test_the_command_fails_where_a_ratio_does(before, code, tmp_path, monkeypatch, capsys):
    for name, ratio in (("baseline", before), ("fresh", 28.0)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run_with(ratio)))
    files = ["--baseline", f"{tmp_path}/baseline.json", "--fresh", f"{tmp_path}/fresh.json"]
    monkeypatch.setattr(sys, "argv", ["check.py", *files])
    if code is None:
        check.main()
    else:
        with pytest.raises(SystemExit) as exit_info:
            check.main()
        assert exit_info.value.code == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (1 if code else 0)
    assert not code or "direct JAX / kernel: 50 before, 28 now, 1.79 times worse" in lines[0]


def test_runs_without_a_ratio_in_common_fail(tmp_path, monkeypatch):
    for name, sections in (("baseline", run_with(28.0)["sections"]), ("fresh", {})):
        (tmp_path / f"{name}.json").write_text(json.dumps({"sections": sections}))
    files = ["--baseline", f"{tmp_path}/baseline.json", "--fresh", f"{tmp_path}/fresh.json"]
    monkeypatch.setattr(sys, "argv", ["check.py", *files])
    with pytest.raises(SystemExit, match="nothing was checked"):
        check.main()


class Words:
    def measure(self, quick: bool) -> dict:
        return {"value": 1.0}

    def report(self, facts: dict) -> str:
        return "## Words\n\n" + report.table(["", "ms"], [["kernel", report.number(facts["value"])]])


def test_the_report_names_what_made_it_and_has_every_section():
    results = {
        "command": "make bench",
        "commit": "abc1234",
        "date": "2026-01-01T00:00:00Z",
        "quick": True,
        "machine": {"processor": "A core", "cores": 2, "cores_used": 1, "system": "Linux"},
        "versions": {"python": "3.11", "numpy": "2.0"},
        "seconds": {"words": 12.0},
        "sections": {"words": {"value": 0.36}},
    }
    text = report.markdown(results, {"words": Words()})
    for expected in (
        "make bench",
        "abc1234",
        "A core, 1 of 2 cores",
        "numpy 2.0",
        "12 s",
        "| kernel | 0.360 |",
        "quick",
    ):
        assert expected in text
    assert "quick" not in report.markdown({**results, "quick": False}, {"words": Words()})


def test_tables_say_what_was_missed_and_leave_out_what_is_not_told():
    row = {"p50": 0.36, "p99": 0.9, "worst": 1.1, "calls": 10_000, "over_kernel": 1.0}
    told = push_t.latency_table({"kernel": {**row, "memory_mb": 84.0, "ready_s": 0.4, "joules": None}})
    assert "| kernel | 0.360 | 0.900 | 1.10 | 10,000 | 1.00 x | 84.0 | 0.400 |" in told
    assert "energy" not in told
    assert "**missed**" in push_t.target_line("direct JAX", {"over_kernel": 24.0, "at_least": 25.0})
    assert "reached" in push_t.target_line("direct JAX", {"over_kernel": 29.0, "at_least": 25.0})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.01234, "0.0123"),
        (0.36, "0.360"),
        (9.996, "10.0"),
        (28.65, "28.6"),
        (99.97, "100"),
        (15600.0, "15,600"),
    ],
)
def test_numbers_have_three_digits_that_matter(value, text):
    assert report.number(value) == text


def test_contenders_take_turns_and_all_calls_are_made():
    calls: list[tuple[str, int]] = []
    contenders = {
        name: timing.Timed(lambda i, name=name: calls.append((name, i)), n) for name, n in (("a", 60), ("b", 7))
    }
    rows = timing.summarize(contenders, "test")
    assert [rows["a"]["calls"], rows["b"]["calls"]] == [60, 7]
    timed = calls[2:]  # after one of each that warms up
    assert [i for name, i in timed if name == "a"] == list(range(60))
    assert timed[0] == ("a", 0) and ("b", 0) in timed[:20] and timed[-1] == ("b", 6)
    assert rows["a"]["p50"] <= rows["a"]["p99"] <= rows["a"]["worst"]


def test_energy_is_read_where_the_machine_tells(tmp_path):
    assert energy.read_counters(tmp_path) == {}
    assert energy.joules_between({}, {}) is None
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text("9000000\n")
        (tmp_path / name / "max_energy_range_uj").write_text("10000000\n")
    before = energy.read_counters(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("1500000\n")
    assert energy.joules_between(before, energy.read_counters(tmp_path)) == 2.5  # the counter wrapped


def test_the_pages_say_what_the_committed_results_say():
    cpu, gpu, runs = (
        json.loads((readme.RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in readme.NAMES
    )
    assert readme.with_run(runs, cpu) == runs, "run python benchmarks/readme.py"
    for path, text in readme.pages(cpu, gpu, runs).items():
        assert path.read_text(encoding="utf-8") == text, "run python benchmarks/readme.py"
    again = {**cpu, "date": "later"}
    assert len(readme.with_run(runs, again)) == len(runs) + 1


def test_ratios_are_told_as_the_range_over_the_machines():
    runs = [
        {"kernel_ms": 0.3, "ratios": {"push_t: direct JAX / kernel": 25.0}},
        {"ratios": {"push_t: direct JAX / kernel": 33.0}},
    ]
    assert readme.spread(runs, "direct JAX") == "25.0 to 33.0"
    assert readme.spread(runs[:1], "direct JAX") == "25.0"


def test_a_ratio_fails_only_where_it_is_worse_than_on_every_machine_so_far():
    runs = [{"ratios": {"push_t: direct JAX / kernel": 14.0}}]
    before = run_with(28.0)
    assert [c.regressed for c in check.compare(before, run_with(14.0 / 1.49), runs)] == [False]
    assert [c.regressed for c in check.compare(before, run_with(14.0 / 1.51), runs)] == [True]


def test_what_a_plan_takes_is_compared_whatever_the_machine():
    def counted(exponentials: float) -> dict:
        return {"sections": {"costs": {"plan": {"exponentials_computed": exponentials, "plan_us": 1.0}}}}

    assert regressed(counted(5000.0), counted(7400.0)) == []
    assert regressed(counted(5000.0), counted(7600.0)) == ["costs: plans per exponentials_computed"]


def test_the_parts_of_a_plan_can_be_taken_apart(monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0")
    demos = planar_demos(np.random.default_rng(0))
    policy = ClosedFormPolicy(demos, "paper", n_neighbors=50)
    measured = measure_parts(policy, policy.windows(demos[0].observations[3:5]), rounds=2)
    assert measured["plan_us"] > 0 and measured["exponentials_needed"] > 0
    assert set(measured["parts_us"]) == {"Python", "search", "metric", "transfer", "diffusion", "everything else"}
