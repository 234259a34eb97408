"""The examples as notebooks: up to date, and without outputs."""

import json
from pathlib import Path

import pytest

from scripts.make_notebooks import make_notebook

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


def test_every_example_has_a_notebook_and_every_notebook_an_example():
    assert EXAMPLES and [path.stem for path in EXAMPLES] == [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_notebooks_are_those_of_the_examples(example):
    path = example.parent / "notebooks" / f"{example.stem}.ipynb"
    assert path.read_text("utf-8") == make_notebook(example.read_text("utf-8")), "run make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_text_and_code_and_no_outputs(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    for cell in code:
        compile("".join(cell["source"]), path.name, "exec")


def test_a_script_becomes_text_options_and_cells():
    source = '''"""A title. More of it.

What it does. Run it with

    python example.py
"""

import argparse


def main() -> None:
    """Runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=3, help="how many")
    arguments = parser.parse_args()

    # First the numbers.
    numbers = range(arguments.n)

    print(LAST, *numbers)


LAST = 1

if __name__ == "__main__":
    main()
'''
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(make_notebook(source))["cells"]]
    assert cells == [
        ("markdown", "# A title\n\nMore of it.\n\nWhat it does."),
        ("code", "LAST = 1"),
        ("markdown", "Runs."),
        ("code", "from types import SimpleNamespace\n\narguments = SimpleNamespace(n=3)"),
        ("markdown", "First the numbers."),
        ("code", "numbers = range(arguments.n)"),
        ("code", "print(LAST, *numbers)"),
    ]
