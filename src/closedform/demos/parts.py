"""Parts: the files of unfinished episodes that a recorder writes, and their recovery after a crash.

A part has a header (the widths of an observation and an action, and their checksum) followed by rows: the numbers of a
step, and a checksum of them and of the step's index. So a truncated, changed, lost or repeated row is detected. Parts
written by earlier versions have no checksums.
"""

from __future__ import annotations

import re
import struct
import warnings
import zlib
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from safetensors import SafetensorError

from closedform.demos.episode import Episode
from closedform.demos.formats.folder import read_episode, read_header, write_episode
from closedform.demos.formats.sizes import Sizes
from closedform.errors import ClosedFormError, ClosedFormWarning, LoadError
from closedform.files import flush
from closedform.geometry.layout import Layout

try:
    import fcntl
except ImportError:  # Windows, where recorders of one folder are not kept apart
    fcntl = None

_MAGIC, _OLD_MAGIC = b"CFPART2\n", b"CFPART1\n"
_WIDTHS = struct.Struct("<8sii")
_CHECKSUM = struct.Struct("<I")
PART = re.compile(r"episode_(\d{6,})\.part(\.damaged)?")


class RecordError(ClosedFormError):
    """Recorded data could not be written; what was written before is still there."""


class _Part(NamedTuple):
    """The content of a part.

    Attributes:
        episode: the steps up to the first damaged one.
        problem: what is wrong after them, or None; an incomplete last row is normal: the process was killed there.
    """

    episode: Episode
    problem: str | None


def lock_folder(folder: Path) -> IO[str]:
    """Locks a folder of demonstrations until the returned file is closed."""
    try:
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise RecordError(f"{folder}: expected a folder that can be written to, found {error}") from error
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise RecordError(f"{folder}: another process is recording into this folder") from error
    return file


def part_header(d_o: int, d_a: int) -> bytes:
    """The header of a part."""
    header = _WIDTHS.pack(_MAGIC, d_o, d_a)
    return header + _CHECKSUM.pack(zlib.crc32(header))


def part_row(numbers: bytes, index: int) -> bytes:
    """The bytes of a step, given its numbers as bytes: those and a checksum."""
    return numbers + _CHECKSUM.pack(zlib.crc32(numbers, index & 0xFFFFFFFF))


def recover(folder: str | Path) -> list[int]:
    """Makes episodes of the parts that a killed recorder left; returns their numbers.

    Every step that was appended more than a second before the crash is recovered. The part of a finished episode is
    removed. Unreadable data is never removed and does not prevent the recovery of other parts: a damaged part becomes
    an episode up to the damage and is kept as `episode_NNNNNN.part.damaged`; a part that cannot be read at all stays
    where it is. A `ClosedFormWarning` names both. It refuses to run while a recorder is recording into the folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise LoadError(f"{folder}: expected a folder of recorded demonstrations, found none")
    recovered, problems = [], []
    with lock_folder(folder):
        for path in sorted(folder.glob("episode_*.part")):
            if not PART.fullmatch(path.name):
                continue
            try:
                made, problem = _recover(path)
            except LoadError as error:
                made, problem = False, f"{error}; left unchanged"
            if made:
                recovered.append(int(path.stem.split("_")[1]))
            if problem:
                problems.append(problem)
    if problems:
        warnings.warn("; ".join(problems), ClosedFormWarning, stacklevel=2)
    return recovered


def _recover(path: Path) -> tuple[bool, str | None]:
    """Recovers one part and removes it; returns whether it yielded an episode, and what is wrong with it."""
    part, final = _parse_part(path), path.with_suffix(".safetensors")
    episode, made = part.episode, False
    if len(episode):
        _check_widths(episode, path)
    if final.exists():
        finished = read_episode(final, Sizes.of(final, [final]))
        for whole, own in zip(finished, (episode.observations, episode.actions), strict=True):
            if len(own) and not np.array_equal(whole[: len(own)], own):
                raise LoadError(f"{path}: expected the same steps as in {final.name}, found different ones")
    elif len(episode):
        _write(final, episode)
        made = True
    if part.problem is None:
        path.unlink()
        return made, None
    damaged = path.with_name(f"{path.name}.damaged")
    path.rename(damaged)
    return made, f"{damaged}: {part.problem}; the {len(episode)} steps before it are recovered, and the file is kept"


def _check_widths(episode: Episode, path: Path) -> None:
    """Refuses an episode whose widths differ from those in demos.json."""
    facts = read_header(path.parent)
    for key, array in (("observation_layout", episode.observations), ("action_layout", episode.actions)):
        try:
            width = Layout.from_json(facts[key]).width if facts.get(key) else array.shape[1]
        except (TypeError, ValueError, AttributeError) as error:
            raise LoadError(f"{path.parent / 'demos.json'}: expected layouts, found {error}") from error
        if width != array.shape[1]:
            raise LoadError(f"{path}: expected {width} numbers according to demos.json, found {array.shape[1]}")


def _write(final: Path, episode: Episode) -> None:
    scratch = final.with_name(f".{final.name}.new")
    try:
        write_episode(scratch, episode)
        flush(scratch)
        scratch.replace(final)
        flush(final.parent)
    except (OSError, SafetensorError) as error:
        scratch.unlink(missing_ok=True)
        raise RecordError(
            f"{final}: expected to write {len(episode)} steps, found {error}; the recording is kept: free some "
            "space and recover again"
        ) from error


def read_part(path: Path) -> Episode:
    """Reads the complete steps of an unfinished episode, up to the first damaged one."""
    return _parse_part(path).episode


def _parse_part(path: Path) -> _Part:
    """Parses a part; an incomplete or foreign header raises `LoadError`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LoadError(f"{path}: expected the part of an episode, found {error.strerror}") from error
    old = data[: len(_OLD_MAGIC)] == _OLD_MAGIC
    size = _WIDTHS.size + (0 if old else _CHECKSUM.size)
    if len(data) < size and (_MAGIC.startswith(data[:8]) or old):  # killed before there was a step
        return _Part(Episode(np.empty((0, 1)), np.empty((0, 1))), None)
    magic, d_o, d_a = _WIDTHS.unpack_from(data) if len(data) >= size else (b"", 0, 0)
    known = old or (magic == _MAGIC and data[_WIDTHS.size : size] == _CHECKSUM.pack(zlib.crc32(data[: _WIDTHS.size])))
    if not known or d_o < 1 or d_a < 1:
        raise LoadError(f"{path}: expected the part of an episode, found a file that starts with {data[:8]!r}")
    width = 8 * (d_o + d_a)
    stride = width + (0 if old else _CHECKSUM.size)
    n = (len(data) - size) // stride
    raw = np.frombuffer(data, np.uint8, n * stride, size).reshape(n, stride)
    rows = np.ascontiguousarray(raw[:, :width]).view("<f8").reshape(n, d_o + d_a)
    good = [  # numbers that were appended are finite
        bool(np.isfinite(rows[index]).all()) and (old or part_row(row[:width].tobytes(), index) == row.tobytes())
        for index, row in enumerate(raw)
    ]
    n_good = n if all(good) else good.index(False)
    problem = None if n_good == n else f"expected {n} intact steps, found a checksum mismatch in step {n_good}"
    if old and not n and len(data) > size:  # widths that no checksum vouches for
        problem = f"expected steps of {d_o + d_a} numbers, found less than one step"
    return _Part(Episode(rows[:n_good, :d_o].copy(), rows[:n_good, d_o:].copy()), problem)
