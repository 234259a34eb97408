"""Sweeps: the same with any workers, resumed after an interruption, and bad input in one line."""

import csv
import dataclasses
import json
import os

import pytest

from closedform import save_demos
from closedform.cli import main
from closedform.evaluation import EvaluationResult, Study, sweep
from closedform.evaluation.space import describe, read_space
from closedform.evaluation.sweep_report import sweep_rows
from tests.evaluation.test_evaluate import ROOT
from tests.evaluation.toy import reach_demos

REACH = "tests.evaluation.toy:Reach"
GOOD = {"bandwidth": 0.09}
BAD = {
    "n_execute": 12,
    "bandwidth": 50.0,
    "frames": "world",
    "metric": "euclidean",
    "goal_weight": 0.0,
    "relation_weight": 0.0,
}


@pytest.fixture
def demos(tmp_path):
    save_demos(reach_demos(), tmp_path / "demos")
    return str(tmp_path / "demos")


def studies_of(demos, configurations, n_episodes):
    return Study.make_each(REACH, demos, "default", configurations, seed=0, n_episodes=n_episodes)


def facts(result):
    rows = [{**row, "plan_p50_ms": None} for row in sweep_rows(result)]
    episodes = [[dataclasses.replace(row, latency_ms=()) for row in one.episodes] for one in result.results]
    return rows, episodes, result.eliminated, result.best


def test_a_sweep_is_the_same_with_any_number_of_workers(demos, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src")]))  # of the processes
    configurations = [GOOD, BAD, {"tau": 0.3}]
    alone, together = (sweep(studies_of(demos, configurations, 8), configurations, look=4, workers=n) for n in (1, 2))
    assert facts(alone) == facts(together)


def test_the_episodes_are_those_of_eval_and_worse_ones_stop_early(demos, tmp_path):
    configurations = [BAD, GOOD]
    found = sweep(studies_of(demos, configurations, 60), configurations, tmp_path / "sweep", workers=1)
    assert found.best == 1 and [one.index for one in found.eliminated] == [0]
    worse, better = found.results
    assert better.complete and not worse.complete and len(worse.episodes) == found.eliminated[0].n_episodes < 60
    alone = Study.make(REACH, demos, "default", ["bandwidth=0.09"], seed=0, n_episodes=60).run(None, 1)
    assert [dataclasses.replace(row, latency_ms=()) for row in alone.episodes] == [
        dataclasses.replace(row, latency_ms=()) for row in better.episodes
    ]
    paired = found.against_best(0)
    assert paired.n == len(worse.episodes) and paired.score_ci95[1] < 0
    assert found.order == [1, 0]
    everything = sweep(studies_of(demos, configurations, 20), configurations, alpha=0, workers=1)
    assert not everything.eliminated and all(result.complete for result in everything.results)


def test_an_interrupted_sweep_resumes(demos, tmp_path, monkeypatch):
    configurations, folder = [GOOD, {"tau": 0.3}], tmp_path / "sweep"
    whole = sweep(studies_of(demos, configurations, 8), configurations, look=4, workers=1)
    studies = studies_of(demos, configurations, 8)
    n_run = []

    def counted(self, seeds, run=sweep.__globals__["EpisodesJob"].run):
        if len(n_run) == 5:
            raise KeyboardInterrupt
        n_run.append(seeds)
        return run(self, seeds)

    monkeypatch.setattr(sweep.__globals__["EpisodesJob"], "run", counted)
    with pytest.raises(KeyboardInterrupt):
        sweep(studies, configurations, folder, look=4, workers=1)
    assert sum(len(EvaluationResult.load(path).episodes) for path in folder.iterdir()) == 5
    n_run.clear()
    monkeypatch.undo()
    assert facts(sweep(studies_of(demos, configurations, 8), configurations, folder, look=4, workers=1)) == facts(whole)


def test_a_sweep_on_the_command_line(demos, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.json").write_text(json.dumps({"tau": [0.0, 0.07], "n_execute": [2, 4]}))
    arguments = ["sweep", "space.json", "--env", REACH, "--demos", demos, "--episodes", "4", "--look", "2"]
    main([*arguments, "--workers", "1", "--set", "bandwidth=0.2"])
    said = capsys.readouterr().out
    assert "best: tau=" in said and "is at most 0.05" in said and "16 of 16 episodes run" in said
    rows = list(csv.DictReader((tmp_path / "sweep" / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 4 and rows[0]["rank"] == "1" and {row["tau"] for row in rows} == {"0.0", "0.07"}
    content = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert content["best"] == rows[0]["file"] and content["alpha"] == 0.05
    assert (tmp_path / "sweep" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    one = EvaluationResult.load(tmp_path / "sweep" / rows[0]["file"])
    assert one.subject.parameters["bandwidth"] == 0.2 and one.subject.parameters["tau"] == float(rows[0]["tau"])
    main([*arguments, "--workers", "1", "--set", "bandwidth=0.2"])  # there is nothing left to run
    assert "16 of 16 episodes run" in capsys.readouterr().out


def test_a_space_is_a_grid_or_several(tmp_path):
    path = tmp_path / "space.json"
    path.write_text(json.dumps([{"tau": [0.1, 0.2]}, {"n_execute": [2], "metric": ["euclidean"]}]))
    assert read_space(path) == [{"tau": 0.1}, {"tau": 0.2}, {"n_execute": 2, "metric": "euclidean"}]
    assert describe(read_space(path)[2]) == 'n_execute=2 metric="euclidean"'


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        ('{"tua": [1, 2]}', [], "has no parameter 'tua': did you mean tau"),
        ('{"tau": []}', [], "tau: expected a list of values, found []"),
        ('{"tau": 0.1}', [], "tau: expected a list of values, found 0.1"),
        ('{"tau": ["soft", 0.1]}', [], "tau: expected float, found 'soft'"),
        ('{"tau": [0.1, -1]}', [], "tau: expected 0 to 1e6, found -1"),
        ('{"tau": [0.1]}', [], "expected at least two configurations to compare, found 1"),
        ('{"tau": [0.1, 0.1]}', [], "expected each configuration once, found tau=0.1 twice"),
        ("{}", [], "expected at least two configurations to compare, found 1"),
        ("[]", [], "found an empty list"),
        ("3", [], "expected a sweep such as"),
        ("{", [], "expected a sweep such as"),
        (json.dumps({"tau": list(range(300))}), [], "expected at most 256 configurations, found 300"),
        ('{"n_action_steps": [4, 8], "n_execute": [8]}', [], "n_execute: expected at most n_action_steps (4), found 8"),
        ('{"tau": [0.1, 0.2]}', ["--alpha", "1"], "alpha: expected 0 or more and less than 1, found 1.0"),
        ('{"tau": [0.1, 0.2]}', ["--look", "0"], "look: expected at least 1 episode between decisions, found 0"),
        ('{"tau": [0.1, 0.2]}', ["--set", "tau=1"], "--set: expected parameters that are not in"),
        ('{"tau": [0.1, 0.2]}', ["--policy", "pusht-dit"], "is a saved policy with its own demonstrations"),
        ('{"tau": [0.1, 0.2]}', ["--ray", "here"], "ray: expected an address HOST:PORT, or auto, found 'here'"),
    ],
)
def test_bad_input_to_a_sweep_is_one_line(space, arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.json").write_text(space)
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "space.json", "--demos", "pusht-embedded", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1
