"""LeRobot datasets, v3.0 and v2.1: `meta/info.json` and parquet files, without installing lerobot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import ReadOptions, pick, require, split
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormError, LoadError
from closedform.files import appearing

NAME = "lerobot"
PURPOSE = "reading a LeRobot dataset"
VERSIONS = ("v3.0", "v2.1", "v2.0")
OBSERVATION_KEYS = ("observation.state", "observation.environment_state")
VISUAL = ("video", "image")
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def matches(path: Path) -> bool:
    """Whether a path is a folder with meta/info.json."""
    return (path / "meta" / "info.json").is_file()


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; observations are the state and, where there is one, the environment's state."""
    options.recorded_only(path, "a LeRobot dataset")
    info = read_info(path)
    features = {name: f for name, f in info["features"].items() if f.get("dtype") not in VISUAL}
    keys = options.observation_keys or tuple(key for key in OBSERVATION_KEYS if key in features)
    if not keys:
        keys = tuple(sorted(name for name in features if name.startswith("observation.")))
    if not keys:
        raise LoadError(f"{path}: expected observations that are not videos, found {', '.join(info['features'])}")
    names = list(features)
    keys = tuple(pick(path, names, key, (), "observations") for key in keys)
    action_key = pick(path, names, options.action_key, ("action",), "actions")
    with_tasks = ["task_index"] if "task_index" in features else []
    table = _read_table(path, [*keys, action_key, "episode_index", *with_tasks])
    episode = table["episode_index"].ravel()
    if np.any(np.diff(episode) < 0):
        order = np.argsort(episode, kind="stable")
        table = {name: column[order] for name, column in table.items()}
        episode = episode[order]
    expected = info.get("total_frames")
    if isinstance(expected, int) and expected != len(episode):
        raise LoadError(f"{path}: expected {expected} frames as info.json says, found {len(episode)}")
    for name in (*keys, action_key):
        width = int(np.prod(features[name].get("shape", [])))
        if table[name].shape[1] != width:
            raise LoadError(f"{path}: expected {name} of {width} numbers, found {table[name].shape[1]}")
    ends = np.append(np.flatnonzero(np.diff(episode)) + 1, len(episode))
    layouts = _stored_layouts(path, info)
    fps = info.get("fps")
    rate = float(fps) if isinstance(fps, int | float) else None
    tasks = None
    if with_tasks:
        names_of_tasks = _read_tasks(path)
        tasks = [names_of_tasks.get(int(table["task_index"][end - 1, 0]), "") for end in ends]
    videos = [name for name, f in info["features"].items() if f.get("dtype") in VISUAL]
    observations = np.concatenate([table[key] for key in keys], axis=1)
    known = {**layouts, "rate": rate, "tasks": tasks, "skipped": videos}
    return split(path, observations, table[action_key], ends, options, **known)


def read_info(path: Path) -> dict[str, Any]:
    """Reads meta/info.json."""
    file = path / "meta" / "info.json"
    try:
        info = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{file}: expected JSON, found {error}") from error
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise LoadError(f"{file}: expected LeRobot's description of features, found none")
    if not all(isinstance(feature, dict) for feature in info["features"].values()):
        raise LoadError(f"{file}: expected each feature to be described by a dictionary")
    if info.get("codebase_version") not in VERSIONS:
        raise LoadError(f"{file}: expected a version of {', '.join(VERSIONS)}, found {info.get('codebase_version')!r}")
    return info


def _read_tasks(path: Path) -> dict[int, str]:
    """The words of each task; empty where the dataset has none."""
    file, lines = path / "meta" / "tasks.parquet", path / "meta" / "tasks.jsonl"
    try:
        if file.exists():
            table = require("pyarrow.parquet", PURPOSE).read_table(file).to_pydict()
            words = next((values for name, values in table.items() if name != "task_index"), [])
            return {int(index): str(task) for index, task in zip(table["task_index"], words, strict=True)}
        if lines.exists():
            rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines() if line.strip()]
            return {int(row["task_index"]): str(row["task"]) for row in rows}
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected meta/tasks to name the tasks, found {error!r}") from error
    return {}


def _stored_layouts(path: Path, info: dict[str, Any]) -> dict[str, Layout]:
    stored = info.get("closedform")
    if not isinstance(stored, dict):
        return {}
    try:
        return {key: Layout.from_json(stored[key]) for key in ("observation_layout", "action_layout") if key in stored}
    except (TypeError, AttributeError, ValueError) as error:
        raise LoadError(f"{path / 'meta' / 'info.json'}: expected layouts under 'closedform', found {error}") from error


def _read_table(path: Path, columns: list[str]) -> dict[str, np.ndarray]:
    """The columns of all data files, in the order of their names: (N, width) each."""
    parquet = require("pyarrow.parquet", PURPOSE)
    files = sorted((path / "data").glob("chunk-*/*.parquet"))
    if not files:
        raise LoadError(f"{path}: expected data/chunk-*/*.parquet, found none")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in columns}
    for file in files:
        try:
            table = parquet.read_table(file, columns=columns)
            missing = [name for name in columns if name not in table.column_names]
            if missing:
                raise LoadError(
                    f"{file}: expected the columns {', '.join(missing)}, found {', '.join(table.column_names)}"
                )
            for name in columns:
                parts[name].append(_numbers(file, name, table[name]))
        except ClosedFormError:
            raise
        except Exception as error:  # parsers of damaged files raise anything
            raise LoadError(f"{file}: expected a whole parquet file, found {error}") from error
    for name, arrays in parts.items():
        if len({array.shape[1] for array in arrays}) > 1:
            raise LoadError(f"{path}: expected {name} of one width, found {sorted({a.shape[1] for a in arrays})}")
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _numbers(file: Path, name: str, column: Any) -> np.ndarray:
    """A column of numbers or of lists of as many numbers each."""
    column = column.combine_chunks()
    if column.null_count:
        raise LoadError(f"{file}: expected a number at every step of {name}, found {column.null_count} nulls")
    length, width = len(column), 1
    types = require("pyarrow", PURPOSE).types
    while types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        sizes = np.unique(column.value_lengths().to_numpy(zero_copy_only=False)) if len(column) else np.array([0])
        if len(sizes) != 1:
            raise LoadError(f"{file}: expected {name} of one width, found {', '.join(map(str, sizes))}")
        width *= int(sizes[0])
        column = column.flatten()
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "fiub" or values.size != length * width:
        raise LoadError(f"{file}: expected {name} to be numbers, found {column.type}")
    return values.reshape(length, width)


