"""Demos: a sequence of episodes with the layouts of their observations and actions."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from reprlib import repr as brief
from typing import Any, overload

import numpy as np

from closedform.demos.episode import Episode
from closedform.demos.images import Images
from closedform.errors import DataError
from closedform.figures import html_table
from closedform.geometry.layout import Layout

_RATES = (1e-6, 1e6)  # steps a second


class Demos(Sequence[Episode]):
    """A sequence of episodes that share their layouts.

    Args:
        episodes: `Episode`s, pairs `(observations, actions)`, the same with a dictionary of images by camera, or
            dictionaries with these two keys.
        observation_layout: the meaning of each number of an observation; undeclared by default, which policies infer
            from the numbers if nothing is declared (see `choose_layouts`).
        action_layout: the same for actions.
        rate: steps per second, if known.
        tasks: a description of each episode's task, if known.
        skipped: names of data in the file that were not read, such as videos.
        recorded_in: the recording environment as described in the file (robomimic's `env_args`).
        finite: whether to refuse non-finite numbers and invalid rotations; a dataset report needs to see them.

    Attributes:
        declared: whether any layout was given, be it one of numbers of unknown meaning.
        finite: whether non-finite numbers were refused.
        column_names: names of the numbers of observations and of actions, if the file has them.
        verified: how many episodes were verified against a checksum on reading.
        perceiver: what made the observations from images: a `Perceiver` or the folder of a saved one; None if nothing.
    """

    perceiver: Any = None

    def __init__(
        self,
        episodes: Iterable[Episode | tuple[Any, Any] | tuple[Any, Any, Mapping[str, Images]] | Mapping[str, Any]],
        observation_layout: Layout | None = None,
        action_layout: Layout | None = None,
        rate: float | None = None,
        tasks: Sequence[str] | None = None,
        skipped: Sequence[str] = (),
        recorded_in: Mapping[str, Any] | None = None,
        finite: bool = True,
    ):
        for name, layout in (("observation_layout", observation_layout), ("action_layout", action_layout)):
            if not (layout is None or isinstance(layout, Layout)):
                raise DataError(f"{name}: expected a Layout, found {layout!r}")
        if action_layout is not None:
            action_layout.check_commands()
        if not isinstance(episodes, Iterable):
            raise DataError(f"expected a sequence of episodes, found {episodes!r}")
        self.rate, self.skipped, self.recorded_in = rate, tuple(skipped), recorded_in
        self.declared = observation_layout is not None or action_layout is not None
        self.finite, self.verified = finite, 0
        self.column_names: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)
        self.episodes = tuple(as_episode(episode, index) for index, episode in enumerate(episodes))
        if not self.episodes:
            raise DataError("expected at least one episode, found none")
        self.tasks = tuple(tasks) if tasks is not None else None
        if self.tasks is not None and len(self.tasks) != len(self.episodes):
            raise DataError(f"expected a task for each of {len(self.episodes)} episodes, found {len(self.tasks)}")
        first = self.episodes[0]
        self.observation_layout = observation_layout or Layout.plain(first.observations.shape[1])
        self.action_layout = action_layout or Layout.plain(first.actions.shape[1])
        for index, episode in enumerate(self.episodes):
            check = check_episode if finite else _check_widths
            check(episode, index, self.observation_layout, self.action_layout)

    @property
    def rate(self) -> float | None:
        """Steps per second; None if unknown."""
        return self._rate

    @rate.setter
    def rate(self, value: float | None) -> None:
        self._rate = valid_rate(value)

    @property
    def n_steps(self) -> int:
        """The total number of steps of all episodes."""
        return sum(map(len, self.episodes))

    @property
    def cameras(self) -> tuple[str, ...]:
        """The names of the cameras that every episode has images of."""
        return tuple(name for name in self.episodes[0].images if all(name in one.images for one in self.episodes))

    def all_observations(self) -> np.ndarray:
        """The observations of all episodes, concatenated: (n_steps, D_o)."""
        return np.concatenate([episode.observations for episode in self.episodes])

    def all_actions(self) -> np.ndarray:
        """The actions of all episodes, concatenated: (n_steps, D_a)."""
        return np.concatenate([episode.actions for episode in self.episodes])

    def with_layouts(self, observation_layout: Layout | None = None, action_layout: Layout | None = None) -> Demos:
        """The same episodes with other layouts, None to keep one; only what the layouts add is checked."""
        layouts = observation_layout or self.observation_layout, action_layout or self.action_layout
        for name, layout in zip(("observation_layout", "action_layout"), layouts, strict=True):
            if not isinstance(layout, Layout):
                raise DataError(f"{name}: expected a Layout, or None to keep it, found {brief(layout)}")
        changed = layouts != (self.observation_layout, self.action_layout)
        if not changed and self.declared:
            return self
        layouts[1].check_commands()
        for index, episode in enumerate(self.episodes if changed else ()):
            check = _check_form if self.finite else _check_widths
            check(episode, index, *layouts)
        demos = copy(self)
        demos.declared, (demos.observation_layout, demos.action_layout) = True, layouts
        return demos

    def with_episodes(self, episodes: Iterable[Episode], observation_layout: Layout | None = None) -> Demos:
        """Other episodes, one for each of these, with all else the same; observations may have another layout."""
        demos = Demos(
            episodes,
            observation_layout or self.observation_layout,
            self.action_layout,
            self.rate,
            self.tasks,
            self.skipped,
            self.recorded_in,
            self.finite,
        )
        demos.declared = self.declared or observation_layout is not None
        return demos

    def _some_of(self, demos: Demos) -> Demos:
        """Some of the same demonstrations, which were perceived and declared as these and have the same names."""
        demos.perceiver, demos.column_names, demos.declared = self.perceiver, self.column_names, self.declared
        return demos

    def where(self, keep: Any) -> Demos:
        """The runs of consecutive steps where `keep` (n_steps,) is true, each as an episode of its own.

        As in any episode, the last actions of a run are too few to start a chunk, and its first observation has no
        history.
        """
        keep = np.asarray(keep)
        if keep.dtype != bool or keep.shape != (self.n_steps,):
            found = f"{keep.dtype} of shape {keep.shape}"
            raise DataError(f"expected true or false for each of {self.n_steps} steps, found {found}")
        if not keep.any():
            raise DataError(f"expected at least one step that meets the condition, found none of {self.n_steps}")
        stretches, tasks, start = [], [], 0
        for index, episode in enumerate(self.episodes):
            kept = np.flatnonzero(np.diff(keep[start : start + len(episode)], prepend=False, append=False))
            for first, end in kept.reshape(-1, 2):
                images = {camera: some[first:end] for camera, some in episode.images.items()}
                stretches.append(Episode(episode.observations[first:end], episode.actions[first:end], images=images))
                tasks.append(self.tasks[index] if self.tasks else "")
            start += len(episode)
        layouts = self.observation_layout, self.action_layout
        kept = tasks if self.tasks else None
        return self._some_of(Demos(stretches, *layouts, self.rate, kept, self.skipped, self.recorded_in))

    def of_task(self, task: str) -> Demos:
        """The episodes of one task, or of all that a pattern such as `push*` matches, as episodes of one task."""
        tasks = self.tasks or ("",) * len(self)
        chosen = [index for index, found in enumerate(tasks) if fnmatch.fnmatchcase(found, task)]
        if not chosen:
            raise DataError(f"expected episodes of the task {task!r:.200}, found {told_tasks(tasks)}")
        some = Demos(
            [self.episodes[index] for index in chosen],
            self.observation_layout,
            self.action_layout,
            self.rate,
            [task] * len(chosen),
            self.skipped,
            self.recorded_in,
            self.finite,
        )
        return self._some_of(some)

    def check_one_task(self) -> None:
        """Refuses episodes of several tasks, which would be mixed wherever they observe the same."""
        named = set(filter(None, self.tasks or ()))
        if len(named) > 1:
            first = min(named)
            raise DataError(
                f"expected demonstrations of one task, found {told_tasks(self.tasks or ())}; choose one with "
                f"demos.of_task({first!r:.60}) or closedform fit --only-task; '*' is for tasks that are the same"
            )

    def describe(self, what: str, index: int) -> str:
        """Describes a number of `observations` or `actions` for a message, by the name of its column if it has one."""
        layout = self.observation_layout if what == "observations" else self.action_layout
        names, told = self.column_names[what == "actions"], layout.describe(index)
        if names is None:
            return told
        return f"{names[index]}{told.removeprefix(f'entry {index}')}"

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Episode]:
        return iter(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> Demos: ...
    def __getitem__(self, index: int | slice) -> Episode | Demos:
        if isinstance(index, slice):
            tasks = None if self.tasks is None else self.tasks[index]
            layouts = self.observation_layout, self.action_layout
            some = Demos(self.episodes[index], *layouts, self.rate, tasks, self.skipped, self.recorded_in)
            return self._some_of(some)
        return self.episodes[index]

    def __repr__(self) -> str:
        return f"Demos({len(self)} episodes, {self.n_steps} steps)"

    def _repr_html_(self) -> str:
        """The demonstrations in a notebook."""
        lengths = [len(episode) for episode in self.episodes]
        rows = [
            ("episodes", f"{len(self)}, of {min(lengths)} to {max(lengths)} steps"),
            ("steps", f"{self.n_steps}" + (f", {self.rate:g} per second" if self.rate else "")),
            ("observations", f"{self.observation_layout.width} numbers: {self.observation_layout}"),
            ("actions", f"{self.action_layout.width} numbers: {self.action_layout}"),
        ]
        return html_table("Demonstrations", rows)


def told_tasks(tasks: Sequence[str]) -> str:
    """The tasks of episodes, each with their number, as text for a message."""
    counts = Counter(tasks).most_common()
    listed = ", ".join(f"{task!r:.60} ({n} episodes)" for task, n in counts[:5])
    return listed + (f" and {len(counts) - 5} more" if len(counts) > 5 else "")


def valid_rate(rate: Any) -> float | None:
    """A rate in steps per second, or None if unknown; anything else is refused."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.integer | np.floating):
        raise DataError(f"rate: expected a number of steps per second, found {brief(rate)}")
    if not _RATES[0] <= rate <= _RATES[1]:  # NaN is not either
        found = f"{float(rate):g}" if abs(rate) < 1e300 or rate != rate else "a number too large"
        raise DataError(f"rate: expected between {_RATES[0]:g} and {_RATES[1]:g} steps per second, found {found}")
    return rate if isinstance(rate, int | float) else float(rate)


def as_episode(
    value: Episode | tuple[Any, Any] | tuple[Any, Any, Mapping[str, Images]] | Mapping[str, Any], index: int
) -> Episode:
    """Makes an episode of `(observations, actions)`, possibly with images; errors name the episode."""
    if isinstance(value, Episode):
        return value
    try:
        parts = (value["observations"], value["actions"]) if isinstance(value, Mapping) else value
        observations, actions, *rest = parts
        (images,) = rest or ({},)
        if not isinstance(images, Mapping):
            raise TypeError
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"episode {index}: expected an Episode or a pair (observations, actions), found {type(value).__name__}"
        ) from error
    try:
        return Episode(observations, actions, images=images)
    except DataError as error:
        raise DataError(f"episode {index}: {error}") from error


