"""The study of the monitor: over real sockets, resumed where it stopped, and counted as its page says."""

import json

import pytest

from closedform import ClosedFormPolicy, load_demos
from closedform.evaluation.pusht import PushT
from tests.conftest import slow_on_the_reference

pytest.importorskip("websockets", reason="needs the extra serve")
pytest.importorskip("msgpack", reason="needs the extra serve")
from studies import monitor
from studies.monitor import Outcome
from studies.runner import Runner


@slow_on_the_reference
def test_episodes_run_over_the_network_once(tmp_path, monkeypatch):
    pytest.importorskip("gym_pusht", reason="needs the extra pusht")
    monkeypatch.setattr(PushT, "max_steps", 12)
    monkeypatch.setattr(monitor, "FIRST_SEED", 500)
    demos = load_demos("pusht-embedded")[:20]
    policy = ClosedFormPolicy(demos, n_obs_steps=2, n_diffusion_steps=5)
    runner = Runner("monitor", tmp_path / "out", tmp_path / "work")
    found = {case: monitor.run_case(runner, case, policy, demos, 2) for case in monitor.CASES}
    for case, outcomes in found.items():
        for outcome in outcomes:
            assert outcome.seed >= 500 and outcome.steps == 12 and outcome.asked == [0, 4, 8]
            assert len(outcome.lasted) == 3 and outcome.left[0] == (case == "familiar")
    monkeypatch.setattr(monitor, "run_episode", None)  # nothing is left to run
    assert found == {case: monitor.run_case(runner, case, policy, demos, 2) for case in monitor.CASES}
    monitor.write(runner, found, (1, 4))
    assert "failures announced" in (tmp_path / "out" / "README.md").read_text()
    assert json.loads((tmp_path / "out" / "origin.json").read_text())["false_alarm_rate"] == monitor.RATE


def test_what_counts():
    outcomes = [
        Outcome(1, 0.5, False, 300, [0, 8, 16, 24], [True, False, False, False], [0, 1, 2, 3], "c"),
        Outcome(2, 0.4, False, 300, [0, 8, 16, 24], [True, True, True, True], [1, 2, 0, 1], "c"),
        Outcome(3, 1.0, True, 32, [0, 8, 16, 24], [True, True, True, True], [0, 0, 0, 0], "c"),
        Outcome(4, 1.0, True, 32, [0, 8, 16, 24], [True, True, False, False], [1, 2, 3, 4], "c"),
    ]
    row = monitor.summarize("novel", outcomes)
    assert (row["success_n"], row["success_of"], row["first_n"], row["first_of"]) == (2, 4, 2, 4)
    assert (row["second_n"], row["second_of"]) == (3, 4)
    assert (row["announced_n"], row["announced_of"], row["steps_ahead"]) == (1, 2, 300 - 24)
    assert (row["disturbed_n"], row["disturbed_of"]) == (1, 2)
    assert row["alarms"] == pytest.approx(10 / 16) and row["alarms_left"] == pytest.approx(5 / 11)
