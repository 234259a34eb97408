"""The command line: help, facts, and one line for every mistake."""

import json
import logging
import re
import shutil
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout, __version__, load_demos, load_policy, save_demos
from closedform.cli import commands, main, subcommands
from closedform.cli.policy import Info
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.study import Study
from tests.conftest import planar_demos
from tests.evaluation.toy import displaced_demos


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
    text = capsys.readouterr().out
    assert not stop.value.code and "--version" in text and "completion" in text
    places = [re.search(rf"^[^a-z]*{command} ", text, re.MULTILINE) for command in commands()]
    starts = [place.start() for place in places if place]
    assert len(starts) == len(commands()) and starts == sorted(starts)  # in the order in which one needs them
    assert "Push-T" not in text and "Ctrl-C" not in text  # which the help of a command tells


@pytest.mark.parametrize(("command", "words"), [("inspect", ["DEMOS"]), ("info", ["POLICY"]), ("report", ["RESULTS"])])
def test_help_names_what_a_command_takes(capsys, command, words):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in words) and " STR" not in text.split("options")[0] and "None}" not in text


def test_no_option_is_a_double_negative():
    """A switch `no_open` would also be offered as `--no-no-open`."""
    every = [*commands().values(), *subcommands("edit").values()]
    names = {field.name for command in every if is_dataclass(command) for field in fields(command)}
    assert "open" in names and not [name for name in names if name.startswith("no_")]


@pytest.mark.parametrize("command", [[name] for name in commands() if name != "edit"] + [["edit", "guide"]])
def test_no_option_takes_just_a_string(capsys, command):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert " STR" not in capsys.readouterr().out


def test_without_arguments_there_is_help(capsys):
    for arguments, expected in (([], "explain"), (["edit"], "augment")):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert not stop.value.code and expected in capsys.readouterr().out


def test_every_environment_is_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["eval", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in ("pusht_pixels", "tool_hang", "twin_truth", "metaworld:TASK", "gym:ID"))


def test_completion_scripts_are_printed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--tyro-print-completion", "bash"])
    assert not stop.value.code and "inspect" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit"], "missing DEMOS, --output PATH (closedform fit --help explains all)\n"),
        (
            ["edit", "guide", "x", "--demo", "y", "-o", "z"],
            "unknown --demo, and missing --demos DEMOS, --everything DEM",
        ),
        (["eval", "--seed"], "--seed: expected a value, found none (closedform eval --help explains all)"),
        (["eval", "--seed", "1.5"], "--seed: expected a whole number, found '1.5' (closedform eval"),
        (["index", "x", "-o", "y", "--recall", "high"], "--recall: expected a number, found 'high' (closedform index"),
        (["explain", "--observation", "a", "b"], "--observation: expected values of another type, found ['a', 'b']"),
        (["eval", "here"], "unknown argument here (closedform eval --help explains all)"),
        (
            ["tune", "x", "--preset", "papr"],
            "expected one of default, paper, found 'papr'; did you mean paper? (closedf",
        ),
        (["inform"], "unknown command 'inform': did you mean info? (closedform --help explains all)"),
        (["evaluate"], "did you mean eval?"),
        (["xyzzy"], "expected one of data, inspect, convert"),
        (["edit", "augmented"], "unknown command 'augmented': did you mean augment? (closedform edit --help"),
        (["convert", "nowhere", "there"], "found nothing there"),
        (["convert", "nowhere"], "TARGET"),
        (["inspect", "nowhere"], "found nothing there"),
        (["data", "get", "nothing"], "unknown dataset 'nothing': expected one of pusht"),
        (["data", "get"], "expected the name of a dataset"),
        (["data", "gte", "pusht"], "action: expected one of list, get, path, verify, found 'gte'; did you mean get?"),
        (["info"], "missing POLICY (closedform info"),
        (["info", "nowhere", "--yaml"], "unknown option --yaml (closedform info"),
        (
            ["fit", "nowhere", "-o", "x", "--polcy", "1nn"],
            "unknown option --polcy: did you mean --policy? (closedform fit",
        ),
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
    main(["convert", "demos", "lr", "--to", "lerobot", "--rate", "10", "--episodes", "0:3,5"])
    assert capsys.readouterr().out == "4 episodes, 120 steps: lr\n"
    main(["inspect", "lr"])
    text = capsys.readouterr().out
    assert "4 episodes, 120 steps" in text and "report: lr-report/report.html (--output FOLDER puts it els" in text
    assert "With 4 episodes, too little is known to judge them" in text
    assert (tmp_path / "lr-report" / "report.html").exists()
    shutil.rmtree("lr-report")
    main(["inspect", "lr", "--no-report"])
    assert "report" not in capsys.readouterr().out and not Path("lr-report").exists()
    main(["inspect", "lr", "--json"])
    assert json.loads(capsys.readouterr().out)["n_episodes"] == 4
    plain = np.zeros((4, 3))
    np.savez("plain.npz", observations=plain, actions=plain[:, :2], episode_ends=[4])
    main(["convert", "plain.npz", "known", "--observation-layout", "hand position 2, hand angle"])
    assert load_demos("known").observation_layout == Layout.of(("hand", "position", 2), ("hand", "angle"))
    with pytest.raises(SystemExit) as stop:
        main(["convert", "demos", "other", "--episodes", "one"])
    assert stop.value.code == 2 and "such as 0:10,15, found 'one'" in capsys.readouterr().err


