"""The standard streams of a command: any text can be printed, even if a stream is closed, full or a broken pipe."""

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

_AS_GIVEN = "closedform-as-given"
_NARROWEST, _WIDEST = 40, 400  # columns; tyro wraps forever in fewer, and pads every line in more


def prepare() -> None:
    """Reopens closed streams, and lets any text be printed.

    Otherwise the descriptor of a closed stream would be reused by the next file that is opened, and output would end up
    in it. Printing to a closed stdout then fails at the end; a closed stderr is assumed to be intended.
    """
    codecs.register_error(_AS_GIVEN, _as_given)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=_AS_GIVEN)


def _as_given(error: UnicodeError) -> tuple[str | bytes, int]:
    """Prints file names as their original bytes, even if they are not valid text, and escapes other characters."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def complain(message: str) -> None:
    """Prints one line on stderr; characters that would move the cursor or break the line are escaped."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    try:
        print(f"closedform: {line}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def finish() -> None:
    """Flushes stdout; if that fails, the rest is discarded, so that Python does not complain again on exit."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            raise
        raise SaveError(f"cannot write the output: {error.strerror}") from error


def discard(stream: TextIO) -> None:
    """Discards what is left in a stream, about which Python would otherwise complain on exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):  # not a file
        return


@contextmanager
def bearable_width() -> Iterator[None]:
    """Keeps the width that help is wrapped to within readable bounds."""
    before, columns = os.environ.get("COLUMNS"), shutil.get_terminal_size().columns
    os.environ["COLUMNS"] = str(min(max(columns, _NARROWEST), _WIDEST))
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
