"""The command `closedform`."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import tyro

from closedform import ClosedFormError, __version__
from closedform.cli import streams
from closedform.cli.calibrate import Calibrate
from closedform.cli.data import Convert, Data, Generate, Inspect
from closedform.cli.evaluation import Compare, Eval, Report
from closedform.cli.fleet import Fleet
from closedform.cli.neural import Edit, Train
from closedform.cli.policy import Explain, Fit, Index, Info, Tune
from closedform.cli.run import Run
from closedform.cli.serve import Monitor, Serve
from closedform.cli.studio import Studio

__all__ = ["COMMANDS", "main", "run"]

COMMANDS: dict[str, Any] = {
    "calibrate": Calibrate,
    "compare": Compare,
    "convert": Convert,
    "data": Data,
    "edit": Edit,
    "eval": Eval,
    "explain": Explain,
    "fit": Fit,
    "fleet": Fleet,
    "generate": Generate,
    "index": Index,
    "info": Info,
    "inspect": Inspect,
    "monitor": Monitor,
    "report": Report,
    "run": Run,
    "serve": Serve,
    "studio": Studio,
    "train": Train,
    "tune": Tune,
}


class _Version:
    """Prints the version."""

    def run(self) -> None:
        """Prints the version of closedform."""
        print(f"closedform {__version__}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; errors are one line on stderr and exit status 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        run(_Version)
        return
    about = f"Training-free imitation learning, version {__version__}."
    run(lambda: tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="closedform", description=about, args=arguments))


def run(parse: Callable[[], Any]) -> None:
    """Parses and runs a command; errors are one line on stderr and exit status 2."""
    streams.prepare()
    try:
        try:
            _run(parse)
        except SystemExit as stop:
            if not stop.code:  # --help
                streams.finish()
            raise
        streams.finish()
    except ClosedFormError as error:
        _fail(str(error))
    except BrokenPipeError:  # the reader closed the pipe, which is fine
        streams.discard(sys.stdout)
        sys.exit(128 + 13)  # like a program killed by SIGPIPE
    except OSError as error:
        _fail(f"cannot read or write a file: {error}")
    except MemoryError as error:
        _fail(f"out of memory: {error}")
    except KeyboardInterrupt:
        streams.complain("interrupted")
        sys.exit(130)


def _run(parse: Callable[[], Any]) -> None:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), streams.bearable_width():
            command = parse()
    except SystemExit as stop:
        if stop.code:
            _fail(_one_line(errors.getvalue()))
        raise
    with warnings.catch_warnings(), _logging_as_lines():
        warnings.showwarning = _say_once()
        command.run()


@contextlib.contextmanager
def _logging_as_lines() -> Iterator[None]:
    """Prints what the package logs like everything else: one line each on stderr."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: streams.complain(record.getMessage())
    logger = logging.getLogger("closedform")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _say_once() -> Callable[..., None]:
    """A warning handler that prints each warning once, as one line."""
    said: set[str] = set()

    def say(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in said:
            streams.complain(str(message))
        said.add(str(message))

    return say


def _fail(message: str) -> NoReturn:
    streams.complain(message)
    with contextlib.suppress(OSError, ClosedFormError):  # only the first error is reported
        streams.finish()
    sys.exit(2)


def _one_line(box: str) -> str:
    """Flattens the box that tyro draws around an error, without its title."""
    parts = []
    for line in box.splitlines()[1:]:
        text = re.sub(r"[\u2500-\u257f]+", " ", line).strip()
        if not text and line.strip():
            parts.append(";")
        elif text:
            parts.append(text)
    joined = re.sub(r"\s+", " ", " ".join(parts))
    return re.sub(r"(\s*;\s*)+", "; ", joined).strip("; ")
