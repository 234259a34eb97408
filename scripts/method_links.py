"""Keeps the links from the equations of docs/method.md to their lines of code: `python scripts/method_links.py`.

A link such as [`Goal.__call__`](../src/closedform/weights/terms/goal.py#L1) names a function or a method; its line
follows from the file. A name that is not there is an error, so that an equation cannot outlive its code.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "method.md"
_LINK = re.compile(r"\[`([\w.]+)`\]\(([\w./]+\.py)#L\d+\)")


def line_of(path: Path, name: str) -> int:
    """The line on which a function, a class or a method `Class.name` begins."""
    body: list[ast.stmt] = ast.parse(path.read_text("utf-8")).body
    line = 0
    for part in name.split("."):
        found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part]
        if not found:
            sys.exit(f"{PAGE.name}: expected {name} in {path}, found no {part}")
        line, body = found[0].lineno, found[0].body
    return line


def updated(text: str, folder: Path = PAGE.parent) -> str:
    """A page with the lines of today."""
    return _LINK.sub(lambda found: f"[`{found[1]}`]({found[2]}#L{line_of(folder / found[2], found[1])})", text)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
