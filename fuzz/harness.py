"""Runs cases in worker processes, so that crashes, hangs and memory use are caught and attributed to a case."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.worker import Outcome, short_path, work

SECONDS = 20.0  # that a case may take; a slower one is run again alone
ALONE = 3  # times as long as allowed then
MEMORY = 4 << 30  # bytes of address space that a case may take beyond its worker's own


class Worker:
    """A process that runs cases one after the other, and is replaced when one of them kills it.

    Args:
        targets: `module:class` by name.
        folder: where it keeps its files.
        seconds, memory: limits of a case.
    """

    def __init__(
        self, targets: dict[str, str], folder: Path, *, seconds: float = SECONDS, memory: int = MEMORY
    ) -> None:
        self._targets, self._folder, self._seconds, self._memory = targets, folder, seconds, memory
        self._start()

    def _start(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        arguments = (theirs, self._targets, self._folder.resolve(), self._memory)
        self._process = context.Process(target=work, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        try:
            self.connection.recv()
        except EOFError:
            said = (self._folder / "output").read_text(errors="replace")
            raise RuntimeError(f"a worker failed to start: {self._last_words()}\n{said}") from None

    def begin(self, target: str, seed: int | None, case: Any = None, seconds: float | None = None) -> None:
        """Starts a case, drawn from a seed or given."""
        self._outcome = Outcome(target, seed, "crash", case=case)
        self._began, limit = time.monotonic(), self._seconds if seconds is None else seconds
        self.connection.send((target, seed, case, limit))

    @property
    def drawn(self) -> Any:
        """The running case, once it is drawn."""
        return self._outcome.case

    def result(self) -> Outcome | None:
        """The worker's next message: None when the case is drawn, then its outcome."""
        try:
            message = self.connection.recv()
        except (EOFError, ConnectionResetError):
            kind, where = self._last_words()
            code = self._process.exitcode
            detail = f"took longer than {self._seconds:g} s" if kind == "hang" else f"the process ended with {code}"
            seconds = time.monotonic() - self._began
            outcome = replace(self._outcome, kind=kind, detail=detail, where=where, seconds=seconds)
            self._start()
            return outcome
        if isinstance(message, Outcome):
            return message
        self._outcome = replace(self._outcome, case=message)
        return None

    def run(self, target: str, seed: int | None, case: Any = None, *, seconds: float | None = None) -> Outcome:
        """Runs one case to its end; one that seems to hang gets a second chance, since the machine may be busy."""
        for limit in (seconds or self._seconds, ALONE * (seconds or self._seconds)):
            self.begin(target, seed, case, limit)
            outcome = self.result()
            while outcome is None:
                outcome = self.result()
            if outcome.kind != "hang":
                break
        return outcome  # pyright: ignore[reportPossiblyUnboundVariable]

    def _last_words(self) -> tuple[str, str]:
        """Whether a dead process was killed by the time limit, and where it was then."""
        self._process.join()
        text = (self._folder / "trace").read_text(errors="replace")
        lines = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', text)
        ours = [line for line in lines if "/closedform/" in line[0]] or lines
        where = "{}:{} in {}".format(short_path(ours[0][0]), *ours[0][1:]) if ours else ""
        return "hang" if text.startswith("Timeout") else "crash", where

    def close(self) -> None:
        """Ends the process and removes its files."""
        self.connection.close()
        self._process.join(10)
        self._process.kill()
        self._process.join()
        shutil.rmtree(self._folder, ignore_errors=True)
