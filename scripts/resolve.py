"""Asks pip whether every extra and every environment of the Makefile can be installed from the package index alone.

    make resolve                              # Python 3.11 and 3.13
    python -m scripts.resolve --python 3.12   # in the root of a clone; needs nothing but Python and make

`pip install --dry-run` resolves each, without the folders of wheels and other indexes that this machine may be set up
with: they hide what somebody else cannot install. What cannot be resolved fails, with pip's words.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from scripts.newcomer import ROOT, interpreter

VERSIONS = ("3.11", "3.13")
APART = ("metaworld",)  # extras that go with no other: they need another MuJoCo
_REACHING = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_DEFAULT_TIMEOUT")  # how the index is reached, not which
_AT_ONCE = 4  # they wait for the network most of the time
_SPARING = ("--dry-run", "--use-feature=fast-deps")  # reads what wheels of gigabytes need without fetching them
_SAID = ("--quiet", "--disable-pip-version-check")


@dataclass(frozen=True)
class Environment:
    """What is installed together.

    Attributes:
        name: to print.
        python: the interpreter that it is made with.
        arguments: of `pip install`.
    """

    name: str
    python: str
    arguments: tuple[str, ...]


def extras(python: str, root: Path = ROOT) -> list[Environment]:
    """The extras, without our constraints: together, as far as they go together."""
    names = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    groups = [[name for name in names if name not in APART], *([name] for name in names if name in APART)]
    return [
        Environment("all other extras" if len(group) > 1 else f"extra {group[0]}", python, (f".[{','.join(group)}]",))
        for group in reversed(groups)
    ]


def environments(python: str, root: Path = ROOT) -> list[Environment]:
    """The environments of the Makefile: what it would install into each, in as many steps as it likes."""
    targets = sorted(set(re.findall(r"\.venv[\w-]*/\.\w+", (root / "Makefile").read_text("utf-8"))))
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", f"PYTHON={python}", *targets]
    variables = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    recipe = subprocess.run(command, cwd=root, env=variables, check=True, stdout=subprocess.PIPE, text=True).stdout
    pythons: dict[str, str] = {}
    arguments: dict[str, list[str]] = {}
    for line in recipe.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[1:3] == ["-m", "venv"]:
            pythons[words[3]] = words[0]
        elif words[1:3] == ["-m", "pip"]:
            given = [word for word in words[words.index("install") + 1 :] if word not in _SAID]
            arguments.setdefault(words[0].split("/")[0], []).extend(given)
    return [Environment(name, pythons[name], tuple(given)) for name, given in arguments.items()]


class Resolver:
    """Asks the newest pip, which downloads least, on each interpreter.

    Args:
        folder: for environments that have pip alone.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        foreign = [name for name in os.environ if name.startswith("PIP_") and name not in _REACHING]
        self._variables = {name: value for name, value in os.environ.items() if name not in foreign}
        self._variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def prepare(self, python: str) -> str | None:
        """Makes an environment with pip alone; returns what went wrong."""
        here = self._folder / python.strip("/").replace("/", "_")
        return self._run([python, "-m", "venv", str(here)]) or self._run(
            [str(here / "bin" / "python"), "-m", "pip", "install", "--quiet", "--upgrade", "pip"]
        )

    def resolve(self, environment: Environment) -> str | None:
        """Resolves an environment; returns pip's words if that cannot be done."""
        here = self._folder / environment.python.strip("/").replace("/", "_")
        install = ["-m", "pip", "install", "--quiet", *_SPARING, *environment.arguments]
        return self._run([str(here / "bin" / "python"), *install])

    def _run(self, command: list[str]) -> str | None:
        if shutil.which(command[0]) is None:
            return f"{command[0]}: expected this interpreter on this machine, found none"
        pipe = subprocess.PIPE
        done = subprocess.run(
            command, cwd=ROOT, env=self._variables, stdout=pipe, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        return None if done.returncode == 0 else done.stdout or f"exit status {done.returncode}"


def check(wanted: list[Environment], resolver: Resolver) -> list[Environment]:
    """Resolves environments, several at once, and prints a line for each; returns those that cannot be installed."""
    problems = {python: resolver.prepare(python) for python in dict.fromkeys(e.python for e in wanted)}

    def resolved(environment: Environment) -> bool:
        start = time.perf_counter()
        problem = problems[environment.python] or resolver.resolve(environment)
        took = f"{time.perf_counter() - start:.0f} s"
        lines = [f"{environment.python}: {environment.name}: {'FAILED' if problem else 'resolved'} ({took})"]
        lines += [f"    | {line}" for line in (problem or "").strip().splitlines()]
        print("\n".join(lines), flush=True)
        return problem is None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [environment for environment, good in zip(wanted, pool.map(resolved, wanted), strict=True) if not good]


def main() -> None:
    """Resolves everything with each version of Python."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=VERSIONS, metavar="VERSION")
    wanted: list[Environment] = []
    for version in parser.parse_args().python:
        python = interpreter(version)
        if python is None:
            sys.exit(f"Python {version}: expected on this machine, found none; install it, or name others: --python")
        wanted += [*environments(python), *extras(python)]
    with tempfile.TemporaryDirectory(prefix="resolve-") as scratch:
        bad = check(list(dict.fromkeys(wanted)), Resolver(Path(scratch)))
    if bad:
        sys.exit("cannot be installed from the package index: " + ", ".join(f"{e.name} ({e.python})" for e in bad))


if __name__ == "__main__":
    main()
