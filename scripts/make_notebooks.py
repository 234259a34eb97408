"""Writes examples/notebooks from the examples, without outputs: `make notebooks`; --check only says if they differ.

The docstring and comments between paragraphs of code become text. The body of `main` comes last, in cells of its own;
the options of its command line become a `SimpleNamespace` that a reader can change.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import textwrap
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
_SCRIPT_ONLY = re.compile(r"from __future__ .*|import argparse|import matplotlib|matplotlib\.use\(.*\)")
_IMPORTS = (ast.Import, ast.ImportFrom)
_INTRODUCES_COMMAND = re.compile(r"\s*Run it with$")


def make_notebook(source: str) -> str:
    """The notebook of an example, as JSON."""
    tree = ast.parse(source)
    cells = [("markdown", _introduction(ast.get_docstring(tree) or ""))]
    main: list[tuple[str, str]] = []
    for text, nodes in _paragraphs(source, tree.body[1:]):
        if isinstance(nodes[0], ast.If):  # __name__ == "__main__"
            continue
        if isinstance(nodes[0], ast.FunctionDef) and nodes[0].name == "main":
            main = _cells_of_main(source, nodes[0])
        else:
            cells += _split_comment(text)
    made = [
        {
            "cell_type": kind,
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
        }
        for number, (kind, text) in enumerate([*cells, *main])
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _introduction(docstring: str) -> str:
    """The docstring as Markdown: its first line as a title, without the commands that run the script."""
    summary, *paragraphs = docstring.split("\n\n")
    title, _, more = summary.partition(". ")
    paragraphs.insert(0, more)
    kept = [_INTRODUCES_COMMAND.sub("", each) for each in paragraphs if not each.startswith("    ")]
    return "\n\n".join([f"# {title.rstrip('.')}", *filter(None, kept)])


def _paragraphs(source: str, body: list[ast.stmt]) -> list[tuple[str, list[ast.stmt]]]:
    """Statements that no blank line separates, with the comments right before them."""
    lines, found = source.splitlines(), []
    group: list[ast.stmt] = []
    for node in body:
        apart = group and any(not line.strip() for line in lines[_end(group[-1]) : node.lineno - 1])
        if apart and not isinstance(node, _IMPORTS):
            found.append(group)
            group = []
        group.append(node)
    found.append(group)
    result = []
    for group in found:
        first = group[0].lineno - 1
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        result.append((textwrap.dedent("\n".join(lines[first : _end(group[-1])])), group))
    return result


def _end(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _split_comment(text: str) -> list[tuple[str, str]]:
    """Cells of a paragraph: the comment that it begins with, and its code."""
    lines = [line for line in text.splitlines() if not _SCRIPT_ONLY.fullmatch(line)]
    n_comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    comment = " ".join(line.removeprefix("#").strip() for line in lines[:n_comments])
    code = "\n".join(lines[n_comments:]).strip("\n")
    return [*([("markdown", comment)] if comment else []), *([("code", code)] if code else [])]


def _cells_of_main(source: str, main: ast.FunctionDef) -> list[tuple[str, str]]:
    """The body of `main`, with its options as a cell."""
    options, rest = [], []
    for node in main.body[1:]:  # after the docstring
        text = ast.get_source_segment(source, node) or ""
        if text.startswith("parser.add_argument("):
            assert isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            named = {keyword.arg: ast.unparse(keyword.value) for keyword in node.value.keywords}
            options.append(f"{ast.literal_eval(node.value.args[0]).lstrip('-')}={named['default']}")
        elif "ArgumentParser(" not in text and text != "arguments = parser.parse_args()":
            rest.append(node)
    begin = f"from types import SimpleNamespace\n\narguments = SimpleNamespace({', '.join(options)})"
    docstring = ast.get_docstring(main) or ""
    cells = [("markdown", docstring), ("code", begin)]
    for text, _ in _paragraphs(source, rest):
        cells += _split_comment(text.replace("parser.parse_args()", "arguments"))
    return cells


def main() -> None:
    """Writes the notebooks, or checks them."""
    for example in sorted(EXAMPLES.glob("*.py")):
        path, text = NOTEBOOKS / f"{example.stem}.ipynb", make_notebook(example.read_text("utf-8"))
        if "--check" not in sys.argv:
            NOTEBOOKS.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != text:
            sys.exit(f"{path.relative_to(EXAMPLES.parent)} is not that of {example.name}: make notebooks")


if __name__ == "__main__":
    main()
