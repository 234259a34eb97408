"""Shared by the readers and writers of all formats."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos, valid_rate
from closedform.demos.episode import one_too_many
from closedform.demos.formats.checksums import Checksums
from closedform.demos.images import Images
from closedform.errors import ClosedFormError, ConfigError, LoadError, MissingExtraError
from closedform.geometry.layout import Layout


@dataclass(frozen=True)
class ReadOptions:
    """What to read from a dataset.

    Attributes:
        observation_keys: names of the arrays or columns that make up an observation, in order; None for the format's
            default.
        action_key: name of the array that holds the actions; None for the format's default.
        episodes: numbers of the episodes to read; None for all.
        mask: name of a filter stored in the dataset (robomimic's `mask/NAME`).
        actions: `recorded`, or for robomimic's deltas `absolute` (rotations as axis-angle) or `absolute_6d` (as
            rotation-6D).
        observation_layout, action_layout: layouts that the file does not have, or that override its own.
        finite: whether to refuse non-finite numbers; see `Demos`.
    """

    observation_keys: tuple[str, ...] | None = None
    action_key: str | None = None
    episodes: tuple[int, ...] | None = None
    mask: str | None = None
    actions: str = "recorded"
    observation_layout: Layout | None = None
    action_layout: Layout | None = None
    finite: bool = True

    def __post_init__(self):
        if self.actions not in ("recorded", "absolute", "absolute_6d"):
            expected = "recorded, absolute, absolute_6d or displacements"
            raise ConfigError(f"actions: expected {expected}, found {self.actions!r}")
        try:
            bad = [n for n in self.episodes or () if isinstance(n, bool) or operator.index(n) is None]
        except TypeError as error:
            raise ConfigError(f"episodes: expected whole numbers, found {error}") from error
        if bad:
            raise ConfigError(f"episodes: expected whole numbers, found {bad[0]!r}")
        names = (*(self.observation_keys or ()), self.action_key or "", self.mask or "")
        if not all(isinstance(name, str) for name in names):
            raise ConfigError(f"observation_keys, action_key and mask: expected names, found {names!r}")

    @property
    def default_keys(self) -> bool:
        """Whether the data read are those that our writers wrote, so that checksums can be verified."""
        return self.observation_keys is None and self.action_key is None and self.actions == "recorded"

    def recorded_only(self, path: Path, format_name: str) -> None:
        """Refuses options that only apply to robomimic files."""
        if self.mask is not None or self.actions != "recorded":
            raise LoadError(f"{path}: masks and absolute_6d apply to robomimic files only, found {format_name}")


def require(package: str, purpose: str) -> Any:
    """Imports a package of the extra `data`."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(package, "data", purpose) from error


def known_rate(path: Path, rate: Any) -> float | None:
    """The rate stored in a file; errors name the file."""
    try:
        return valid_rate(rate)
    except ClosedFormError as error:
        raise LoadError(f"{path}: {error}") from error


def known_names(path: Path, names: Any, width: int) -> tuple[str, ...] | None:
    """The names of numbers stored in a file, one for each; errors name the file."""
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
        raise LoadError(f"{path}: expected {width} names of numbers, found others")
    return tuple(names)


def known_layout(path: Path, name: str, entries: Any) -> Layout | None:
    """The layout stored in a file; errors name the file."""
    try:
        return None if entries is None else Layout.from_json(entries)
    except ConfigError as error:
        raise LoadError(f"{path}: expected {name} to be a layout: {error}") from error


def whole_numbers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """Indices as int64; anything but whole numbers, such as NaN, is refused."""
    values = values.ravel()
    if values.dtype.kind == "f" and not np.all(np.isfinite(values) & (values == np.floor(values))):
        bad = values[~(np.isfinite(values) & (values == np.floor(values)))][0]
        raise LoadError(f"{path}: expected {name} to be whole numbers, found {bad}")
    if values.dtype.kind not in "iubf" or (len(values) and np.abs(values.astype(np.float64)).max() >= 2**62):
        raise LoadError(f"{path}: expected {name} to be whole numbers, found {values.dtype}")
    return values.astype(np.int64)


