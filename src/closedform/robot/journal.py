"""Journal: what happened in a run, line by line, which survives when the process is killed."""

from __future__ import annotations

import json
import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.recorder import RecordError
from closedform.errors import LoadError
from closedform.files import parse_json

PERIOD = 0.25  # seconds between waits for the disk; what was noted longer ago survives a power failure
_CONTINUED = b'{"kind": "continued"}'  # after a line that was cut off
_MOST_IMAGES = 64  # that wait to be written; more are counted and dropped


class Journal:
    """A file of JSON lines, one for each thing that happened, and pictures beside it.

    `note` hands a line to the system at once, in some microseconds, so that a process that is killed loses none. A
    thread waits for the disk four times a second, and writes the pictures: a power failure costs a quarter of a second.

    Args:
        folder: for `journal.jsonl` and `images/`; created if it does not exist. Existing ones are continued.
    """

    def __init__(self, folder: Path):
        self.path, self._images = folder / "journal.jsonl", folder / "images"
        self._condition = threading.Condition()
        self._pictures: list[tuple[int, np.ndarray]] = []
        self._n_pictures, self._dropped, self._closed = 0, 0, False
        self._failure: OSError | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
            if self._file.tell() and not self.path.read_bytes().endswith(b"\n"):
                self._file.write(b"\n" + _CONTINUED + b"\n")  # the process before was killed in the middle of a line
            numbers = [int(path.stem) for path in self._images.glob("*.png") if path.stem.isdecimal()]
            self._n_pictures = max(numbers, default=-1) + 1
        except OSError as error:
            raise RecordError(f"{folder}: expected a folder that can be written to, found {error}") from error
        self._thread = threading.Thread(target=self._write_now_and_then, name="closedform-journal", daemon=True)
        self._thread.start()

    def note(self, kind: str, **facts: Any) -> None:
        """Adds a line; arrays become lists, and numbers that are not finite become null."""
        line = json.dumps({"kind": kind, **{key: _plain(value) for key, value in facts.items()}}, allow_nan=False)
        with self._condition:
            self._write(line.encode() + b"\n")

    def picture(self, pixels: np.ndarray) -> int | None:
        """Adds a picture (height, width, 3) uint8 as `images/NUMBER.png`; returns the number, None if it is dropped."""
        with self._condition:
            if len(self._pictures) >= _MOST_IMAGES:
                self._dropped += 1
                return None
            number, self._n_pictures = self._n_pictures, self._n_pictures + 1
            self._pictures.append((number, pixels))
            return number

    def check(self) -> None:
        """Raises `RecordError` if something could not be written."""
        if self._failure is not None:
            raise RecordError(f"{self.path}: expected to write the journal, found {self._failure}") from self._failure

    def close(self) -> None:
        """Writes the rest; raises `RecordError` if that fails."""
        with self._condition:
            if self._closed:
                return
            self._closed = True
            self._condition.notify()
        self._thread.join()
        self._file.close()
        self.check()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_now_and_then(self) -> None:
        closed = False
        while not closed:
            with self._condition:
                self._condition.wait_for(lambda: self._closed, PERIOD)
                closed = self._closed
                pictures, self._pictures = self._pictures, []
                dropped, self._dropped = self._dropped, 0
                if dropped:
                    self._write(json.dumps({"kind": "images dropped", "count": dropped}).encode() + b"\n")
            try:
                os.fsync(self._file.fileno())
                for number, pixels in pictures:
                    self._images.mkdir(exist_ok=True)
                    (self._images / f"{number:06d}.png").write_bytes(png(pixels))
            except OSError as error:
                self._failure = error

    def _write(self, line: bytes) -> None:
        try:
            data = memoryview(line)
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._failure = error


def read_journal(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal; a last line that a killed process left unfinished is left out.

    Args:
        path: the file `journal.jsonl` of a run.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"{path}: expected a journal, found {error}") from error
    *lines, _ = data.split(b"\n")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(parse_json(line, f"{path}, line {number}", "a line of a journal"))
        except LoadError:
            if lines[number : number + 1] != [_CONTINUED]:
                raise
    return found


def png(pixels: np.ndarray) -> bytes:
    """A picture (height, width, 3) uint8 as a PNG file."""
    pixels = np.ascontiguousarray(pixels, np.uint8)
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter, none
    rows[:, 1:] = pixels.reshape(height, -1)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes(), 1)),
        (b"IEND", b""),
    )
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
