"""What can be installed from the package index alone is asked of pip for everything, and pip's words are kept."""

import re
import sys
import tomllib

import pytest

from scripts import resolve

MAKEFILE = (resolve.ROOT / "Makefile").read_text("utf-8")
EXTRAS = tomllib.loads((resolve.ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]


@pytest.fixture
def stubborn_pip(tmp_path, monkeypatch):
    """An interpreter whose pip installs nothing, and tells which sources it was given."""
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\n[ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit 0\n'
        '[ "$5" = --upgrade ] && exit 0\n'
        'echo "ERROR: ResolutionImpossible, with $(env | grep -c -e FIND_LINKS -e EXTRA_INDEX)"; exit 1\n'
    )
    python.chmod(0o755)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///nowhere")
    return str(python)


def test_every_extra_is_resolved():
    given = [environment.arguments[0] for environment in resolve.extras("python")]
    assert sorted(name for text in given for name in text.strip(".[]").split(",")) == sorted(EXTRAS)


def test_every_environment_of_the_makefile_is_resolved_with_all_that_is_installed_there():
    found = {environment.name: environment for environment in resolve.environments("/any/python")}
    assert set(found) == set(re.findall(r"-m venv (\.venv[\w-]*)$", MAKEFILE, re.M)) - {".venv-robosuite-"} | {
        ".venv-robosuite-oldest",
        ".venv-robosuite-newest",
    }
    assert {"constraints.txt", "torch", ".[ray]", "benchmarks/requirements.txt"} <= set(found[".venv"].arguments)
    assert found[".venv"].python == "/any/python" != found[".venv-lerobot"].python


def test_what_cannot_be_resolved_is_told_in_pips_words_and_other_sources_are_not_used(stubborn_pip, tmp_path, capsys):
    wanted = [resolve.Environment(".venv-x", stubborn_pip, ("anything",))]
    assert resolve.check(wanted, resolve.Resolver(tmp_path / "made")) == wanted
    said = capsys.readouterr().out
    assert ".venv-x: FAILED" in said and "| ERROR: ResolutionImpossible, with 0" in said


def test_a_version_that_is_not_here_fails(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["resolve", "--python", "3.99"])
    with pytest.raises(SystemExit, match=r"Python 3.99: expected on this machine, found none"):
        resolve.main()


def test_our_own_environment_has_the_triton_of_its_torch():
    """What torch 2.13.0 of the package index asks for; another one cannot be resolved there."""
    pinned = dict(re.findall(r"^(\w+)==([\w.]+)", (resolve.ROOT / "constraints.txt").read_text("utf-8"), re.M))
    assert (pinned["torch"], pinned["triton"]) == ("2.13.0", "3.7.1")