def _check_widths(episode: Episode, name: int, observation_layout: Layout, action_layout: Layout) -> None:
    """Refuses an episode whose widths do not match the layouts."""
    for what, array, layout in (
        ("observations", episode.observations, observation_layout),
        ("actions", episode.actions, action_layout),
    ):
        if array.shape[1] != layout.width:
            raise DataError(f"episode {name}: expected {what} of {layout.width} numbers, found {array.shape[1]}")


def check_episode(episode: Episode, name: int, observation_layout: Layout, action_layout: Layout) -> None:
    """Refuses an episode with widths that do not match the layouts, non-finite numbers or invalid rotations."""
    _check_widths(episode, name, observation_layout, action_layout)
    for what, array, layout in (
        ("observations", episode.observations, observation_layout),
        ("actions", episode.actions, action_layout),
    ):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            step, index = (int(i) for i in bad[0])
            raise DataError(
                f"episode {name}: {what} must be finite, found {array[step, index]} at step {step}, "
                f"{layout.describe(index)}; {len(bad)} such numbers in total"
            )
        check_rotations(array, layout, f"episode {name}: {what}")


def _check_form(episode: Episode, name: int, observation_layout: Layout, action_layout: Layout) -> None:
    """`check_episode` for an episode that is known to be finite."""
    _check_widths(episode, name, observation_layout, action_layout)
    check_rotations(episode.observations, observation_layout, f"episode {name}: observations")
    check_rotations(episode.actions, action_layout, f"episode {name}: actions")


def check_rotations(array: np.ndarray, layout: Layout, where: str) -> None:
    """Refuses quaternions and rotation-6D entries that are not unit-length, unless their kind was only inferred."""
    for entry, columns in layout.slices():
        if entry.inferred:
            continue
        if entry.kind in ("quaternion", "quaternion_wxyz"):
            vectors = array[:, None, columns]
        elif entry.kind in ("rotation6d", "rotation6d_rows"):
            vectors = array[:, columns].reshape(-1, 2, 3)
        else:
            continue
        with np.errstate(over="ignore"):  # infinity is not of unit length either
            norms = np.linalg.norm(vectors, axis=2)
        bad = np.argwhere(np.abs(norms - 1) > 0.05)
        if len(bad):
            step = int(bad[0, 0])
            raise DataError(
                f"{where}: expected unit length at {layout.describe(columns.start)}, found length "
                f"{float(norms[tuple(bad[0])]):.3g} at step {step}; declare the entry 'other' if it is not a rotation"
            )
