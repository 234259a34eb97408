"""The command line: help, facts, and one line for every mistake."""

import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout, __version__, load_demos, save_demos
from closedform.cli import main
from closedform.cli.policy import Info
from tests.conftest import planar_demos


@pytest.fixture
def saved(tmp_path):
    ClosedFormPolicy(planar_demos(np.random.default_rng(0))).save(tmp_path / "policy")
    return str(tmp_path / "policy")


def test_info_describes_a_policy(saved, capsys):
    main(["info", saved])
    text = capsys.readouterr().out
    assert "ClosedFormPolicy of 6 episodes, 180 windows" in text
    assert "block angle (1)" in text and "bandwidth" in text


def test_info_as_json(saved, capsys):
    main(["info", saved, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"] == 6 and facts["parameters"]["n_diffusion_steps"] == 100


def test_version_and_help(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"closedform {__version__}\n"
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert not stop.value.code and "info" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "Expected one of {compare, convert, data, edit, eval, explain, fit, generate, index, info, inspect, report",
        ),
        (["inform"], "inform"),
        (["convert", "nowhere", "there"], "found nothing there"),
        (["convert", "nowhere"], "PATH"),
        (["inspect", "nowhere"], "found nothing there"),
        (["data", "get", "nothing"], "unknown dataset 'nothing': expected one of pusht"),
        (["data", "get"], "expected the name of a dataset"),
        (["data", "eat", "pusht"], "eat"),
        (["info"], "STR"),
        (["info", "nowhere", "--yaml"], "--yaml"),
        (["info", "nowhere"], "found no config.json"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments, message):
    done = subprocess.run([sys.executable, "-m", "closedform", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("closedform: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_convert_and_inspect(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_demos(planar_demos(np.random.default_rng(0)), "demos")
    main(["convert", "demos", "lr", "--to", "lerobot", "--episodes", "0:3,5"])
    assert capsys.readouterr().out == "4 episodes, 120 steps: lr\n"
    main(["inspect", "lr"])
    text = capsys.readouterr().out
    assert "4 episodes, 120 steps" in text and "report: lr-report/report.html" in text
    assert (tmp_path / "lr-report" / "report.html").exists()
    main(["inspect", "lr", "--json"])
    assert json.loads(capsys.readouterr().out)["n_episodes"] == 4
    plain = np.zeros((4, 3))
    np.savez("plain.npz", observations=plain, actions=plain[:, :2], episode_ends=[4])
    main(["convert", "plain.npz", "known", "--observation-layout", "hand position 2, hand angle"])
    assert load_demos("known").observation_layout == Layout.of(("hand", "position", 2), ("hand", "angle"))
    with pytest.raises(SystemExit) as stop:
        main(["convert", "demos", "other", "--episodes", "one"])
    assert stop.value.code == 2 and "such as 0:10,15, found 'one'" in capsys.readouterr().err


def test_data_lists_what_there_is(capsys):
    main(["data", "list"])
    assert "robomimic-lift-10" in capsys.readouterr().out
    main(["data", "list", "--json"])
    assert json.loads(capsys.readouterr().out)[1]["name"] == "pusht"


def test_a_reader_that_goes_away_is_no_mistake(saved):
    command = f"{sys.executable} -m closedform info {saved} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == "" and done.stdout.count("\n") == 1


def test_what_is_logged_is_a_line_like_all_others(monkeypatch, capsys):
    monkeypatch.setattr(Info, "run", lambda self: logging.getLogger("closedform").warning("compiling\nfor a while"))
    main(["info", "pusht-dit"])
    assert capsys.readouterr().err == "closedform: compiling\\nfor a while\n"
