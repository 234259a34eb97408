"""Plain arrays: `.npz`, `.npy` with named columns, and CSV with an episode column."""

from __future__ import annotations

import csv
import fnmatch
import math
import zipfile
from array import array
from pathlib import Path
from typing import IO

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import ReadOptions, flat, pick, split, whole_numbers
from closedform.demos.formats.sizes import Sizes
from closedform.errors import ClosedFormError, LoadError
from closedform.files import appearing

NAME = "arrays"
_OBSERVATION_KEYS = ("observations", "observation", "obs", "states", "state")
_ACTION_KEYS = ("actions", "action", "acts")
_EPISODE_KEYS = ("episode", "episode_index", "episode_id", "episodes", "ep")
_END_KEYS = ("episode_ends", "ends")


def matches(path: Path) -> bool:
    """Whether a path is an npz or npy file, or text that starts with a line of column names."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(b"\x93NUMPY"):
        return True
    if start.startswith(b"PK"):
        if not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    first = start.split(b"\n", 1)[0]
    return b"," in first and b"\x00" not in start


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads observations and actions, split into episodes by their ends or by an episode number at each step."""
    options.recorded_only(path, "plain arrays")
    with path.open("rb") as file:
        start = file.read(6)
    sizes = Sizes.of(path, [path])
    try:
        if start.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                return _read_npz(path, _Archive(path, archive, sizes), options)
        if start == b"\x93NUMPY":
            with path.open("rb") as file:
                array = _read_npy(path, path.name, file, path.stat().st_size, sizes)
            return _read_columns(path, _named_columns(path, array), options)
        return _read_columns(path, _csv_columns(path, sizes), options)
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected arrays of numbers, found {error}") from error


