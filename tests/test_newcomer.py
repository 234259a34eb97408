"""The newcomer's path finds the blocks of a page, heeds their markers, and fails where a block fails."""

import sys
import tomllib
from pathlib import Path

import pytest

from scripts.newcomer import ALONE, ROOT, Newcomer, blocks_of, with_wheel

PAGE = """# A page

Text, with `code`.

    echo indented
    echo twice

- a list
    that goes on

<!-- not run: needs an arm -->
```sh
closedform run \\
    --arm ur
```

```{note}
echo no block
```

<!-- file: own.py -->
```python
NUMBER = 3
```

```python
from own import NUMBER
```

```python
assert NUMBER == 3
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.newcomer.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


@pytest.fixture
def newcomer(tmp_path):
    (tmp_path / "work").mkdir()
    return Newcomer(Path(sys.executable), Path("wheel.whl"), tmp_path / "work")


def test_blocks_are_found_with_their_markers(page):
    found = blocks_of(page, "page.md")
    assert [block.language for block in found] == ["", "sh", "python", "python", "python"]
    assert found[0].place == "page.md:5" and found[0].commands == ["echo indented", "echo twice"]
    assert found[1].markers == {"not run": "needs an arm"} and found[1].commands == ["closedform run --arm ur"]
    assert found[2].markers == {"file": "own.py"} and not found[3].markers


def test_a_page_is_followed_in_one_folder_and_one_session(page, newcomer, capsys):
    assert newcomer.follow(page)
    said = capsys.readouterr().out
    assert "page.md:5: 2 commands" in said and "not run: needs an arm" in said and "saved own.py" in said
    assert said.count(": python") == 2


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\necho before\nfalse\n```\n", "$ false"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nraise SystemExit\n```\n", "SystemExit"),
        ("```json\n{}\n```\n", "mark it as <!-- not run: REASON -->"),
    ],
)
def test_a_block_that_fails_fails_the_page(page, newcomer, capsys, block, message):
    page.write_text(block)
    assert not newcomer.follow(page)
    said = capsys.readouterr().out
    assert "page.md:1: FAILED" in said and message in said


def test_the_rest_of_a_page_is_left_out_without_what_it_needs(page, newcomer, capsys):
    page.write_text("<!-- needs: json, nothing_like_it -->\n\n    false\n")
    assert newcomer.follow(page)
    assert "needs nothing_like_it" in capsys.readouterr().out


def test_an_extra_that_cannot_be_installed_fails_the_page_in_pips_words(page, newcomer, capsys, monkeypatch):
    monkeypatch.setattr("scripts.newcomer._EXTRAS", {"nothing_like_it": "neural"})
    page.write_text("<!-- needs: nothing_like_it -->\n\n    true\n")  # and there is no such wheel
    assert not newcomer.follow(page)
    said = capsys.readouterr().out
    assert "extra neural: FAILED" in said and "| ERROR: " in said


def test_an_extra_that_does_not_bring_its_module_fails_the_page(page, newcomer, capsys, monkeypatch):
    monkeypatch.setattr("scripts.newcomer._EXTRAS", {"nothing_like_it": "neural"})
    monkeypatch.setattr(newcomer, "_command", lambda command, here: None)
    page.write_text("<!-- needs: nothing_like_it -->\n\n    true\n")
    assert not newcomer.follow(page)
    assert "expected that the extra neural brings nothing_like_it" in capsys.readouterr().out


def test_every_extra_is_used_alone_but_those_with_targets_of_their_own():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras) - set(ALONE) == {"fleet", "ray", "docs", "dev"}


def test_an_extra_that_cannot_run_its_command_fails(newcomer, capsys, monkeypatch):
    monkeypatch.setattr("scripts.newcomer.ALONE", {"good": ("true",), "bad": ("true", "echo no matplotlib; false")})
    run = newcomer._command
    monkeypatch.setattr(newcomer, "_command", lambda text, here: None if text.startswith("pip") else run(text, here))
    assert newcomer.use_alone("good") and not newcomer.use_alone("bad")
    said = capsys.readouterr().out
    assert "extra good: 1 commands" in said and "extra bad: FAILED: $ echo" in said and "| no matplotlib" in said


def test_the_package_is_installed_from_the_wheel():
    wheel = Path("/w/closedform.whl")
    assert [
        with_wheel(word, wheel) for word in (".", "closedform", ".[data,pusht]", "closedform[data]", "torch", "-e")
    ] == [
        "/w/closedform.whl",
        "/w/closedform.whl",
        "/w/closedform.whl[data,pusht]",
        "/w/closedform.whl[data]",
        "torch",
        "-e",
    ]


def test_the_readme_says_how_to_install_and_has_lines_that_run():
    found = [block for block in blocks_of(ROOT / "README.md", "README.md") if "not run" not in block.markers]
    assert found[0].installs and found[1].language == "python"