def write(demos: Demos, path: Path) -> None:
    """Writes a v3.0 dataset with one data file, statistics, tasks and the table of episodes.

    LeRobot wants to know the rate and the task; where they are not known it is told 10 Hz and `demonstration`.
    """
    pa, parquet = (
        require("pyarrow", "writing a LeRobot dataset"),
        require("pyarrow.parquet", "writing a LeRobot dataset"),
    )
    lengths = np.array([len(episode) for episode in demos])
    ends = np.cumsum(lengths)
    rate, tasks = demos.rate or 10.0, demos.tasks or ("demonstration",) * len(demos)
    words = list(dict.fromkeys(tasks))
    frames = np.concatenate([np.arange(n) for n in lengths])
    columns = {
        "observation.state": demos.all_observations(),
        "action": demos.all_actions(),
        "timestamp": (frames / rate).astype(np.float32)[:, None],
        "frame_index": frames[:, None],
        "episode_index": np.repeat(np.arange(len(demos)), lengths)[:, None],
        "index": np.arange(lengths.sum())[:, None],
        "task_index": np.repeat([words.index(task) for task in tasks], lengths)[:, None],
    }
    with appearing(path, folder=True) as target:
        (target / "data" / "chunk-000").mkdir(parents=True)
        (target / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
        parquet.write_table(
            pa.table({name: _column(pa, name, values) for name, values in columns.items()}),
            target / DATA_PATH.format(chunk_index=0, file_index=0),
        )
        parquet.write_table(
            _episode_table(pa, columns, lengths, ends, tasks),
            target / "meta" / "episodes" / "chunk-000" / "file-000.parquet",
        )
        parquet.write_table(_task_table(pa, words), target / "meta" / "tasks.parquet")
        statistics = {name: _statistics(values) for name, values in columns.items()}
        (target / "meta" / "stats.json").write_text(json.dumps(statistics, indent=2) + "\n", encoding="utf-8")
        info = {
            "codebase_version": "v3.0",
            "robot_type": "unknown",
            "total_episodes": len(demos),
            "total_frames": int(lengths.sum()),
            "total_tasks": len(words),
            "chunks_size": 1000,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": int(rate) if float(rate).is_integer() else rate,
            "splits": {"train": f"0:{len(demos)}"},
            "data_path": DATA_PATH,
            "video_path": None,
            "features": {
                name: {"dtype": str(values.dtype), "shape": [values.shape[1]], "names": None}
                for name, values in columns.items()
            },
            "closedform": {
                "observation_layout": demos.observation_layout.to_json(),
                "action_layout": demos.action_layout.to_json(),
            },
        }
        (target / "meta" / "info.json").write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")


def _column(pa: Any, name: str, values: np.ndarray) -> Any:
    """Numbers for what LeRobot calls shape (1,), except vectors that happen to have one number."""
    if values.shape[1] == 1 and name not in ("observation.state", "action"):
        return pa.array(values[:, 0])
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])


def _statistics(values: np.ndarray) -> dict[str, list[float]]:
    wide = values.astype(np.float64)
    quantiles = np.quantile(wide, [0.01, 0.1, 0.5, 0.9, 0.99], axis=0)
    return {
        "min": wide.min(0).tolist(),
        "max": wide.max(0).tolist(),
        "mean": wide.mean(0).tolist(),
        "std": wide.std(0).tolist(),
        "count": [len(wide)],
        **{name: q.tolist() for name, q in zip(("q01", "q10", "q50", "q90", "q99"), quantiles, strict=True)},
    }


def _episode_table(
    pa: Any, columns: dict[str, np.ndarray], lengths: np.ndarray, ends: np.ndarray, tasks: Sequence[str]
) -> Any:
    zeros = np.zeros(len(lengths), np.int64)
    table: dict[str, Any] = {
        "episode_index": np.arange(len(lengths)),
        "tasks": [[task] for task in tasks],
        "length": lengths,
        "data/chunk_index": zeros,
        "data/file_index": zeros,
        "dataset_from_index": ends - lengths,
        "dataset_to_index": ends,
        "meta/episodes/chunk_index": zeros,
        "meta/episodes/file_index": zeros,
    }
    for name, values in columns.items():
        own = [_statistics(values[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
        for key in own[0]:
            table[f"stats/{name}/{key}"] = [statistics[key] for statistics in own]
    return pa.table(table)


def _task_table(pa: Any, words: list[str]) -> Any:
    """A row a task, indexed by its words in the way pandas notes an index in parquet's metadata."""
    index = "__index_level_0__"
    text = {"name": None, "field_name": index, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    number = {
        "name": "task_index",
        "field_name": "task_index",
        "pandas_type": "int64",
        "numpy_type": "int64",
        "metadata": None,
    }
    pandas = {
        "index_columns": [index],
        "column_indexes": [],
        "columns": [number, text],
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.0.0",
    }
    table = pa.table({"task_index": pa.array(range(len(words)), pa.int64()), index: pa.array(words)})
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
