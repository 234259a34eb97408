"""The fuzzer's own harness: whatever a case does, it is told what it was, and the next case runs."""

import os
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from closedform.errors import DataError, LoadError
from fuzz.__main__ import TARGETS, describe, fuzz, main
from fuzz.changes import apply, draw_changes
from fuzz.harness import Worker
from fuzz.worker import Outcome, WrongResultError

HERE = f"{__name__}:Misbehaving"
MEMORY = 1 << 30


class Misbehaving:
    """Does what its case says."""

    def __init__(self, folder):
        (folder / "original").write_text("")

    def draw(self, rng):
        return {"do": "ok", "number": int(rng.integers(1000))}

    def check(self, case, folder):
        match case["do"]:
            case "raise":
                raise KeyError("x")
            case "refuse":
                raise DataError("no")
            case "lie":
                raise WrongResultError("2 is not 1")
            case "hang":
                time.sleep(1e6)
            case "crash":
                os.abort()
            case "allocate":
                np.ones(4 * MEMORY // 8)
            case "refuse for want of memory":
                try:
                    np.ones(4 * MEMORY // 8)
                except MemoryError as error:
                    raise LoadError("too large") from error
            case "exit":
                os._exit(3)
            case _:
                assert not list(folder.iterdir())
                (folder / "left").write_text("")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    made = Worker({"it": HERE}, tmp_path_factory.mktemp("worker") / "w", memory=MEMORY)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("do", "kind", "detail"),
    [
        ("ok", "ok", ""),
        ("raise", "exception", "KeyError: 'x'"),
        ("refuse", "refused", "DataError: no"),
        ("lie", "wrong", "WrongResultError: 2 is not 1"),
        ("allocate", "memory", "MemoryError"),
        ("refuse for want of memory", "memory", "LoadError: too large"),
        ("crash", "crash", "ended with -6"),
        ("exit", "crash", "ended with 3"),
    ],
)
def test_what_a_case_does_is_told(worker, do, kind, detail):
    if kind == "memory" and not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell how large a process is")
    outcome = worker.run("it", None, {"do": do})
    assert outcome.kind == kind and detail in outcome.detail
    assert outcome.failed == (kind not in ("ok", "refused"))
    assert worker.run("it", None, {"do": "ok"}).kind == "ok"


def test_a_hang_is_told_after_a_second_try(worker):
    outcome = worker.run("it", None, {"do": "hang"}, seconds=0.2)
    assert outcome.kind == "hang" and "test_harness.py" in outcome.where and outcome.case == {"do": "hang"}
    assert worker.run("it", None, {"do": "ok"}).kind == "ok"


def test_the_seed_makes_the_case(worker):
    cases = []
    for seed in (1, 2, 1):
        worker.begin("it", seed)
        worker.result()
        cases.append(worker.drawn)
        worker.result()
    assert cases[0] == cases[2] != cases[1]


def test_cases_are_run_until_time_is_up(worker):
    for seconds in (0.0, 0.3):
        outcomes = list(fuzz([worker], ["it"], seconds, seed=7))
        assert len(outcomes) >= 1 and {outcome.kind for outcome in outcomes} == {"ok"}
        assert [outcome.seed for outcome in outcomes] == list(range(7, 7 + len(outcomes)))


def test_a_failure_says_how_to_see_it_again():
    text = describe(Outcome("formats", 3, "exception", "KeyError: 'x'", "closedform/a.py:1 in f", {"format": "npz"}))
    assert "python -m fuzz --replay formats 3" in text and "closedform/a.py:1 in f" in text
    assert '"case": {"format": "npz"}' in text


def test_unknown_targets_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "nothing"])
    assert f"expected targets of {', '.join(TARGETS)}" in capsys.readouterr().err


def test_changes_can_be_drawn_and_applied_to_anything(tmp_path):
    kinds = Counter()
    for seed in range(300):
        root = tmp_path / str(seed)
        root.mkdir()
        (root / "a.json").write_text('{"x": [1, {"y": "[2]"}], "z": 0.5}')
        (root / "b").write_bytes(bytes(range(200)))
        before = {path.name: path.read_bytes() for path in root.iterdir()}
        changes = draw_changes(np.random.default_rng(seed), root)
        apply(root, changes)
        after = {path.name: path.is_file() and path.read_bytes() for path in root.iterdir()}
        kinds.update(change["do"] for change in changes)
        kinds["changed"] += before != after
    assert kinds["changed"] > 280 and min(kinds[name] for name in ("flip", "json", "json_delete", "remove", "link")) > 3
