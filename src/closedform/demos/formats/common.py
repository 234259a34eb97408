"""What the readers and writers of all formats share."""

from __future__ import annotations

import importlib
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos, valid_rate
from closedform.demos.formats.checksums import Checksums
from closedform.demos.layout import Layout
from closedform.errors import ClosedFormError, ConfigError, LoadError, MissingExtraError


@dataclass(frozen=True)
class ReadOptions:
    """What to read of a dataset.

    Attributes:
        observation_keys: names of the arrays or columns that make up an observation, in order; None for the format's
            own choice.
        action_key: name of the array that holds the actions; None for the format's own choice.
        episodes: numbers of the episodes to read; None for all.
        mask: name of a filter stored in the dataset (robomimic's `mask/NAME`).
        actions: `recorded`, or for robomimic `absolute` (rotations as axis-angle) or `absolute_6d` (as rotation-6D).
        observation_layout, action_layout: what the numbers are, where the format does not know or is to be overruled.
        finite: whether to refuse numbers that are not finite; see `Demos`.
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
            raise ConfigError(f"actions: expected recorded, absolute or absolute_6d, found {self.actions!r}")
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
        """Whether what is read is what our writers wrote, so that checksums can be verified."""
        return self.observation_keys is None and self.action_key is None and self.actions == "recorded"

    def recorded_only(self, path: Path, format_name: str) -> None:
        """Refuses options that only robomimic files have."""
        if self.mask is not None or self.actions != "recorded":
            raise LoadError(f"{path}: masks and absolute actions are for robomimic files, this is {format_name}")


def require(package: str, purpose: str) -> Any:
    """Imports a package of the extra `data`."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtraError(package, "data", purpose) from error


def known_rate(path: Path, rate: Any) -> float | None:
    """The rate that a file tells; an error names the file."""
    try:
        return valid_rate(rate)
    except ClosedFormError as error:
        raise LoadError(f"{path}: {error}") from error


def known_layout(path: Path, name: str, entries: Any) -> Layout | None:
    """The layout that a file tells; an error names the file."""
    try:
        return None if entries is None else Layout.from_json(entries)
    except ConfigError as error:
        raise LoadError(f"{path}: expected {name} to be a layout: {error}") from error


def whole_numbers(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    """Indices as int64; numbers that are not whole, such as NaN, are refused."""
    values = values.ravel()
    if values.dtype.kind == "f" and not np.all(np.isfinite(values) & (values == np.floor(values))):
        bad = values[~(np.isfinite(values) & (values == np.floor(values)))][0]
        raise LoadError(f"{path}: expected {name} of whole numbers, found {bad}")
    if values.dtype.kind not in "iubf" or (len(values) and np.abs(values.astype(np.float64)).max() >= 2**62):
        raise LoadError(f"{path}: expected {name} of whole numbers, found {values.dtype}")
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
    """Cuts arrays of all steps into the episodes that were asked for.

    Args:
        path: for messages.
        observations, actions: (T, D_o) and (T, D_a), or more axes, which are flattened.
        ends: (E,), one past the last step of each episode.
        options: what to read.
        checksums: what was written, where that is known.
        known: layouts, rate, tasks and what was skipped, as far as the format knows them.
    """
    ends = np.asarray(ends)
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or not len(ends):
        raise LoadError(f"{path}: expected the ends of episodes as whole numbers, found {ends.dtype} {ends.shape}")
    ends = ends.astype(np.int64)
    if np.any(np.diff(ends, prepend=0) <= 0) or not ends[-1] == len(observations) == len(actions):
        raise LoadError(
            f"{path}: expected episode ends that increase up to the number of steps, found {len(ends)} ends, the last "
            f"{ends[-1]}, for {len(observations)} observations and {len(actions)} actions"
        )
    observations, actions = (flat(path, name, a) for name, a in (("observations", observations), ("actions", actions)))
    chosen = select(path, options.episodes, len(ends))
    if known.get("tasks") is not None:
        known["tasks"] = [known["tasks"][e] for e in chosen]
    starts = np.append(0, ends[:-1])
    pairs = [(observations[starts[e] : ends[e]], actions[starts[e] : ends[e]]) for e in chosen]
    verified = verify(path, chosen, pairs, checksums, options)
    return make_demos(path, pairs, options, verified=verified, **known)


def verify(
    path: Path, numbers: list[int], pairs: list[tuple[Any, Any]], checksums: Checksums | None, options: ReadOptions
) -> int:
    """Compares the episodes of these numbers with their checksums; returns how many had one."""
    if checksums is None or not options.default_keys:
        return 0
    return sum(checksums.check_episode(path, n, *pair) for n, pair in zip(numbers, pairs, strict=True))


def make_demos(
    path: Path, pairs: list[tuple[Any, Any]], options: ReadOptions, *, verified: int = 0, **known: Any
) -> Demos:
    """Checks episodes; an error names the file. A known layout that does not fit the width is dropped.

    Args:
        path: for messages.
        pairs: observations and actions of each episode.
        options: what to read.
        verified: how many of the episodes were compared with a checksum.
        known: layouts, rate, tasks and what was skipped, as far as the format knows them.
    """
    for kind, index in (("observation_layout", 0), ("action_layout", 1)):
        given, guess = getattr(options, kind), known.get(kind)
        width = pairs[0][index].shape[-1] if pairs else 0
        known[kind] = given or (guess if guess is not None and guess.width == width else None)
    try:
        demos = Demos(pairs, **known, finite=options.finite)
        demos.verified = verified
        return demos
    except ClosedFormError as error:
        raise LoadError(f"{path}: {error}") from error


def select(path: Path, episodes: tuple[int, ...] | None, count: int) -> list[int]:
    """The numbers of the episodes that were asked for; says so if there is no such episode."""
    if episodes is None:
        return list(range(count))
    for episode in episodes:
        if not 0 <= episode < count:
            raise LoadError(f"{path}: expected episodes from 0 to {count - 1}, asked for {episode}")
    return list(episodes)


def flat(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """An array of real numbers with one row a step."""
    if array.dtype.kind not in "fiub":
        raise LoadError(f"{path}: expected {name} to be real numbers, found dtype {array.dtype}")
    if array.ndim == 0:
        raise LoadError(f"{path}: expected {name} of every step, found a single number")
    if array.ndim == 1:
        return array[:, None]
    return array.reshape(len(array), -1) if array.size else array.reshape(len(array), array.shape[1])


def pick(path: Path, names: list[str], wanted: str | None, likely: tuple[str, ...], purpose: str) -> str:
    """One of the names there are: the one asked for, or the first that is likely."""
    for name in (wanted,) if wanted else likely:
        if name in names:
            return name
    expected = repr(wanted) if wanted else f"one of {', '.join(likely)}"
    raise LoadError(f"{path}: expected {expected} for {purpose}, found {', '.join(sorted(names)[:20]) or 'nothing'}")
