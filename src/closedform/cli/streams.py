"""The standard streams of a command: they take any text, and may be closed, full or read by nobody."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TextIO

from closedform.errors import SaveError

AS_GIVEN = "closedform-as-given"
NARROWEST, WIDEST = 40, 400  # columns; tyro wraps forever in fewer, and pads every line in more


def prepare() -> None:
    """Opens streams that were closed, and lets output take any text.

    The number of a closed stream would be given to the next file that is opened, and what is printed would land in it.
    What is printed to a closed output fails when it is written out; a closed error stream is its user's wish.
    """
    codecs.register_error(AS_GIVEN, _as_given)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=AS_GIVEN)


def _as_given(error: UnicodeError) -> tuple[str | bytes, int]:
    """A file's name as its bytes, even where they are no text; other characters that cannot be printed as escapes."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def complain(message: str) -> None:
    """Prints one line on the error stream: what would move the cursor or break the line is escaped."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    try:
        print(f"closedform: {line}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def finish() -> None:
    """Writes out what was printed; where that cannot be, nothing is left to be written at Python's end."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise SaveError(f"the output: expected to write it, found {error.strerror}") from error


def discard(stream: TextIO) -> None:
    """Sends what is left in a stream nowhere, or Python would complain about it at its end."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # it is no file
        return


@contextmanager
def bearable_width() -> Iterator[None]:
    """Keeps the width that help is wrapped to within bounds."""
    before, columns = os.environ.get("COLUMNS"), shutil.get_terminal_size().columns
    os.environ["COLUMNS"] = str(min(max(columns, NARROWEST), WIDEST))
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
