"""The worker process: prepares targets, runs cases within limits, and reports their outcomes."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import re
import resource
import shutil
import socket
import threading
import time
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from closedform import kernels
from closedform.errors import ClosedFormError

WARM_UP = 600.0  # seconds that a worker may take to start, including compiling


class WrongResultError(Exception):
    """A result is wrong."""


class Target(Protocol):
    """Something to fuzz. A case is plain JSON, so that it can be printed, minimized and saved.

    A target is created once in each worker, with an empty folder for its originals.
    """

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """A random case."""
        ...

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Runs a case in an empty folder; a `ClosedFormError` is a refusal, and any other exception a failure.

        A case whose key `refused` is true fails unless it is refused.
        """
        ...


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        target, seed: what the case was drawn from; seed is None if the case itself was given.
        kind: `ok`, `refused`, or a failure: `exception`, `wrong`, `memory`, `crash` or `hang`.
        detail: what happened, in one line.
        where: the line of code, if known.
        case: the case, if it failed.
        seconds: how long it took.
    """

    target: str
    seed: int | None
    kind: str
    detail: str = ""
    where: str = ""
    case: Any = None
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether it is a failure."""
        return self.kind not in ("ok", "refused")

    @property
    def cause(self) -> tuple[str, ...]:
        """A key that failures with the same cause most likely share."""
        return self.target, self.kind, self.detail.split(":")[0], self.where

    def corpus_line(self) -> str:
        """The line that keeps the case in tests/fuzz/corpus.json."""
        return json.dumps({"target": self.target, "what": f"{self.kind}: {self.detail}"[:100], "case": self.case})


def work(connection: Any, targets: dict[str, str], folder: Path, memory: int) -> None:
    """The main loop of a worker: prepares targets, then runs cases on request."""
    trace = (folder / "trace").open("w")
    faulthandler.enable(trace)
    faulthandler.dump_traceback_later(WARM_UP, exit=True, file=trace)
    output = (folder / "output").open("w")  # libraries print to the terminal
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    tqdm.set_lock(threading.RLock())  # not a lock between processes, which a killed process leaves behind
    os.environ["CLOSEDFORM_DATA"] = str(folder / "data")
    kernels.PATIENCE = WARM_UP  # a command may print only one line, and not that it compiles
    _stay_offline()
    made: dict[str, Target] = {}
    for name, path in targets.items():
        module, _, attribute = path.partition(":")
        (folder / name).mkdir()
        made[name] = getattr(importlib.import_module(module), attribute)(folder / name)
    connection.send(None)
    place, home = folder / "case", Path.cwd()
    while True:
        faulthandler.cancel_dump_traceback_later()
        try:
            name, seed, case, seconds = connection.recv()
        except EOFError:  # the parent is gone
            return
        try:
            case = made[name].draw(np.random.default_rng([seed, zlib.crc32(name.encode())])) if case is None else case
        except Exception as error:  # a bug in the fuzzer itself
            connection.send(Outcome(name, seed, "exception", f"{type(error).__name__} in draw: {error}", _where(error)))
            continue
        connection.send(case)
        place.mkdir()
        os.chdir(place)
        faulthandler.dump_traceback_later(seconds, exit=True, file=trace)
        began = time.monotonic()
        with _address_space(memory):
            kind, detail, where = _verdict(made[name], case, place)
        took = time.monotonic() - began
        os.chdir(home)
        shutil.rmtree(place, ignore_errors=True)
        failed = kind not in ("ok", "refused")
        connection.send(Outcome(name, seed, kind, detail, where, case if failed else None, took))


def _verdict(target: Target, case: Any, folder: Path) -> tuple[str, str, str]:
    try:
        target.check(case, folder)
        if case.get("refused"):
            raise WrongResultError("accepted, but should have been refused")
    except (Exception, SystemExit) as error:  # KeyboardInterrupt is the user's
        detail = " ".join(f"{type(error).__name__}: {error}".replace(f"{folder}/", "").split())[:300]
        if _out_of_memory(error):
            return "memory", detail, _where(error)
        if isinstance(error, ClosedFormError):
            return "refused", detail, ""
        return "wrong" if isinstance(error, WrongResultError) else "exception", detail, _where(error)
    return "ok", "", ""


def _out_of_memory(error: BaseException | None) -> bool:
    """Whether memory was the cause, even indirectly: oversized requests should be refused in advance."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/closedform/" in frame.filename] or frames
    return f"{short_path(ours[-1].filename)}:{ours[-1].lineno} in {ours[-1].name}" if ours else ""


def short_path(path: str) -> str:
    """The part of a path that identifies the module."""
    return re.sub(r".*/(?=closedform/|fuzz/|tests/|site-packages/)", "", path)


@contextlib.contextmanager
def _address_space(memory: int) -> Iterator[None]:
    """Limits the growth of this process to some bytes, on systems that report its size."""
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        yield
        return
    size = int(statistics.read_text().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = size + memory if hard == resource.RLIM_INFINITY else min(size + memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _stay_offline() -> None:
    connect = socket.socket.connect

    def refuse(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            raise OSError("there is no network while fuzzing")
        connect(self, address)

    socket.socket.connect = refuse  # pyright: ignore[reportAttributeAccessIssue]
