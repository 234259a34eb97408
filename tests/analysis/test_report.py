"""Reports: everything in one file."""

import json
import re
import shutil
import sys
from dataclasses import replace

import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import main
from closedform.errors import LoadError
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.study import Study
from tests.evaluation.toy import reach_demos

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


def test_a_report_is_one_file_with_figures_videos_and_failures(results, tmp_path, capsys):
    page = tmp_path / "deep" / "report.html"
    main(["report", str(results / "good.json"), str(results / "bad.json"), "-o", str(page), "--env", TOY])
    assert "report: " in capsys.readouterr().out
    text = page.read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', text)
    assert sources and all(source.startswith("data:") for source in sources)
    assert text.count("<video") == 6 and text.count("data:video/mp4;base64,") == 6
    assert "bad minus good" in text and re.search(r"[1-5] of 5 episodes", text)
    assert "None." in text.split("<h2>good</h2>")[1].split("<h2>bad</h2>")[0]
    assert "100000" in text.split("<h2>bad</h2>")[1]


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
    assert "Rollouts could not be rerun" in text and "score [95%]" in text


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
    assert "data:image/png" in (tmp_path / "report.html").read_text("utf-8")


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
