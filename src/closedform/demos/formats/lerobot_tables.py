"""The tables of a LeRobot dataset: its frames in order, episode lengths, and tasks."""

from __future__ import annotations

from pathlib import Path
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.demos.formats.common import require, whole_numbers
from closedform.demos.formats.parquet_footer import decoded_size
from closedform.demos.formats.sizes import Sizes
from closedform.errors import ClosedFormError, LoadError
from closedform.files import parse_json

_PURPOSE = "reading a LeRobot dataset"
_ORDERS = ("frame_index", "index", "timestamp")  # columns that say which frame of its episode a row is


def read_frames(path: Path, columns: list[str], info: dict[str, Any]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The columns of all data files, (N, width) each, ordered by episode, and the episode ends, (E,).

    Episodes whose frames disagree with the index columns, the episode table or info.json are refused: two files with an
    episode of the same number would otherwise be mixed.
    """
    files = sorted((path / "data").glob("chunk-*/*.parquet"))
    if not files:
        raise LoadError(f"{path}: expected data/chunk-*/*.parquet, found none")
    table, file_of_row = read_columns(path, files, [*columns, "episode_index"])
    for name in ("episode_index", *_ORDERS):
        if name in table and table[name].shape[1] != 1:
            raise LoadError(f"{path}: expected {name} to be one number per frame, found {table[name].shape[1]}")
    episode = whole_numbers(path, "episode_index", table["episode_index"])
    if not len(episode):
        raise LoadError(f"{path}: expected at least one frame, found none")
    order = _order(path, files, episode, table, file_of_row)
    episode, table = episode[order], {name: column[order] for name, column in table.items()}
    ends = np.append(np.flatnonzero(np.diff(episode)) + 1, len(episode))
    for name, found in (("total_frames", len(episode)), ("total_episodes", len(ends))):
        expected = info.get(name)
        if type(expected) is int and expected != found:
            what = name.removeprefix("total_")
            raise LoadError(f"{path}: expected {brief(expected)} {what} according to info.json, found {found}")
    _check_lengths(path, episode[ends - 1], np.diff(ends, prepend=0))
    return table, ends


def _order(
    path: Path, files: list[Path], episode: np.ndarray, table: dict[str, np.ndarray], file_of_row: np.ndarray
) -> np.ndarray:
    """The order of rows by episode, then by frame."""
    within = next((name for name in _ORDERS if name in table), None)
    if within is None:
        begun = np.flatnonzero(np.diff(episode, prepend=episode[0] - 1) | np.diff(file_of_row, prepend=-1))
        numbers, counts = np.unique(episode[begun], return_counts=True)
        if counts.max() > 1:
            double = numbers[counts.argmax()]
            places = ", ".join(files[f].name for f in np.unique(file_of_row[begun][episode[begun] == double])[:3])
            raise LoadError(
                f"{path}: expected the frames of an episode together, found episode {double} twice: {places}"
            )
        return np.argsort(episode, kind="stable")
    frame = table[within][:, 0]
    order = np.lexsort((frame, episode))
    episode, frame = episode[order], frame[order]
    same = np.diff(episode) == 0
    step = np.diff(frame)
    bad = np.flatnonzero(same & (~(step > 0) if within == "timestamp" else step != 1))
    first = np.append(True, ~same)
    if within == "frame_index" and not len(bad):
        bad = np.flatnonzero(first & (frame != 0))
    if len(bad) or not np.all(np.isfinite(frame)):
        at = int(bad[0]) if len(bad) else 0
        raise LoadError(
            f"{path}: expected each frame of episode {episode[at]} once, found {within} {frame[at]} before "
            f"{frame[min(at + 1, len(frame) - 1)]}; two files may hold an episode of the same number"
        )
    return order


def _check_lengths(path: Path, numbers: np.ndarray, lengths: np.ndarray) -> None:
    """Compares episode lengths with the episode table, if there is one."""
    files = sorted((path / "meta" / "episodes").glob("chunk-*/*.parquet"))
    lines = path / "meta" / "episodes.jsonl"
    if files:
        table, _ = read_columns(path, files, ["episode_index", "length"], optional=())
        pairs = np.stack([whole_numbers(path, name, table[name]) for name in ("episode_index", "length")], axis=1)
        expected = dict(map(tuple, pairs.tolist()))
    elif lines.is_file():
        expected = {row["episode_index"]: row.get("length") for row in _read_lines(lines, "episode_index")}
    else:
        return
    for number, length in zip(numbers.tolist(), lengths.tolist(), strict=True):
        if expected.get(number) != length:
            said = "no such episode" if number not in expected else f"{brief(expected[number])} frames"
            raise LoadError(
                f"{path}: episode {number}: expected {said} according to meta/episodes, found {length} frames"
            )


def read_tasks(path: Path, indices: np.ndarray) -> list[str]:
    """The descriptions of the tasks with these numbers; empty if the dataset has none."""
    file, lines = path / "meta" / "tasks.parquet", path / "meta" / "tasks.jsonl"
    if file.is_file():
        words = _task_table(path, file, set(indices.tolist()))
    elif lines.is_file():
        words = {row["task_index"]: row.get("task") for row in _read_lines(lines, "task_index")}
    else:
        words = {}
    found = [words.get(index, "") for index in indices.tolist()]
    named = [task for task in found if isinstance(task, str)]
    if len(named) < len(found):
        raise LoadError(f"{path}: expected meta/tasks to describe the tasks as text, found other values")
    return named


def _task_table(path: Path, file: Path, wanted: set[int]) -> dict[int, str]:
    """Reads the task table; each description is decoded once, however many rows have it."""
    pa = require("pyarrow", _PURPOSE)
    try:
        schema = require("pyarrow.parquet", _PURPOSE).read_schema(file)
        texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        if "task_index" not in schema.names or not texts:
            raise LoadError(f"{file}: expected task_index and task descriptions, found {', '.join(schema.names)}")
        table = _open(file, Sizes.of(path, [file]), ["task_index", texts[0]], dictionary=[texts[0]])
        numbers = whole_numbers(file, "task_index", _numbers(file, "task_index", table["task_index"]))
        column = table[texts[0]].combine_chunks()
        words, codes = column.dictionary, column.indices.to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(np.isin(numbers, list(wanted)))
        return {int(numbers[row]): words[int(codes[row])].as_py() for row in rows[:100_000]}
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected meta/tasks to describe the tasks, found {error!r}") from error


def _read_lines(file: Path, index: str) -> list[dict[str, Any]]:
    """The lines of a JSONL file, each a dictionary with a whole number under `index`."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LoadError(f"{file}: expected lines of JSON, found {error}") from error
    rows = [parse_json(line, file, "lines of JSON") for line in text.splitlines() if line.strip()]
    for row in rows:
        if not isinstance(row, dict) or type(row.get(index)) is not int:
            raise LoadError(f"{file}: expected a dictionary with {index} on each line, found {brief(row)}")
    return rows


def read_columns(
    path: Path, files: list[Path], columns: list[str], optional: tuple[str, ...] = _ORDERS
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns of files, concatenated, (N, width) each, and the file that each row comes from, (N,)."""
    sizes = Sizes.of(path, files)
    parts: dict[str, list[np.ndarray]] = {}
    rows = []
    for file in files:
        try:
            table = _open(file, sizes, [*columns, *(name for name in optional if name not in columns)])
            missing = [name for name in columns if name not in table.column_names]
            if missing:
                raise LoadError(
                    f"{file}: expected the columns {', '.join(missing)}, found {', '.join(table.column_names)}"
                )
            for name in table.column_names:
                parts.setdefault(name, []).append(_numbers(file, name, table[name]))
            rows.append(table.num_rows)
        except ClosedFormError:
            raise
        except Exception as error:  # parsers of damaged files raise anything
            raise LoadError(f"{file}: expected a complete parquet file, found {error}") from error
    for name in [name for name in optional if name in parts and name not in columns and len(parts[name]) < len(files)]:
        del parts[name]
    for name, arrays in parts.items():
        if len({array.shape[1] for array in arrays}) > 1:
            raise LoadError(f"{path}: expected {name} of equal width, found {sorted({a.shape[1] for a in arrays})}")
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}, np.repeat(np.arange(len(files)), rows)


def _open(file: Path, sizes: Sizes, columns: list[str], dictionary: list[str] | None = None) -> Any:
    """Reads columns of a parquet file, page checksums verified, after checking their decoded size."""
    parquet = require("pyarrow.parquet", _PURPOSE)
    sizes.add_bytes(file.name, decoded_size(file, columns))
    with parquet.ParquetFile(file, read_dictionary=dictionary, page_checksum_verification=True) as opened:
        for field in opened.schema_arrow:
            if field.name in columns and field.name not in (dictionary or ()) and not _holds_numbers(field.type):
                raise LoadError(f"{file}: expected {field.name} to be numbers, found {field.type}")
        return opened.read(columns=columns)


def _holds_numbers(kind: Any) -> bool:
    """Whether a column holds numbers or lists of them; strings and bytes could be of any length."""
    types = require("pyarrow", _PURPOSE).types
    while types.is_nested(kind) or types.is_dictionary(kind):
        if not hasattr(kind, "value_type"):
            return False
        kind = kind.value_type
    return types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)


def _numbers(file: Path, name: str, column: Any) -> np.ndarray:
    """A column of numbers, or of lists with equally many numbers each."""
    column = column.combine_chunks()
    if column.null_count:
        raise LoadError(f"{file}: expected a number at every step of {name}, found {column.null_count} nulls")
    length, width = len(column), 1
    types = require("pyarrow", _PURPOSE).types
    while types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        sizes = np.unique(column.value_lengths().to_numpy(zero_copy_only=False)) if len(column) else np.array([0])
        if len(sizes) != 1:
            raise LoadError(f"{file}: expected {name} of equal width, found {', '.join(map(str, sizes[:20]))}")
        width *= int(sizes[0])
        column = column.flatten()
        if column.null_count:
            raise LoadError(f"{file}: expected numbers in {name}, found {column.null_count} nulls")
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "fiub" or values.size != length * width:
        raise LoadError(f"{file}: expected {name} to be numbers, found {column.type}")
    return values.reshape(length, width)
