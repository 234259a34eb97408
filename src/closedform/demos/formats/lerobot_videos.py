"""The videos of a LeRobot dataset: one for each episode and camera (v2), or several episodes in a file (v3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.common import known_rate, whole_numbers
from closedform.demos.formats.lerobot_tables import read_columns
from closedform.demos.formats.video_images import VideoImages, encode_video
from closedform.demos.images import Images
from closedform.errors import LoadError

VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CODEC = {"video.codec": "h264", "video.pix_fmt": "yuv444p", "video.is_depth_map": False, "has_audio": False}


def find_videos(path: Path, info: dict[str, Any], ends: np.ndarray) -> dict[str, list[Images]]:
    """References to the images of each camera, for each episode; the videos themselves are not opened.

    They are left out if there is no folder of videos, or no table says where they are, as in a part of a dataset.
    """
    found = {}
    if not (path / "videos").is_dir():
        return found
    for name, feature in info["features"].items():
        details = feature.get("info") if isinstance(feature.get("info"), dict) else {}
        if feature.get("dtype") != "video" or details.get("video.is_depth_map") or details.get("is_depth_map"):
            continue
        if "/" in name or "\\" in name or name.startswith("."):
            raise LoadError(f"{path}: expected the name of a camera, found {name!r:.60}")
        rate = known_rate(path, details.get("video.fps") or info.get("fps"))
        if rate is None:
            raise LoadError(f"{path}: expected the fps of the video {name}, found none")
        lengths = np.diff(ends, prepend=0).tolist()
        places = _places_v3(path, name) if info["codebase_version"] == "v3.0" else _places_v2(path, name, info, lengths)
        if not places:
            continue
        if len(places) != len(lengths):
            raise LoadError(f"{path}: expected videos of {len(lengths)} episodes for {name}, found {len(places)}")
        found[name] = [
            Images(VideoImages(file, begin, rate), 0, length)
            for (file, begin), length in zip(places, lengths, strict=True)
        ]
    return found


def _places_v3(path: Path, name: str) -> list[tuple[Path, float]]:
    """The file and the first time of each episode, from the episode table; none if it does not say."""
    files = sorted((path / "meta" / "episodes").glob("chunk-*/*.parquet"))
    keys = tuple(f"videos/{name}/{what}" for what in ("chunk_index", "file_index", "from_timestamp"))
    table = read_columns(path, files, ["episode_index"], optional=keys)[0] if files else {}
    if not set(keys) <= set(table):
        return []
    numbers, chunks, files_of = (whole_numbers(path, key, table[key]) for key in ("episode_index", *keys[:2]))
    begins = table[keys[2]][:, 0]
    if not np.isfinite(begins).all() or (begins < 0).any():
        raise LoadError(f"{path}: expected times of the video {name}, found others in meta/episodes")
    order = np.argsort(numbers, kind="stable")
    folder = path / "videos" / name
    return [
        (folder / f"chunk-{chunks[row]:03d}" / f"file-{files_of[row]:03d}.mp4", float(begins[row])) for row in order
    ]


def _places_v2(path: Path, name: str, info: dict[str, Any], lengths: list[int]) -> list[tuple[Path, float]]:
    size = info.get("chunks_size", 1000)
    if type(size) is not int or size < 1:
        raise LoadError(f"{path}: expected chunks_size to be a whole number above 0, found {size!r:.40}")
    return [
        (path / "videos" / f"chunk-{number // size:03d}" / name / f"episode_{number:06d}.mp4", 0.0)
        for number in range(len(lengths))
    ]


def camera_key(camera: str) -> str:
    """The name of a camera's feature in a LeRobot dataset."""
    return camera if camera.startswith("observation.") else f"observation.images.{camera}"


def write_videos(demos: Demos, rate: float, folder: Path) -> dict[str, dict[str, Any]]:
    """Writes the images of each camera to one video, and returns their features by name."""
    features = {}
    for camera in demos.cameras:
        key = camera_key(camera)
        file = folder / VIDEO_PATH.format(video_key=key, chunk_index=0, file_index=0)
        file.parent.mkdir(parents=True)
        shape: list[tuple[int, ...]] = []
        encode_video(_noting(demos, camera, shape), rate, file)
        height, width, _ = shape[0]
        features[key] = {
            "dtype": "video",
            "shape": [height, width, 3],
            "names": ["height", "width", "channels"],
            "info": {"video.height": height, "video.width": width, "video.fps": rate, "video.channels": 3, **_CODEC},
        }
    return features


def _noting(demos: Demos, camera: str, shape: list[tuple[int, ...]]) -> Iterator[np.ndarray]:
    """All images of a camera, which have to be of one size; it is appended to `shape`."""
    for number, episode in enumerate(demos):
        for image in episode.images[camera]:
            if not shape:
                shape.append(image.shape)
            if image.shape != shape[0]:
                raise LoadError(f"{camera}, episode {number}: expected images of {shape[0]}, found {image.shape}")
            yield image


def video_columns(features: dict[str, dict[str, Any]], lengths: np.ndarray, rate: float) -> dict[str, np.ndarray]:
    """Where the videos of each episode are, for the episode table."""
    ends, zeros = np.cumsum(lengths), np.zeros(len(lengths), np.int64)
    columns = {}
    for key in features:
        columns |= {
            f"videos/{key}/chunk_index": zeros,
            f"videos/{key}/file_index": zeros,
            f"videos/{key}/from_timestamp": (ends - lengths) / rate,
            f"videos/{key}/to_timestamp": ends / rate,
        }
    return columns
