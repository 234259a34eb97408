"""Loading and saving demonstrations in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from closedform.demos.catalog import CATALOG, dataset_path, meant
from closedform.demos.conversion import to_displacements, to_targets
from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.formats import arrays, folder, lerobot, minari, replay_buffer, robomimic
from closedform.demos.formats.common import ReadOptions, select
from closedform.demos.formats.image_files import find_images
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError
from closedform.geometry.layout import Layout

_READERS: tuple[ModuleType, ...] = (folder, lerobot, replay_buffer, minari, robomimic, arrays)
_WRITERS: dict[str, ModuleType] = {
    "folder": folder,
    "zarr": replay_buffer,
    "robomimic": robomimic,
    "lerobot": lerobot,
    "npz": arrays,
    "csv": arrays,
}
KEEPS_IMAGES = ("zarr", "lerobot")  # formats that are written with them
MOST_EPISODES = 1_000_000  # that can be requested
_HDF5 = b"\x89HDF\r\n\x1a\n"


def load_demos(
    source: str | Path | Sequence[Any],
    *,
    observation_keys: Sequence[str] | None = None,
    action_key: str | None = None,
    episodes: Sequence[int] | None = None,
    mask: str | None = None,
    actions: str = "recorded",
    action_scale: float | None = None,
    observation_layout: Layout | None = None,
    action_layout: Layout | None = None,
    images: str | Path | None = None,
    finite: bool = True,
) -> Demos:
    """Reads demonstrations in any supported format, which is detected from the content.

    Args:
        source: a path, the name of a downloaded dataset of the catalog, or a list of `(observations, actions)`.
        observation_keys: names of the arrays or columns that make up an observation; None for the format's default.
        action_key: the same for the action.
        episodes: numbers of the episodes to read; all if None.
        mask: name of a filter stored in a robomimic file.
        actions: `recorded`; `absolute`, displacements converted to targets of the body that they move, of any format
            (robomimic's deltas with their rotations, as axis-angle); `absolute_6d`, robomimic's deltas with rotations
            as rotation-6D; `displacements`, targets converted to displacements. See `demos.conversion`.
        action_scale: how far one unit of a displacement moves the body; None to estimate it from the data.
        observation_layout, action_layout: layouts that the file does not have, or that override its own.
        images: a folder of image files `CAMERA/episode_000000/*.png`, for demonstrations that have none of their own.
        finite: whether to refuse non-finite numbers; a dataset report needs to see them.
    """
    if images is not None:
        given = load_demos(
            source,
            observation_keys=observation_keys,
            action_key=action_key,
            episodes=episodes,
            mask=mask,
            actions=actions,
            action_scale=action_scale,
            observation_layout=observation_layout,
            action_layout=action_layout,
            finite=finite,
        )
        return _with_images(given, Path(images), episodes if episodes is not None else range(len(given)))
    if episodes is not None and len(episodes) > MOST_EPISODES:
        raise ConfigError(f"episodes: expected at most {MOST_EPISODES} numbers, found {len(episodes)}")
    options = ReadOptions(
        observation_keys=tuple(observation_keys) if observation_keys is not None else None,
        action_key=action_key,
        episodes=tuple(episodes) if episodes is not None else None,
        mask=mask,
        actions="absolute" if actions == "displacements" else actions,
        observation_layout=observation_layout,
        action_layout=action_layout,
        finite=finite,
    )
    if actions in ("recorded", "absolute_6d") and action_scale is not None:
        raise ConfigError(f"action_scale: expected actions 'absolute' or 'displacements' with it, found {actions!r}")
    if actions == "displacements" and action_scale is None:
        raise ConfigError(
            "action_scale: expected how far one unit of a displacement moves the body in the environment, found none"
        )
    if not isinstance(source, str | Path):
        if actions == "absolute_6d":
            raise ConfigError("absolute_6d applies to robomimic files only, found a list of arrays")
        recorded = replace(options, actions="recorded")
        if not recorded.default_keys or mask is not None:
            raise ConfigError("keys and masks apply to files only, found a list of arrays")
        return _converted(_read_list(source, recorded), actions, action_scale)
    path, dataset = Path(source), CATALOG.get(str(source))
    if dataset is None or _exists(path):
        return _read(path, options, actions, action_scale)
    path = dataset_path(dataset.name)
    if options.observation_layout is None and observation_keys is None:
        options = replace(options, observation_layout=dataset.observation_layout)
    if options.action_layout is None and actions == "recorded":
        options = replace(options, action_layout=dataset.action_layout)
    demos = _read(path, options, actions, action_scale)
    demos.rate = demos.rate or dataset.rate
    return demos


def _with_images(demos: Demos, folder: Path, numbers: Sequence[int]) -> Demos:
    """The same demonstrations, with references to the files of a folder."""
    cameras = find_images(folder, numbers)
    try:
        some = [
            Episode(episode.observations, episode.actions, images={name: every[i] for name, every in cameras.items()})
            for i, episode in enumerate(demos)
        ]
    except DataError as error:
        raise LoadError(f"{folder}: {error}") from error
    return demos.with_episodes(some)


def _read(path: Path, options: ReadOptions, actions: str, action_scale: float | None) -> Demos:
    """Reads a file or folder, and converts its actions if requested."""
    reader = find_reader(path)
    if actions in ("recorded", "absolute_6d"):
        return reader.read(path, options)
    demos = reader.read(path, replace(options, actions="recorded"))
    if reader is robomimic and actions == "absolute" and demos.recorded_in is not None:
        if action_scale is not None:
            raise ConfigError("action_scale: expected none, since the file says what robosuite's deltas are, found one")
        return reader.read(path, options)
    try:
        return _converted(demos, actions, action_scale)
    except DataError as error:
        raise LoadError(f"{path}: {error}") from error


def _converted(demos: Demos, actions: str, action_scale: float | None) -> Demos:
    match actions:
        case "absolute":
            return to_targets(demos, action_scale)
        case "displacements":
            assert action_scale is not None
            return to_displacements(demos, action_scale)
        case _:
            return demos


def _read_list(source: Sequence[Any], options: ReadOptions) -> Demos:
    """Demonstrations in memory, all of them or the requested episodes."""
    layouts = options.observation_layout, options.action_layout
    demos = source if isinstance(source, Demos) else Demos(source, *layouts, finite=options.finite)
    if options.episodes is None and demos is not source:
        return demos
    chosen = select(Path("demonstrations"), options.episodes, len(demos))
    layouts = (demos.observation_layout, demos.action_layout) if demos.declared else (None, None)
    return Demos(
        [demos[e] for e in chosen],
        options.observation_layout or layouts[0],
        options.action_layout or layouts[1],
        demos.rate,
        [demos.tasks[e] for e in chosen] if demos.tasks else None,
        demos.skipped,
        demos.recorded_in,
        finite=options.finite,
    )


def _exists(path: Path) -> bool:
    """Whether a path exists; what cannot be a path, such as a name that is too long, does not."""
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        raise LoadError(f"{str(path)[:200]!r}: expected an accessible path, found {error}") from error


def find_reader(path: Path) -> ModuleType:
    """The reader module for the format found at a path."""
    if not _exists(path):
        known = ", ".join(CATALOG)
        raise LoadError(
            f"{path}: expected demonstrations, found nothing there; datasets known by name are {known}"
            + meant(str(path))
        )
    if not (path.is_file() or path.is_dir()):  # reading it may block or never end, and works only once
        raise LoadError(f"{path}: expected a file or folder of demonstrations, found a device or pipe")
    try:
        for reader in _READERS:
            if not _could_be(path, reader):
                continue
            if reader.matches(path):
                return reader
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected readable demonstrations, found {error!r}") from error
    expected = "a LeRobot or closedform folder, a zarr replay buffer, robomimic or Minari HDF5, npz, npy or CSV"
    raise LoadError(f"{path}: expected {expected}, found {_kind(path)}")


def _could_be(path: Path, reader: ModuleType) -> bool:
    """Avoids importing unneeded packages: an HDF5 reader is tried only on HDF5 files."""
    if reader not in (minari, robomimic):
        return True
    if path.is_dir():
        return reader is minari
    with path.open("rb") as file:
        return file.read(8) == _HDF5


def _kind(path: Path) -> str:
    if path.is_dir():
        names = sorted(child.name for child in path.iterdir())[:5]
        return f"a folder with {', '.join(names)}" if names else "an empty folder"
    with path.open("rb") as file:
        start = file.read(8)
    if start.startswith(b"PAR1"):
        return "a single parquet file; a LeRobot dataset is the folder with meta/info.json and data/"
    if start == _HDF5:
        return "an HDF5 file without data/demo_N or episode_N"
    return "an empty file" if not start else f"a file that starts with {start!r}"


def save_demos(demos: Demos, path: str | Path, to: str | None = None) -> None:
    """Writes demonstrations; an existing file is never overwritten.

    Args:
        demos: the demonstrations.
        path: the destination; .zarr or .zarr.zip selects a replay buffer, .hdf5 or .h5 a robomimic file, and .npz and
            .csv plain arrays, which keep no layouts.
        to: `folder`, `zarr`, `robomimic`, `lerobot`, `npz` or `csv`; by default it follows from the name, and is
            otherwise `folder`.
    """
    _WRITERS[target_format(Path(path), to)].write(demos, Path(path))


def target_format(path: Path, to: str | None = None) -> str:
    """The format that `save_demos` writes."""
    if to is not None:
        if to not in _WRITERS:
            raise ConfigError(f"expected one of the formats {', '.join(_WRITERS)}, found {to!r}")
        if to in ("npz", "csv") and path.suffix != f".{to}":
            raise ConfigError(f"{path}: expected a name ending in .{to}, found {path.suffix or 'none'}")
        return to
    if path.name.endswith((".zarr", ".zarr.zip")):
        return "zarr"
    if path.suffix in (".hdf5", ".h5"):
        return "robomimic"
    if path.suffix in (".npz", ".csv"):
        return path.suffix[1:]
    if path.suffix in ("", ".demos"):
        return "folder"
    expected = "a name ending in .zarr, .zarr.zip, .hdf5, .npz, .csv or no suffix, or an explicit format"
    raise ConfigError(f"{path}: expected {expected}")
