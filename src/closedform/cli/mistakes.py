"""Mistakes on the command line, as one line each that says what was expected and, if it can be guessed, meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_NUMBERS = (
    (r"invalid literal for int\(\) with base 10: (.*)", "a whole number"),
    (r"could not convert string to float: (.*)", "a number"),
    (r"Could not find valid parse for arguments: (.*)", "values of another type"),
)


def unknown_command(word: str, commands: Iterable[str], program: str) -> str:
    """What is wrong with a word that is none of a program's commands."""
    names = list(commands)
    near = _near(word, names) or [name for name in names if name.startswith(word[:3])]
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
    return f"unknown command {word!r}: {hint} ({program} --help explains all)"


def mistake(box: str, program: str) -> str:
    """What is wrong with the options of a program, from the box that tyro draws around its complaint."""
    said = _flat(box)
    missing = re.match(r"Missing from [^:]*: (.*?)(?:; Unrecognized options: ([^\s,;]+).*)?; For full helptext", said)
    said = _told_missing(*missing.groups()) if missing else _told(said)
    return f"{said} ({program} --help explains all)" if program else said


def _told_missing(options: str, unknown: str | None) -> str:
    names = [re.match(r"(?:-\w \S+, )?(\{\S+\}|-\S+ \S+|\S+)", one.strip()) for one in options.split("(required)")]
    needed = "missing " + ", ".join(name[1] for name in names if name)
    return f"unknown {unknown}, and {needed}" if unknown else needed


def _told(said: str) -> str:
    meant = re.match(r"Unrecognized options: (-[^\s,]+).*?Perhaps you meant: (--[\w-]+)", said)
    if meant:
        return f"unknown option {meant[1]}: did you mean {meant[2]}?"
    unknown = re.match(r"Unrecognized options: ([^\s,;]+)", said)
    if unknown:
        kind = "option" if unknown[1].startswith("-") else "argument"
        return f"unknown {kind} {unknown[1]}"
    choice = re.match(r"invalid choice '(.*?)' for argument '(.*?)'. Expected one of \((.*?)\)", said)
    if choice:
        names = [name for name in re.findall(r"'(.*?)'", choice[3]) if name != "None"]
        near = _near(choice[1], names)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{choice[2]}: expected one of {', '.join(names)}, found {choice[1]!r}{hint}"
    value = re.match(r"Missing value for argument '(?:-\w/)?(.*?)'", said)
    if value:
        return f"{value[1]}: expected a value, found none"
    wrong = re.match(r"Error parsing (\S+): (.*?); Argument helptext", said)
    if wrong:
        for pattern, expected in _NUMBERS:
            found = re.fullmatch(pattern, wrong[2])
            if found:
                return f"{wrong[1]}: expected {expected}, found {found[1]}"
        return f"{wrong[1]}: {wrong[2]}"
    return said.partition("; For full helptext")[0].rstrip(".")


def _flat(box: str) -> str:
    """The text of a box in one line, without its title; what rules separate is separated by semicolons."""
    parts = []
    for line in box.splitlines()[1:]:
        text = re.sub(r"[\u2500-\u257f]+|-{4,}", " ", line).strip()
        if not text and line.strip():
            parts.append(";")
        elif text:
            parts.append(text)
    joined = re.sub(r"\s+", " ", " ".join(parts))
    return re.sub(r"(\s*;\s*)+", "; ", joined).strip("; ")


def _near(word: str, names: list[str]) -> list[str]:
    return difflib.get_close_matches(word, names, 1, 0.5)
