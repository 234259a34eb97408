"""CodeBlock: a block of code in a page of the documentation, and what the comment before it says about running it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_MARKER = re.compile(r"<!--\s*(not run|file|needs):\s*(.*?)\s*-->", re.DOTALL)
_COMMANDS = ("", "sh", "bash", "shell", "console")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced or indented block of code.

    Attributes:
        page: the file it is in.
        line: where, from 1.
        language: of a fenced block; "" for an indented one.
        code: what it says.
        not_run: why it is not run, from `<!-- not run: REASON -->` on the lines before it; None if it is run.
        file: the name under which it is saved and not run, from `<!-- file: NAME -->`.
        needs: modules without which the rest of the page is skipped, from `<!-- needs: MODULE, MODULE -->`.
    """

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None = None
    file: str | None = None
    needs: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def is_commands(self) -> bool:
        """Whether it is for a shell."""
        return self.language in _COMMANDS

    @property
    def commands(self) -> list[str]:
        """The commands of a shell block, one a line; lines that end in a backslash go on."""
        lines = re.sub(r"\\\n\s*", " ", self.code).splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def code_blocks(page: Path) -> list[CodeBlock]:
    """The code blocks of a page, in order; directives of Sphinx are none."""
    blocks, markers = [], {}
    for token in MarkdownIt("commonmark").parse(page.read_text("utf-8")):
        if token.type == "html_block":
            markers |= dict(_MARKER.findall(token.content))
            continue
        if token.type in ("fence", "code_block") and not token.info.startswith("{"):
            assert token.map is not None
            needs = tuple(re.split(r"[,\s]+", markers["needs"])) if "needs" in markers else ()
            language = token.info.split()[0] if token.info.strip() else ""
            blocks.append(
                CodeBlock(
                    page,
                    token.map[0] + 1,
                    language,
                    token.content,
                    markers.get("not run"),
                    markers.get("file"),
                    needs,
                )
            )
        markers = {}
    return blocks
