"""The command `closedform`."""

from __future__ import annotations

import contextlib
import io
import logging
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
from closedform.cli.mistakes import mistake, unknown_command
from closedform.cli.neural import Augment, Edit, Guide, Train
from closedform.cli.perceive import Perceive
from closedform.cli.policy import Explain, Fit, IndexCommand, Info, Tune
from closedform.cli.run import Run
from closedform.cli.serve import MonitorCommand, Serve
from closedform.cli.studio import Studio
from closedform.cli.sweep import Sweep

__all__ = ["COMMANDS", "GROUPS", "main", "run"]

COMMANDS: dict[str, Any] = {  # in the order in which one comes to need them
    "data": Data,
    "inspect": Inspect,
    "convert": Convert,
    "generate": Generate,
    "perceive": Perceive,
    "fit": Fit,
    "eval": Eval,
    "report": Report,
    "explain": Explain,
    "compare": Compare,
    "tune": Tune,
    "sweep": Sweep,
    "index": IndexCommand,
    "info": Info,
    "studio": Studio,
    "run": Run,
    "calibrate": Calibrate,
    "serve": Serve,
    "monitor": MonitorCommand,
    "fleet": Fleet,
    "train": Train,
    "edit": Edit,
}
"""The commands by name; each is a dataclass whose fields are the command's options."""
GROUPS: dict[str, dict[str, Any]] = {"edit": {"guide": Guide, "augment": Augment}}
"""Commands that have commands of their own."""
_ABOUT = f"""Training-free imitation learning, version {__version__}.

closedform COMMAND --help explains a command; closedform --version prints the version. Shell completion: closedform
--tyro-print-completion bash (or zsh, tcsh) prints a script to install."""


class _Version:
    """Prints the version."""

    def run(self) -> None:
        """Prints the version of closedform."""
        print(f"closedform {__version__}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; errors are one line on stderr and exit status 2.

    Args:
        arguments: those after `closedform`; by default those of this process.
    """
    arguments = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if arguments == ["--version"]:
        run(_Version)
        return
    commands, program, about = COMMANDS, "closedform", _ABOUT
    if arguments and arguments[0] in GROUPS:
        program, about = f"closedform {arguments[0]}", COMMANDS[arguments[0]].__doc__
        commands, arguments = GROUPS[arguments[0]], arguments[1:] or ["--help"]
    if not arguments[0].startswith("-") and arguments[0] not in commands:
        streams.prepare()
        _fail(unknown_command(arguments[0], commands, program))
    if arguments[0] in ("-h", "--help"):
        commands = {name: _listed(command) for name, command in commands.items()}
    chosen = f"{program} {arguments[0]}" if arguments[0] in commands else program
    run(lambda: tyro.extras.subcommand_cli_from_dict(commands, prog=program, description=about, args=arguments), chosen)


def _listed(command: Any) -> Callable[[], None]:
    """What stands for a command in the list of all: its first sentence, without its options."""

    def listed() -> None: ...

    listed.__doc__ = (command.__doc__ or "").partition("\n\n")[0]
    return listed


def run(parse: Callable[[], Any], program: str = "") -> None:
    """Parses and runs a command; errors are one line on stderr and exit status 2.

    Args:
        parse: returns the command, whose `run` is called.
        program: its name, if its `--help` explains more.
    """
    streams.prepare()
    try:
        try:
            _run(parse, program)
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


def _run(parse: Callable[[], Any], program: str) -> None:
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), streams.bearable_width():
            command = parse()
    except SystemExit as stop:
        if stop.code:
            _fail(mistake(errors.getvalue(), program))
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