class _Archive:
    """The arrays of an npz file, each read on access."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, sizes: Sizes):
        self.path, self.archive, self.sizes = path, archive, sizes
        self.names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]

    def __getitem__(self, name: str) -> np.ndarray:
        member = self.archive.getinfo(f"{name}.npy")
        with self.archive.open(member) as file:
            array = _read_npy(self.path, name, file, member.file_size, self.sizes)
            file.read()  # to the end, where zip verifies the checksum
        return array


def _read_npy(path: Path, name: str, file: IO[bytes], length: int, sizes: Sizes) -> np.ndarray:
    """Reads an npy file of `length` bytes, once its header is found to describe as many."""
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, order, dtype = header(file)
    if dtype.hasobject:
        raise LoadError(f"{path}: expected {name} to be real numbers, found Python objects")
    n_bytes = math.prod(shape) * dtype.itemsize
    sizes.add(name, shape, dtype)
    if file.tell() + n_bytes != length:
        raise LoadError(
            f"{path}: expected {n_bytes} bytes of {name} according to its header, found {length - file.tell()}"
        )
    array = np.frombuffer(file.read(n_bytes), dtype)
    return array.reshape(shape[::-1]).T if order else array.reshape(shape)


def _read_npz(path: Path, arrays: _Archive, options: ReadOptions) -> Demos:
    names = arrays.names
    keys = options.observation_keys or (pick(path, names, None, _OBSERVATION_KEYS, "observations"),)
    parts = [flat(path, key, arrays[pick(path, names, key, (), "observations")]) for key in keys]
    if len({len(part) for part in parts}) != 1:
        raise LoadError(f"{path}: expected observations of equal length, found {[len(part) for part in parts]}")
    actions = arrays[pick(path, names, options.action_key, _ACTION_KEYS, "actions")]
    if any(name in names for name in _END_KEYS):
        ends = arrays[pick(path, names, None, _END_KEYS, "the episode ends")]
    else:
        ends = _ends(path, arrays[pick(path, names, None, _EPISODE_KEYS, "the episode of each step")])
    return split(path, np.concatenate(parts, axis=1), actions, ends, options)


def _ends(path: Path, episode: np.ndarray) -> np.ndarray:
    """Where the episode number changes from step to step; an episode may not continue later."""
    episode = np.asarray(episode).ravel()
    if episode.dtype.kind not in "US":  # names are as good as numbers
        episode = whole_numbers(path, "the episode of each step", episode)
    if not len(episode):
        raise LoadError(f"{path}: expected at least one step, found none")
    changes = np.flatnonzero(episode[1:] != episode[:-1]) + 1
    begun = episode[np.append(0, changes)]
    if len(np.unique(begun)) != len(begun):
        raise LoadError(f"{path}: expected the steps of an episode to be contiguous, found an episode in two places")
    return np.append(changes, len(episode))


def _named_columns(path: Path, array: np.ndarray) -> dict[str, np.ndarray]:
    if array.dtype.names is None:
        raise LoadError(
            f"{path}: expected an array with named columns, found {array.dtype} {array.shape}; save observations, "
            "actions and episode_ends together with numpy.savez"
        )
    return {name: array[name] for name in array.dtype.names}


def _csv_columns(path: Path, sizes: Sizes) -> dict[str, np.ndarray]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        names = [name.strip() for name in next(rows, [])]
        values = array("d")
        for line, row in enumerate(rows, start=2):
            if not row:
                continue
            if len(row) != len(names):
                raise LoadError(f"{path}: line {line}: expected {len(names)} columns, found {len(row)}")
            try:
                values.extend(map(float, row))
            except ValueError as error:
                raise LoadError(f"{path}: line {line}: expected numbers, found {error}") from error
    if len(set(names)) != len(names):
        raise LoadError(f"{path}: expected unique column names, found {', '.join(names)}")
    if not len(values):
        raise LoadError(f"{path}: expected at least one line of numbers, found none")
    sizes.add_bytes("the table", 8 * len(values))
    table = np.frombuffer(values).reshape(-1, len(names))
    return {name: table[:, index] for index, name in enumerate(names)}


def _read_columns(path: Path, columns: dict[str, np.ndarray], options: ReadOptions) -> Demos:
    """Reads the columns that start with obs or state, and with act; `options` may give patterns such as `joint*`."""
    names = list(columns)
    episode = pick(path, names, None, _EPISODE_KEYS, "the episode of each step")

    def matching(patterns: tuple[str, ...], purpose: str) -> tuple[np.ndarray, tuple[str, ...]]:
        chosen = [n for n in names if n != episode and any(fnmatch.fnmatchcase(n, p) for p in patterns)]
        if not chosen:
            raise LoadError(f"{path}: expected columns {' or '.join(patterns)} for {purpose}, found {', '.join(names)}")
        parts = [flat(path, name, columns[name]) for name in chosen]
        named = [
            f"{n}[{i}]" if p.shape[1] > 1 else n for n, p in zip(chosen, parts, strict=True) for i in range(p.shape[1])
        ]
        return np.concatenate(parts, axis=1), tuple(named)

    observations, observed = matching(options.observation_keys or ("obs*", "state*"), "observations")
    actions, acted = matching((options.action_key,) if options.action_key else ("act*",), "actions")
    ends = _ends(path, columns[episode])
    return split(path, observations, actions, ends, options, column_names=(observed, acted))


def write(demos: Demos, path: Path) -> None:
    """Writes an npz file, or CSV if the name ends in .csv: one line of column names, then one line for each step.

    Neither keeps layouts, the rate or tasks; every number is kept exactly. Names in a CSV start with obs, state or act.
    """
    if path.suffix == ".csv":
        _write_csv(demos, path)
        return
    ends = np.cumsum([len(episode) for episode in demos])
    with appearing(path, folder=False) as target, target.open("wb") as file:
        np.savez(file, observations=demos.all_observations(), actions=demos.all_actions(), episode_ends=ends)


def _write_csv(demos: Demos, path: Path) -> None:
    widths = demos.observation_layout.width, demos.action_layout.width
    observed, acted = (
        _written_names(names, width, starts)
        for names, width, starts in zip(demos.column_names, widths, (("obs", "state"), ("act",)), strict=True)
    )
    with appearing(path, folder=False) as target, target.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["episode", *observed, *acted])
        for index, episode in enumerate(demos):
            for observation, action in zip(episode.observations.tolist(), episode.actions.tolist(), strict=True):
                rows.writerow([index, *map(repr, observation), *map(repr, action)])


def _written_names(names: tuple[str, ...] | None, width: int, starts: tuple[str, ...]) -> tuple[str, ...]:
    """Names of columns that are read back as what they are: they start with one of `starts`."""
    written = tuple(n if n.startswith(starts) else f"{starts[0]}_{n}" for n in names or map(str, range(width)))
    return written if len(set(written)) == width else tuple(f"{starts[0]}_{index}" for index in range(width))
