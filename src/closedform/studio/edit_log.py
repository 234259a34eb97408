"""EditLog: what was added, deleted and changed in a session, complete enough to repeat it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from closedform.errors import LoadError, SaveError
from closedform.files import parse_json, saving

FORMAT = "closedform-edits"
FORMAT_VERSION = 1
_BEGIN = '{"edit": "begin"'


class EditLog:
    """A list of edits, one JSON object each, which is also appended to a file if there is one.

    The first entry says what the session began with. An `add` has all numbers of its episode, so that
    `Collection.replay` needs nothing but the log and what the session began with.

    Args:
        path: the file; None to keep the log in memory only. A session is appended to an existing file.

    Attributes:
        problem: why the last entry could not be written; "" if it was.
    """

    def __init__(self, path: Path | None = None):
        self._path = path
        self._lines: list[str] = []
        self._n_saved = 0
        self.problem = ""

    def append(self, edit: str, **facts: Any) -> None:
        """Adds an entry and writes it; if that fails, `problem` says why and it is written with the next one."""
        self._lines.append(json.dumps({"edit": edit, **facts}))
        if self._path is None:
            return
        self.problem = ""
        try:
            with saving(self._path), self._path.open("ab", buffering=0) as file:  # a buffer would be written on closing
                begun = file.tell()
                new = "".join(line + "\n" for line in self._lines[self._n_saved :])
                data = memoryview((("\n" if _cut_off(self._path) else "") + new).encode())
                try:
                    while data:
                        data = data[file.write(data) :]
                    os.fsync(file.fileno())
                except OSError:
                    os.ftruncate(file.fileno(), begun)
                    raise
        except SaveError as error:
            self.problem = str(error)
            return
        self._n_saved = len(self._lines)

    def begin(self, **facts: Any) -> None:
        """Notes what a session begins with."""
        self.append("begin", format=FORMAT, format_version=FORMAT_VERSION, **facts)

    def text(self) -> str:
        """All entries of this session as JSON lines."""
        return "".join(line + "\n" for line in self._lines)


def read_edits(text: str, where: object = "the edits") -> list[dict[str, Any]]:
    """The entries of a log's last session; anything that is no log raises `LoadError`.

    A last line without an end, which a killed process left, does not count.
    """
    *lines, _ = text.split("\n")  # the last is empty, or was cut off
    first = max((i for i, line in enumerate(lines) if line.startswith(_BEGIN)), default=0)
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(lines[first:], first + 1):
        entry = parse_json(line, f"{where}, line {number}")
        if not isinstance(entry, dict) or not isinstance(entry.get("edit"), str):
            raise LoadError(f"{where}, line {number}: expected an edit, found {line[:60]!r}")
        entries.append(entry)
    if not entries or entries[0].get("format") != FORMAT:
        raise LoadError(f"{where}: expected a log of format {FORMAT!r}, found another text")
    if entries[0].get("format_version") != FORMAT_VERSION:
        raise LoadError(
            f"{where}: expected format version {FORMAT_VERSION}, found {entries[0].get('format_version')!r:.40}"
        )
    return entries


def _cut_off(path: Path) -> bool:
    """Whether a process was killed in the middle of the last line."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
