"""The command `closedform`."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import EntryPoint
from typing import Any, NoReturn

import tyro

from closedform import ClosedFormError, __version__, streams
from closedform.cli.mistakes import mistake, unknown_command
from closedform.registry import registered

__all__ = ["commands", "main", "run", "subcommands"]

_ORDER = (  # in which one comes to need them; others follow by name
    *("data", "inspect", "convert", "generate", "perceive", "fit", "eval", "report", "explain", "compare", "tune"),
    *("sweep", "index", "info", "studio", "run", "calibrate", "serve", "monitor", "fleet", "train", "edit"),
)


def commands() -> dict[str, Any]:
    """The commands by name; each is a dataclass whose fields are the command's options.

    They are the entry points of the group `closedform.commands`: those of the package's rooms, and of other packages.
    """
    return _loaded("closedform.commands")


def subcommands(command: str) -> dict[str, Any]:
    """The commands that a command has of its own, which are in the group `closedform.commands.COMMAND`."""
    return _loaded(f"closedform.commands.{command}")


def _loaded(group: str) -> dict[str, Any]:
    order = {name: place for place, name in enumerate(_ORDER)}
    found = sorted(registered(group).items(), key=lambda item: order.get(item[0], len(order)))
    return {name: command for name, point in found if (command := _load(point)) is not None}


def _load(point: EntryPoint) -> Any:
    """A command; None, after a line that says so, if it is of another package and cannot be imported."""
    try:
        return point.load()
    except Exception as error:  # whatever another package raises
        if point.module.startswith("closedform."):
            raise
        streams.complain(f"the command {point.name!r} of {point.module} cannot be imported: {error!r}")
        return None


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
    known, program, about = commands(), "closedform", _ABOUT
    own = subcommands(arguments[0]) if arguments[0] in known else {}
    if own:
        program, about = f"closedform {arguments[0]}", known[arguments[0]].__doc__
        known, arguments = own, arguments[1:] or ["--help"]
    if not arguments[0].startswith("-") and arguments[0] not in known:
        streams.prepare()
        _fail(unknown_command(arguments[0], known, program))
    if arguments[0] in ("-h", "--help"):
        known = {name: _listed(command) for name, command in known.items()}
    chosen = f"{program} {arguments[0]}" if arguments[0] in known else program
    run(lambda: tyro.extras.subcommand_cli_from_dict(known, prog=program, description=about, args=arguments), chosen)


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
