"""Reports: everything in one file."""

import json
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.analysis.failures import failure_section
from closedform.analysis.familiarity import measure_familiarity
from closedform.analysis.replay import pictured_demos, replay
from closedform.analysis.report import _chosen, _shares_reaching
from closedform.analysis.stage import Stage
from closedform.cli import main
from closedform.errors import LoadError
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.rollout import roll_out
from closedform.evaluation.study import Study
from tests.evaluation.toy import Reach, reach_demos

TOY = "tests.evaluation.toy:Reach"
LOUD = pytest.mark.filterwarnings("default::closedform.errors.ClosedFormWarning")  # a line, as for users


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a good and a bad policy."""
    folder = tmp_path_factory.mktemp("results")
    save_demos(reach_demos(), folder / "demos")
    for name, settings in (("good", []), ("bad", ["bandwidth=50", "frames=world"])):
        study = Study.make(TOY, str(folder / "demos"), "default", settings, n_episodes=5)
        study.run(folder / f"{name}.json", 1)
    return folder


def rollouts_of(text):
    found = re.search(r'<script type="application/json" id="rollouts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_a_report_is_one_file_with_rollouts_figures_and_failures(results, tmp_path, capsys):
    page = tmp_path / "deep" / "report.html"
    main(["report", str(results / "good.json"), str(results / "bad.json"), "-o", str(page), "--env", TOY])
    assert "report: " in capsys.readouterr().out
    text = page.read_text()
    assert not re.findall(r'(?:src|href)="(?!data:)', text) and "http" not in text and "url(" not in text
    groups = rollouts_of(text)
    assert [group["title"] for group in groups] == ["good", "bad"]
    for group, name in zip(groups, ("good", "bad"), strict=True):
        expected = EvaluationResult.load(results / f"{name}.json").episodes
        assert [row["seed"] for row in group["rollouts"]] == [episode.seed for episode in expected]
        for row, episode in zip(group["rollouts"], expected, strict=True):
            assert row["film"].startswith("data:video/mp4;base64,") and len(row["scores"]) == episode.steps
            assert len(row["plans"]) == len(episode.distances)
            assert row["plans"][0]["distance"] == pytest.approx(episode.distances[0], abs=1e-3)
    assert "bad minus good" in text
    good, bad = text.split("<h2>good</h2>")[1].split("<h2>bad</h2>")
    assert "that failed" not in good and re.search(r"What happened in the [1-5] of 5 that failed", bad)
    assert bad.index('data-group="1"') < bad.index("that failed")  # not first


def test_the_best_moment_is_told_once_if_it_is_the_end():
    def row(steps):
        return EpisodeResult(7, 0.5, False, steps, 1, False, ((3, 1.0),), (0.1, 0.2), (1.0, 1.0))

    for best, expected in ((20, ["0,7,20"]), (12, ["0,7,12", "0,7,20"]), (None, ["0,7,20"])):
        text = failure_section([row(20)], None, 0, {7}, lambda seed, best=best: best)
        assert re.findall('data-open="([^"]+)"', text) == expected


def test_what_a_plan_shows_is_the_plan_and_its_weights():
    policy, environment = ClosedFormPolicy(reach_demos()), Reach()
    stage = Stage(policy.observation_layout, policy.action_layout)
    assert stage.kind == "points" and stage.overlaid
    rollout = roll_out(environment, policy, 5)
    shown = replay(rollout, policy, stage, measure_familiarity(policy, n_windows=40))
    assert len(shown["poses"]["hand"]) == len(rollout.observations)
    for (step, plan), told in zip(rollout.plans, shown["plans"], strict=True):
        assert told["t"] == step and np.allclose(told["chunk"], plan.actions, atol=1e-3)
        named = sum(row["w"] for row in told["behind"]) + sum(row.get("more", [0, 0])[1] for row in told["behind"])
        assert named == pytest.approx(1, abs=0.01)
    whole = [plan for plan in shown["plans"] if len(plan["ghosts"]) == 1]  # one demonstration is the plan
    assert whole and all(np.allclose(p["ghosts"][0]["path"], p["chunk"], atol=2e-3) for p in whole)
    assert pictured_demos(policy, [shown], stage).keys() == {r["e"] for p in shown["plans"] for r in p["behind"]}


def test_the_curve_of_scores_tells_the_share_that_reaches_each():
    scores = [1.0, 0.25, 1.0, 0.5]
    x, y = _shares_reaching(scores)
    for score in (0.1, 0.3, 0.6, 0.99, 1.0):
        assert y[np.searchsorted(x, score, side="left") - 1] == np.mean(np.array(scores) >= score)
    assert _shares_reaching([1.0, 1.0]) == ([0.0, 1.0], [1.0, 1.0])  # no drop where all reach the best


def test_of_many_episodes_those_are_shown_that_tell_most():
    rows = tuple(EpisodeResult(seed, seed / 100, seed > 60, 9, 1, False, (), (0.1,), (1.0,)) for seed in range(100))
    chosen = [row.seed for row in _chosen(rows, 20)]
    assert len(chosen) <= 20 and chosen == sorted(chosen) and {0, 1, 2, 3, 99} <= set(chosen)
    assert _chosen(rows[:7], 20) == list(rows[:7])


@LOUD
def test_without_its_policy_a_report_says_so_and_shows_the_rest(tmp_path, capsys):
    ClosedFormPolicy(reach_demos()).save(tmp_path / "policy")
    Study.make(TOY, None, str(tmp_path / "policy"), n_episodes=2).run(tmp_path / "r.json", 1)
    (tmp_path / "policy").rename(tmp_path / "gone")
    main(["report", str(tmp_path / "r.json"), "-o", str(tmp_path / "report.html"), "--env", TOY])
    said = capsys.readouterr().err
    assert said.startswith("closedform: r: rollouts could not be rerun: ") and said.count("\n") == 1
    assert "found no file or folder there" in said
    text = (tmp_path / "report.html").read_text()
    assert "Rollouts could not be rerun" in text and "mean score" in text


def test_nothing_to_report_is_said(capsys):
    with pytest.raises(SystemExit):
        main(["report", "nowhere.json"])
    assert "nowhere.json: expected a results file, found nothing there" in capsys.readouterr().err


@LOUD
@pytest.mark.parametrize("name", ["intruder:run", "builtins:breakpoint", "os:abort", TOY])
def test_code_that_only_a_results_file_names_is_not_run(results, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "intruder.py").write_text("open('ran', 'w')\ndef run(): open('ran', 'w')\n")
    good = json.loads((results / "good.json").read_text())
    (tmp_path / "r.json").write_text(json.dumps({**good, "env": name}))
    main(["report", "r.json", "-o", "report.html"])
    assert f"code named by a file is run only if you name it as well (--env {name})" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists() and "intruder" not in sys.modules
    assert "Rollouts could not be rerun" in (tmp_path / "report.html").read_text()
    with pytest.raises(LoadError, match="code named by a file"):
        Study.of(EvaluationResult.load(tmp_path / "r.json"))


def test_an_environment_that_no_results_file_names_is_refused(results, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(results / "good.json"), "--env", "os:abort"])
    assert f"env: expected the environment of a results file, {TOY}, found 'os:abort'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["/dev/tty", "\ud800", "no\0where"])
def test_what_a_results_file_names_is_read_only_if_it_is_a_file_or_folder(results, name):
    good = EvaluationResult.load(results / "good.json")
    demos, policy = dict(good.subject.demos), {"name": name, "class": "x"}
    of_demos = replace(good.subject, demos={**demos, "name": name})
    of_policy = replace(good.subject, demos={**demos, "name": None}, policy=policy)
    for subject in (of_demos, of_policy):
        with pytest.raises(LoadError, match="found no file or folder there"):
            Study.of(replace(good, subject=subject), TOY)


@LOUD
@pytest.mark.parametrize("name", ["$x^{$", "$$", "a\\$b$", "\udcff", "\N{SNOWMAN}_{}^"])
def test_names_are_drawn_as_they_are(results, tmp_path, name):
    shutil.copy(results / "good.json", tmp_path / f"{name}.json")
    main(["report", str(tmp_path / f"{name}.json"), "-o", str(tmp_path / "report.html")])
    assert "<svg" in (tmp_path / "report.html").read_text("utf-8")


def test_a_report_that_fails_leaves_the_old_one(results, tmp_path, monkeypatch, capsys):
    page = tmp_path / "report.html"
    page.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SystemExit):
        main(["report", str(results / "good.json"), "-o", str(page), "--env", TOY])
    assert "report.html: expected to write it, found No space left on device; nothing was" in capsys.readouterr().err
    assert page.read_text() == "old" and list(tmp_path.iterdir()) == [page]