def test_inspect_gives_its_verdict_without_matplotlib_and_says_that_there_is_no_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    save_demos(planar_demos(np.random.default_rng(0)), "demos")
    main(["inspect", "demos"])
    said = capsys.readouterr()
    assert "6 episodes, 180 steps" in said.out and not Path("demos-report").exists()
    assert "no report: drawing a figure needs the package 'matplotlib'" in said.err
    with pytest.raises(SystemExit) as stop:
        main(["inspect", "demos", "-o", "page"])  # which was asked for
    assert stop.value.code == 2


def without_notes(said):
    lines = [line.removeprefix("closedform: ") for line in said.splitlines()]
    return [line for line in lines if not line.startswith("note: ")]


def test_layouts_are_found_declared_or_read_from_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_demos(displaced_demos(), "demos")
    found = ["inferred observation layout: hand position 2, body1 position 2", "inferred action layout: hand vector 2"]
    layouts = {}
    text = "hand position 2, goal position 2"
    own = {"observation": text, "action": Layout.of(("hand", "vector", 2)).to_json()}
    Path("own.json").write_text(json.dumps(own))
    for choice in (None, "infer", "none", "env", "own.json"):
        main(["fit", "demos", "-o", f"made-{choice}", *(["--layout", choice] if choice else [])])
        lines = without_notes(capsys.readouterr().err)
        assert (lines[:2] == found) == (choice in (None, "infer")) and bool(lines) == (lines[:2] == found)
        policy = load_policy(f"made-{choice}")
        layouts[choice] = policy.observation_layout, policy.action_layout
    assert layouts[None] == layouts["infer"] == tuple(Layout.parse(line.partition(": ")[2]) for line in found)
    assert layouts["none"] == layouts["env"] == (Layout.plain(4), Layout.plain(2))
    assert layouts["own.json"] == (Layout.parse(text), Layout.of(("hand", "vector", 2)))
    for command in (["inspect", "demos", "--json"], ["tune", "demos", "--episodes", "0:3", "--preset", "paper"]):
        main(command)
        assert capsys.readouterr().err.startswith("closedform: inferred observation layout: hand position 2")
        main([*command, "--layout", "none"])
        assert without_notes(capsys.readouterr().err) == []


def test_layouts_that_were_found_are_part_of_the_results(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_demos(displaced_demos(), "demos")
    options = ["--env", "tests.evaluation.toy:Displaced", "--episodes", "2", "--workers", "1", "--json", "r.json"]
    main(["eval", "--demos", "demos", *options])
    assert capsys.readouterr().err.startswith("closedform: inferred observation layout: hand position 2")
    result = EvaluationResult.load(tmp_path / "r.json")
    study = Study.of(result, "tests.evaluation.toy:Displaced")
    assert study.policy.action_layout == Layout.of(("hand", "vector", 2)) and study.subject == result.subject
    Path("r.json").unlink()
    main(["eval", "--demos", "demos", "--layout", "none", *options])
    assert without_notes(capsys.readouterr().err) == []
    assert "layouts" not in EvaluationResult.load(tmp_path / "r.json").subject.demos


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "layout: expected infer, none, env, a JSON file of layouts or OBSERVATION -> ACTION, found 'own.json'"),
        ("{", "expected a JSON file of layouts"),
        ("[1]", "own.json: expected an object with observation and action, found something else"),
        ('{"observation": "hand place 4", "action": "- other 2"}', "unknown kind 'place'"),
        ('{"observation": "- other 4", "action": 7}', "expected a list of layout entries, found int"),
        ('{"observation": "- other 3", "action": "- other 2"}', "expected observations of 3 numbers, found 4"),
    ],
)
def test_a_file_that_holds_no_layouts_is_refused(tmp_path, capsys, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    save_demos(displaced_demos(2), "demos")
    if content is not None:
        Path("own.json").write_text(content)
    with pytest.raises(SystemExit) as stop:
        main(["fit", "demos", "-o", "policy", "--layout", "own.json"])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and message in error and error.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["fit", "demos", "-o", "policy", "--layout", "none", "--action-layout", "- other 2"])
    assert "expected --layout or --action-layout, found both" in capsys.readouterr().err


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
