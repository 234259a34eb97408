"""The command line: help, facts, and one line for every mistake."""

import json
import subprocess
import sys

import numpy as np
import pytest

from closedform import ClosedFormPolicy, __version__
from closedform.cli import main
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
        ([], "{info}"),
        (["inform"], "inform"),
        (["info"], "PATH"),
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
