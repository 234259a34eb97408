"""Recorder: writes episodes from a control loop that never waits for the disk."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from closedform.demos.episode import Episode, real_array
from closedform.demos.formats.folder import EPISODE, header_of, matches, read_header, write_episode
from closedform.demos.parts import PART, RecordError, lock_folder, part_header, part_row, read_part, recover
from closedform.errors import DataError
from closedform.files import flush
from closedform.geometry.layout import Layout

__all__ = ["RecordError", "Recorder", "read_part", "recover"]

PERIOD = 0.25  # seconds between writes; what was appended longer ago is on the disk


class Recorder:
    """Records episodes into a folder that `load_demos` can read, even during recording.

        with Recorder("demos", observation_layout, action_layout, rate=10) as recorder:
            recorder.begin()
            recorder.append(observation, action)  # at every control step
            recorder.end()

    `append` only copies the numbers; a thread writes them to `episode_NNNNNN.part` four times a second. `end` waits
    until the whole episode is on disk under its final name. After a crash, `recover` makes episodes of the parts.

    Args:
        folder: created if it does not exist; episodes are added to an existing one.
        observation_layout, action_layout: the layouts; if None, the first step determines the widths.
        rate: steps per second.
    """

    def __init__(
        self,
        folder: str | Path,
        observation_layout: Layout | None = None,
        action_layout: Layout | None = None,
        rate: float | None = None,
    ):
        self.folder = Path(folder)
        if action_layout is not None:
            action_layout.check_commands()
        self._widths = [layout.width if layout else None for layout in (observation_layout, action_layout)]
        self._condition = threading.Condition()  # guards the data in memory; never held while waiting for the disk
        self._disk = threading.Lock()  # guards the part's file
        self._rows: list[bytes] = []  # of the episode, not yet written
        self._n_written = 0  # rows before those
        self._observations: list[np.ndarray] = []
        self._actions: list[np.ndarray] = []
        self._recording = self._closed = False
        self._failure: Exception | None = None
        self._file: Any = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.folder)
            if not matches(self.folder):
                if any(not path.name.startswith(".") for path in self.folder.iterdir()):
                    raise RecordError(
                        f"{self.folder}: expected an empty folder or recorded demonstrations, found other files"
                    )
                scratch = self.folder / ".demos.json.new"
                scratch.write_text(header_of(observation_layout, action_layout, rate), encoding="utf-8")
                scratch.replace(self.folder / "demos.json")
            else:
                self._check_header(observation_layout, action_layout)
        except OSError as error:
            raise RecordError(f"{self.folder}: expected a folder that can be written to, found {error}") from error
        names = [match for path in self.folder.iterdir() for p in (EPISODE, PART) if (match := p.fullmatch(path.name))]
        self._number = max((int(match[1]) for match in names), default=-1) + 1
        self._thread = threading.Thread(target=self._write_now_and_then, name="closedform-recorder", daemon=True)
        self._thread.start()

    def _check_header(self, *layouts: Layout | None) -> None:
        facts = read_header(self.folder)
        for index, (key, layout) in enumerate(zip(("observation_layout", "action_layout"), layouts, strict=True)):
            stored = facts.get(key)
            if layout is not None and stored is not None and layout.to_json() != stored:
                raise RecordError(f"{self.folder}: expected the {key.replace('_', ' ')} of demos.json, found another")
            try:
                self._widths[index] = self._widths[index] if stored is None else Layout.from_json(stored).width
            except (TypeError, ValueError, AttributeError) as error:
                raise RecordError(f"{self.folder / 'demos.json'}: expected layouts, found {error}") from error

    def begin(self) -> None:
        """Begins an episode."""
        self._raise_failure()
        if self._closed:
            raise RecordError("the recorder is closed")
        if self._recording:
            raise RecordError("an episode is being recorded: end or discard it first")
        self._recording = True

    def append(self, observation: Any, action: Any) -> None:
        """Adds a step: an observation (D_o,) and the action commanded then (D_a,)."""
        if not self._recording:
            raise RecordError("no episode is being recorded: begin one first")
        row = []
        for index, (name, value) in enumerate((("observation", observation), ("action", action))):
            numbers = np.array(real_array(value, name), np.float64)
            if numbers.ndim != 1 or (self._widths[index] not in (None, numbers.size)):
                raise DataError(
                    f"{name}: expected {self._widths[index] or 'some'} numbers, found shape {numbers.shape}"
                )
            if not np.isfinite(numbers).all():
                raise DataError(f"{name}: expected finite numbers, found {numbers[~np.isfinite(numbers)][0]}")
            self._widths[index] = numbers.size
            row.append(numbers)
        with self._condition:
            self._observations.append(row[0])
            self._actions.append(row[1])
            self._rows.append(row[0].tobytes() + row[1].tobytes())
        self._raise_failure()

    def end(self, keep: bool = True) -> int | None:
        """Ends the episode and returns its number once all of it is on disk; `keep=False` discards it."""
        if not self._recording:
            raise RecordError("no episode is being recorded: begin one first")
        if not keep:
            self.discard()
            return None
        if not self._observations:
            raise RecordError("expected at least one step in an episode, found none: append some, or discard it")
        final = self.folder / f"episode_{self._number:06d}.safetensors"
        scratch = self.folder / f".{final.name}.new"
        with self._disk:
            try:
                write_episode(scratch, Episode(np.stack(self._observations), np.stack(self._actions)))
                flush(scratch)
                scratch.replace(final)
                flush(self.folder)
            except (OSError, SafetensorError) as error:
                scratch.unlink(missing_ok=True)
                raise RecordError(
                    f"{final}: expected to write {len(self._observations)} steps, found {error}; they are kept: "
                    "free some space and call end again"
                ) from error
            self._forget()
        return self._number - 1

    def discard(self) -> None:
        """Discards the episode."""
        with self._disk:
            self._forget()

    def close(self) -> None:
        """Stops recording; an unfinished episode stays on the disk as a part that `recover` can read.

        Raises `RecordError` with the number of lost steps if the last ones cannot be written.
        """
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify()
        self._thread.join()
        if self._file is not None:
            self._file.close()
        self._lock.close()
        if self._rows:
            raise RecordError(
                f"{self._part()}: expected to write the last {len(self._rows)} steps, found {self._failure}; "
                f"the {self._n_written} before them are on disk"
            ) from self._failure

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _forget(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._part().unlink(missing_ok=True)
        with self._condition:
            self._rows, self._observations, self._actions = [], [], []
            self._n_written = 0
            self._recording, self._failure = False, None
            self._number += 1

    def _part(self) -> Path:
        return self.folder / f"episode_{self._number:06d}.part"

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise RecordError(
                f"{self._part()}: expected to write the recorded steps, found {failure}; earlier steps are on disk "
                "and every step is kept in memory: free some space and keep recording, or end the episode"
            ) from failure

    def _write_now_and_then(self) -> None:
        closed = False
        while not closed:
            with self._condition:
                self._condition.wait_for(lambda: self._closed, PERIOD)
                closed = self._closed
            with self._disk:
                with self._condition:
                    rows, self._rows = self._rows, []
                if rows and not self._write(rows):
                    with self._condition:
                        self._rows = rows + self._rows

    def _write(self, rows: list[bytes]) -> bool:
        """Appends rows to the part; if that fails, the part is truncated to its previous end."""
        try:
            if self._file is None:
                self._file = self._part().open("wb", buffering=0)
            begun = self._file.tell()
            content = [] if begun else [part_header(self._widths[0] or 0, self._widths[1] or 0)]
            content += [part_row(row, self._n_written + index) for index, row in enumerate(rows)]
            try:
                data = memoryview(b"".join(content))
                while data:
                    data = data[self._file.write(data) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._file.seek(begun)
                self._file.truncate()
                raise
        except OSError as error:
            self._failure = error
            return False
        self._n_written += len(rows)
        return True
