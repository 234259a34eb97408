"""Reports: everything in one file."""

import re

import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import main
from closedform.evaluation.study import Study
from tests.evaluation.toy import reach_demos


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of a good and a bad policy."""
    folder = tmp_path_factory.mktemp("results")
    save_demos(reach_demos(), folder / "demos")
    for name, settings in (("good", []), ("bad", ["bandwidth=50", "frames=world"])):
        study = Study.make("tests.evaluation.toy:Reach", str(folder / "demos"), "default", settings, n_episodes=5)
        study.run(folder / f"{name}.json", 1)
    return folder


def test_a_report_is_one_file_with_figures_videos_and_failures(results, tmp_path, capsys):
    page = tmp_path / "deep" / "report.html"
    main(["report", str(results / "good.json"), str(results / "bad.json"), "-o", str(page)])
    assert "report: " in capsys.readouterr().out
    text = page.read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', text)
    assert sources and all(source.startswith("data:") for source in sources)
    assert text.count("<video") == 6 and text.count("data:video/mp4;base64,") == 6
    assert "bad less good" in text and re.search(r"[1-5] of 5 episodes", text)
    assert "None." in text.split("<h2>good</h2>")[1].split("<h2>bad</h2>")[0]
    assert "100000" in text.split("<h2>bad</h2>")[1]


def test_without_its_policy_a_report_says_so_and_shows_the_rest(results, tmp_path):
    ClosedFormPolicy(reach_demos()).save(tmp_path / "policy")
    Study.make("tests.evaluation.toy:Reach", None, str(tmp_path / "policy"), n_episodes=2).run(tmp_path / "r.json", 1)
    (tmp_path / "policy").rename(tmp_path / "gone")
    main(["report", str(tmp_path / "r.json"), "-o", str(tmp_path / "report.html")])
    text = (tmp_path / "report.html").read_text()
    assert "Rollouts could not be run again" in text and "score [95%]" in text


def test_nothing_to_report_is_said(capsys):
    with pytest.raises(SystemExit):
        main(["report", "nowhere.json"])
    assert "nowhere.json: expected a results file, found nothing there" in capsys.readouterr().err
