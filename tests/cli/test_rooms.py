"""Rooms own their commands: one that is removed is missing, and nothing else; other packages add theirs."""

import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from closedform import registry
from closedform.cli import commands, main

ROOT = Path(__file__).parents[2]
ROOMS = {
    "experts": {"generate"},
    "fleet": {"fleet"},
    "robot": {"run"},
    "serve": {"serve", "monitor"},
    "studio": {"studio"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_without_a_room_only_its_commands_are_missing(monkeypatch, room):
    before = commands()
    monkeypatch.setitem(sys.modules, f"closedform.{room}", None)
    assert [name for name in before if name not in ROOMS[room]] == list(commands())


def test_the_folders_of_all_rooms_can_be_deleted(tmp_path):
    copied = shutil.ignore_patterns("__pycache__", *ROOMS)
    shutil.copytree(ROOT / "src" / "closedform", tmp_path / "src" / "closedform", ignore=copied)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    code = (
        "import contextlib, sys; sys.path.insert(0, 'src'); from closedform.cli import commands, main\n"
        "print(*commands())\n"
        "main(['inspect', 'pusht-embedded', '--output', 'page', '--json'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    gone = set().union(*ROOMS.values())
    assert ran.stdout.split("\n")[0].split() == [name for name in commands() if name not in gone]


def register(monkeypatch, **values):
    points = [EntryPoint(name, value, "closedform.commands") for name, value in values.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == "closedform.commands" else [])


def test_a_command_of_another_package_is_listed_last_and_runs(monkeypatch, capsys, tmp_path):
    (tmp_path / "their_room.py").write_text(
        "from dataclasses import dataclass\n\n\n@dataclass\nclass Greet:\n"
        '    """Greet somebody."""\n\n    name: str = "you"\n\n'
        '    def run(self):\n        print(f"hello {self.name}")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    register(monkeypatch, greet="their_room:Greet", fit="their_room:Greet")
    main(["greet", "--name", "them"])
    assert capsys.readouterr().out == "hello them\n"
    assert list(commands())[-1] == "greet"
    assert commands()["fit"].__module__ == "closedform.cli.policy"  # which nobody else can replace


def test_a_command_that_cannot_be_imported_does_not_break_the_others(monkeypatch, capsys):
    before = list(commands())
    register(monkeypatch, greet="nowhere_at_all:Greet")
    assert list(commands()) == before
    assert "'greet' of nowhere_at_all" in capsys.readouterr().err


def test_an_installed_package_needs_no_checkout(monkeypatch):
    """Its metadata hold what pyproject.toml declares."""
    declared = {name: point.value for name, point in registry.registered("closedform.commands").items()}
    points = [EntryPoint(name, value, "closedform.commands") for name, value in declared.items()]
    monkeypatch.setattr(registry, "_declared", lambda: None)
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert {name: point.value for name, point in registry.registered("closedform.commands").items()} == declared
