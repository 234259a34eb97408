"""Inputs that once broke something do so no more: what the fuzzer and others found, kept as cases of its targets."""

import json
from pathlib import Path

import pytest

from fuzz.__main__ import TARGETS
from fuzz.harness import Worker

CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text(encoding="utf-8"))


def test_every_target_has_cases():
    assert {entry["target"] for entry in CORPUS} == set(TARGETS)


@pytest.mark.parametrize("target", TARGETS)
def test_past_failures_stay_fixed(target, tmp_path):
    worker = Worker({target: TARGETS[target]}, tmp_path / "worker")
    failed = []
    try:
        for entry in CORPUS:
            if entry["target"] == target:
                outcome = worker.run(target, None, entry["case"])
                if outcome.failed:
                    failed.append(f"{entry['what']}: {outcome.kind}: {outcome.detail} at {outcome.where}")
    finally:
        worker.close()
    assert not failed, "\n".join(failed)
