"""Every code block of the documentation is run, page by page and in order, or says why not."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tyro

import closedform
from closedform.cli import commands, main, subcommands
from tests.conftest import slow_on_the_reference
from tests.docs.code_block import CodeBlock, code_blocks

ROOT = Path(__file__).parents[2]
PAGES = [path.relative_to(ROOT) for path in sorted((ROOT / "docs").rglob("*.md"))]
README = Path("README.md")
HARMLESS = ("echo", "cat", "ls")
ENDLESS = ("studio", "serve", "monitor")


@slow_on_the_reference
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_runs_or_says_why_not(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)  # starting processes takes long
    names, printed = {"__name__": "__main__"}, ""
    modules = set(sys.modules)
    try:
        for block in code_blocks(ROOT / page):
            if block.not_run is not None:
                assert block.not_run, f"{block.place}: expected a reason after 'not run:', found none"
                continue
            missing = [module for module in block.needs if importlib.util.find_spec(module) is None]
            if missing:
                pytest.skip(f"{block.place}: needs {', '.join(missing)}")
            if block.language == "text":
                check_output(block, printed)
            else:
                with contextlib.redirect_stderr(sys.stdout):
                    run(block, names)
                printed = capsys.readouterr().out
    finally:
        for module in set(sys.modules) - modules:  # files that the page saved
            if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(tmp_path)):
                del sys.modules[module]


def run(block: CodeBlock, names: dict) -> None:
    """Runs a block, or saves it if it is a file."""
    if block.file is not None:
        Path(block.file).write_text(block.code)
    elif block.language == "python":
        exec(compile("\n" * block.line + block.code, block.page, "exec"), names)
    elif block.is_commands:
        for command in block.commands:
            words = shlex.split(command, comments=True)
            if words[0] == "closedform" and words[1] not in ENDLESS:
                main(words[1:])
            else:
                assert words[0] in HARMLESS, f"{block.place}: mark it as <!-- not run: REASON -->, or make it run"
                subprocess.run(["bash", "-c", command], check=True)
    else:
        raise AssertionError(f"{block.place}: expected python, sh or text, found {block.language!r}: mark it")


def check_output(block: CodeBlock, printed: str) -> None:
    """Compares what a page shows with what the block before it printed.

    `...` stands for anything, and fractions and percentages may differ by a tenth: they change with the default.
    """
    assert printed, f"{block.place}: nothing was printed; mark it as <!-- not run: REASON --> if it is no output"
    parts = re.split(r"(\.\.\.|\d+\.\d+|\d+(?=%)|\s+)", block.code.strip())
    shown = [float(part) for part in parts[1::2] if part[0].isdigit()]
    between = [r"\s+" if part.isspace() else ".*?" if part == "..." else r"(\d+(?:\.\d+)?)" for part in parts[1::2]]
    pattern = "".join(re.escape(text) + gap for text, gap in zip(parts[::2], [*between, ""], strict=True))
    found = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    if not found or not np.allclose([float(number) for number in found.groups()], shown, rtol=0.1, atol=0.005):
        raise AssertionError(f"{block.place}: expected\n{block.code}\nfound\n{printed}")


@pytest.mark.parametrize("page", [README, *PAGES], ids=str)
def test_commands_that_are_not_run_exist(page):
    """Their names stand for the reader's own files, but the options have to be those of today."""
    for block in code_blocks(ROOT / page):
        if block.is_commands and (block.not_run is not None or page == README):
            for command in block.commands:
                words = shlex.split(command, comments=True)
                if words[0] == "closedform" and not {"...", "[--ray]"} & set(words):
                    parse(words[1:], block)


def parse(words: list[str], block: CodeBlock) -> None:
    """Parses a command as `closedform` does, without running it."""
    own = subcommands(words[0])
    chosen, rest = (own, words[1:]) if own else (commands(), words)
    try:
        tyro.extras.subcommand_cli_from_dict(chosen, args=rest)
    except SystemExit:
        raise AssertionError(f"{block.place}: closedform {' '.join(words)}: no such command or option") from None


@pytest.mark.filterwarnings("default:no layouts are declared:closedform.ClosedFormWarning")  # which is said once
def test_the_ten_lines_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in code_blocks(ROOT / README) if block.language == "python" and block.not_run is None]
    assert blocks
    names = {"__name__": "__main__"}
    for block in blocks:
        run(block, names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<!-- not run: needs an arm -->\n\n    closedform run\n", "needs an arm"),
        ("<!-- not run: needs an arm -->\n```sh\nclosedform run\n```\n", "needs an arm"),
        ("<!-- not run: -->\n```sh\nclosedform run\n```\n", ""),
        ("<!-- not run: needs an arm -->\n\nText.\n\n    closedform run\n", None),
        ("```{note}\nclosedform run\n```\n\n    closedform run\n", None),
    ],
)
def test_a_marker_belongs_to_the_block_right_after_it(tmp_path, text, expected):
    (tmp_path / "page.md").write_text(text)
    assert [block.not_run for block in code_blocks(tmp_path / "page.md")] == [expected]


def test_what_cannot_be_run_and_is_not_marked_fails(tmp_path):
    (tmp_path / "page.md").write_text("    pip install closedform\n\n```json\n{}\n```\n")
    for block in code_blocks(tmp_path / "page.md"):
        with pytest.raises(AssertionError, match=r"page.md:\d+: .*mark it"):
            run(block, {})


def test_what_a_page_shows_is_what_is_printed():
    page = CodeBlock(Path("page.md"), 1, "text", "score  0.9 ...\n20 episodes: 55% of 3\n")
    check_output(page, "score 0.91 of 1\n20 episodes: 56% of 3\n")
    for other in ("score 0.8 of 1\n20 episodes: 55% of 3\n", "score 0.9 of 1\n21 episodes: 55% of 3\n", "score 0.9"):
        with pytest.raises(AssertionError, match="expected"):
            check_output(page, other)


def test_the_snippets_of_the_readme_pass_a_type_checker(tmp_path):
    """Each name by itself may be None, and then has no attributes."""
    pytest.importorskip("basedpyright", reason="the type checker is not installed")
    code = "\n".join(block.code for block in code_blocks(ROOT / README) if block.language == "python")
    (tmp_path / "snippet.py").write_text(code)
    source = str(Path(closedform.__file__).parents[1])
    settings = {"typeCheckingMode": "standard", "extraPaths": [source], "include": ["snippet.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and "0 errors" in found.stdout, found.stdout