def split(
    path: Path,
    observations: np.ndarray,
    actions: np.ndarray,
    ends: np.ndarray,
    options: ReadOptions,
    *,
    checksums: Checksums | None = None,
    **known: Any,
) -> Demos:
    """Splits arrays of all steps into the requested episodes.

    Args:
        path: for messages.
        observations, actions: (T, D_o) and (T, D_a), or more axes, which are flattened.
        ends: (E,), one past the last step of each episode.
        options: what to read.
        checksums: those of the file, if it has any.
        known: layouts, rate, tasks and skipped names that the file provides, and the images of all episodes by camera.
    """
    ends = np.asarray(ends)
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or not len(ends):
        raise LoadError(f"{path}: expected episode ends that are whole numbers, found {ends.dtype} {ends.shape}")
    ends = ends.astype(np.int64)
    if np.any(np.diff(ends, prepend=0) <= 0) or not ends[-1] == len(observations) == len(actions):
        raise LoadError(
            f"{path}: expected episode ends that increase up to the number of steps, found {len(ends)} ends, the last "
            f"{ends[-1]}, for {len(observations)} observations and {len(actions)} actions"
            + one_too_many(len(observations), len(actions), len(ends))
        )
    observations, actions = (flat(path, name, a) for name, a in (("observations", observations), ("actions", actions)))
    chosen = select(path, options.episodes, len(ends))
    if known.get("tasks") is not None:
        known["tasks"] = [known["tasks"][e] for e in chosen]
    starts = np.append(0, ends[:-1])
    pairs = [(observations[starts[e] : ends[e]], actions[starts[e] : ends[e]]) for e in chosen]
    known["images"] = {name: [every[e] for e in chosen] for name, every in known.get("images", {}).items()}
    verified = verify(path, chosen, pairs, checksums, options)
    return make_demos(path, pairs, options, verified=verified, **known)


def verify(
    path: Path, numbers: list[int], pairs: list[tuple[Any, Any]], checksums: Checksums | None, options: ReadOptions
) -> int:
    """Compares episodes with their checksums; returns how many had one."""
    if checksums is None or not options.default_keys:
        return 0
    return sum(checksums.check_episode(path, n, *pair) for n, pair in zip(numbers, pairs, strict=True))


def make_demos(
    path: Path,
    pairs: list[tuple[Any, Any]],
    options: ReadOptions,
    *,
    verified: int = 0,
    column_names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None),
    images: Mapping[str, Sequence[Images]] | None = None,
    **known: Any,
) -> Demos:
    """Makes checked demonstrations; errors name the file. A known layout that says nothing or does not fit is dropped.

    Args:
        path: for messages.
        pairs: observations and actions of each episode.
        options: what to read.
        verified: how many of the episodes were verified against a checksum.
        column_names: names of the numbers of observations and of actions, if the file has them.
        images: of each of these episodes, by camera.
        known: layouts, rate, tasks and skipped names that the file provides.
    """
    for kind, index in (("observation_layout", 0), ("action_layout", 1)):
        given, guess = getattr(options, kind), known.get(kind)
        width = pairs[0][index].shape[-1] if pairs else 0
        stored = guess if guess is not None and guess.width == width and guess != Layout.plain(width) else None
        known[kind] = given or stored
    try:
        cameras = dict(images or {})
        some = [(*pair, {name: every[i] for name, every in cameras.items()}) for i, pair in enumerate(pairs)]
        demos = Demos(some, **known, finite=options.finite)
        demos.verified, demos.column_names = verified, column_names
        return demos
    except ClosedFormError as error:
        raise LoadError(f"{path}: {error}") from error


def select(path: Path, episodes: tuple[int, ...] | None, count: int) -> list[int]:
    """The numbers of the requested episodes; one that does not exist is refused."""
    if episodes is None:
        return list(range(count))
    for episode in episodes:
        if not 0 <= episode < count:
            raise LoadError(f"{path}: expected episodes from 0 to {count - 1}, found {episode}")
    return list(episodes)


def flat(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """An array of real numbers with one row per step."""
    if array.dtype.kind not in "fiub":
        raise LoadError(f"{path}: expected {name} to be real numbers, found dtype {array.dtype}")
    if array.ndim == 0:
        raise LoadError(f"{path}: expected {name} for every step, found a single number")
    if array.ndim == 1:
        return array[:, None]
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), array.shape[1])


def pick(path: Path, names: list[str], wanted: str | None, likely: tuple[str, ...], purpose: str) -> str:
    """One of the available names: the requested one, or the first of the likely ones."""
    for name in (wanted,) if wanted else likely:
        if name in names:
            return name
    expected = repr(wanted) if wanted else f"one of {', '.join(likely)}"
    raise LoadError(f"{path}: expected {expected} for {purpose}, found {', '.join(sorted(names)[:20]) or 'nothing'}")
