"""Self-contained HTML pages: one file without requests to anywhere, for wide screens and phones, light and dark."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

_FILES = Path(__file__).parent / "page"


def page_of(title: str, body: str, rollouts: Sequence[dict[str, Any]] | None = None) -> str:
    """A page.

    Args:
        title: of the window.
        body: HTML. An element with `data-group="i"` becomes the grid of the rollouts of group i, a button with
            `data-open="i,seed,step"` opens one of them, and an element of the class `inline` shows the first.
        rollouts: groups of rollouts: `title`, `stage` (of `Stage`), `rate`, `n_execute`, `demos`, and `rollouts` (of
            `replay`).
    """
    shown = ""
    if rollouts is not None:
        shown = f'<script type="application/json" id="rollouts">{_data(rollouts)}</script>'
        shown += f'<script type="module">{_file("scene.js")}{_file("viewer.js")}</script>'
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{_file("page.css")}</style></head>
<body>{body}{shown}</body></html>
"""


def table_of(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A table; cells are escaped, and those after the first `text_columns` are numbers."""

    def cells(values: Sequence[str], tag: str) -> str:
        kinds = ["" if i < text_columns else ' class="number"' for i in range(len(values))]
        return "".join(f"<{tag}{k}>{html.escape(v)}</{tag}>" for k, v in zip(kinds, values, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells(head, "th")}</tr>{body}</table></div>'


def tiles_of(facts: Sequence[tuple[str, str, str]]) -> str:
    """A row of large numbers, each with its name and a remark."""
    shown = (
        f'<div class="tile"><small>{html.escape(name)}</small><b>{html.escape(value)}</b>'
        f"<small>{html.escape(remark)}</small></div>"
        for name, value, remark in facts
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def details_of(summary: str, content: str) -> str:
    """Content that is folded away; the summary is escaped."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def _data(content: Any) -> str:
    """JSON that no text in it can end."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _file(name: str) -> str:
    return (_FILES / name).read_text("utf-8")
