"""What version 0.1.0 saved still loads, plans what it planned then, and compares.

`tests/before` was written by that version: policies with the plans of an agent and samples, made both by compiled code
and on the reference, and the results of an evaluation.
"""

from pathlib import Path

import numpy as np
import pytest

from closedform import load_policy
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult

BEFORE = Path(__file__).parent / "before"
POLICIES = sorted(path.name for path in BEFORE.iterdir() if path.is_dir())
SCALES = {"planar": (512.0, 512.0, 1.0), "spatial": (1.0,) * 8}  # about the spans of the actions


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_plans_what_it_planned(name, both_ways):
    way = "kernel" if both_ways == "compiled" else "reference"
    with np.load(BEFORE / "plans.npz") as plans:
        observations = plans[f"{name}.observations"]
        expected, sampled = plans[f"{name}.{way}"], plans[f"{name}.{way}.sample"]
    tolerance = 1e-4 if way == "kernel" else 1e-9  # processors differ in the last bits of sums
    scale = np.array(SCALES[name.split("_")[0]])
    policy = load_policy(BEFORE / name)
    agent = policy.agent(seed=3)
    found = np.array([agent.plan(observation).actions for observation in observations])
    np.testing.assert_allclose(found / scale, expected / scale, atol=tolerance)
    np.testing.assert_allclose(policy.sample(observations, 2, seed=4) / scale, sampled / scale, atol=tolerance)


def test_results_compare(tmp_path):
    results = EvaluationResult.load(BEFORE / "results.json")
    assert len(results.episodes) == 2
    assert compare(results, results).ties == 2
    results.save(tmp_path / "results.json")
    assert (tmp_path / "results.json").read_bytes() == (BEFORE / "results.json").read_bytes()
