"""Writing a LeRobot dataset, v3.0, without installing lerobot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.checksums import KEY, Checksums
from closedform.demos.formats.common import require
from closedform.demos.formats.lerobot_videos import VIDEO_PATH, video_columns, write_videos
from closedform.errors import DataError
from closedform.files import appearing

OWN = "closedform.json"  # in meta/: what LeRobot has no place for, and would drop from info.json when it adds episodes
_DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"


def write(demos: Demos, path: Path) -> None:
    """Writes a v3.0 dataset with one data file, one video for each camera, statistics, tasks and the episode table.

    LeRobot requires a rate, without which demonstrations are refused, and a task: an unknown one is written as
    `demonstration`.
    """
    pa, parquet = (
        require("pyarrow", "writing a LeRobot dataset"),
        require("pyarrow.parquet", "writing a LeRobot dataset"),
    )
    if demos.rate is None:
        raise DataError(
            f"{path}: expected the rate of the demonstrations, which a LeRobot dataset has to state, found none: pass "
            "--rate HZ to closedform convert, or set demos.rate"
        )

    def write_table(table: Any, target: Path) -> None:
        parquet.write_table(table, target, write_page_checksum=True)

    lengths = np.array([len(episode) for episode in demos])
    ends = np.cumsum(lengths)
    rate, tasks = demos.rate, demos.tasks or ("demonstration",) * len(demos)
    names: dict[str, Any] = dict(zip(("observation.state", "action"), demos.column_names, strict=True))
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
        write_table(
            pa.table({name: _column(pa, values) for name, values in columns.items()}),
            target / _DATA_PATH.format(chunk_index=0, file_index=0),
        )
        videos = write_videos(demos, rate, target)
        write_table(
            _episode_table(pa, columns, lengths, ends, tasks, video_columns(videos, lengths, rate)),
            target / "meta" / "episodes" / "chunk-000" / "file-000.parquet",
        )
        write_table(_task_table(pa, words), target / "meta" / "tasks.parquet")
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
            "data_path": _DATA_PATH,
            "video_path": VIDEO_PATH if videos else None,
            "features": {
                **{
                    name: {"dtype": str(values.dtype), "shape": [values.shape[1]], "names": names.get(name)}
                    for name, values in columns.items()
                },
                **videos,
            },
        }
        own = {
            "observation_layout": demos.observation_layout.to_json(),
            "action_layout": demos.action_layout.to_json(),
            KEY: Checksums.of(demos, rate, joined=True).to_json(),
        }
        for name, content in (("info.json", info), (OWN, own)):
            (target / "meta" / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _column(pa: Any, values: np.ndarray) -> Any:
    """A column; of scalars where a feature is one number, as LeRobot requires."""
    if values.shape[1] == 1:
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
    pa: Any,
    columns: dict[str, np.ndarray],
    lengths: np.ndarray,
    ends: np.ndarray,
    tasks: Sequence[str],
    videos: dict[str, np.ndarray],
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
        **videos,
    }
    for name, values in columns.items():
        own = [_statistics(values[end - length : end]) for end, length in zip(ends, lengths, strict=True)]
        for key in own[0]:
            table[f"stats/{name}/{key}"] = [statistics[key] for statistics in own]
    return pa.table(table)


def _task_table(pa: Any, words: list[str]) -> Any:
    """One row per task, indexed by its description as pandas stores an index in parquet metadata."""
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
