"""Options of commands that read demonstrations, and what these print meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from tqdm import tqdm
from tyro.conf import arg

from closedform import streams
from closedform.demos.demos import Demos
from closedform.demos.load import MOST_EPISODES, load_demos
from closedform.errors import ConfigError
from closedform.geometry.layout import Layout

if TYPE_CHECKING:
    from closedform.demos.inference.inferred import InferredLayouts

Output = Annotated[Path, arg(aliases=["-o"], metavar="PATH")]
DemosName = Annotated[str, arg(metavar="DEMOS")]
OptionalDemosName = Annotated[str | None, arg(metavar="DEMOS")]
LayoutText = Annotated[str | None, arg(metavar="LAYOUT")]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which demonstrations to read, and how."""

    observation_keys: Annotated[tuple[str, ...] | None, arg(metavar="NAME ...")] = None
    """Names of the arrays or columns that make up an observation."""
    action_key: Annotated[str | None, arg(metavar="NAME")] = None
    """Name of the array that holds the actions."""
    episodes: Annotated[str | None, arg(metavar="NUMBERS")] = None
    """Numbers of the episodes to read, such as 0:10,15."""
    only_task: Annotated[str | None, arg(metavar="TASK")] = None
    """The task whose episodes to read, of a dataset with several; or a pattern, such as "push*" or "*" for all."""
    mask: Annotated[str | None, arg(metavar="NAME")] = None
    """Name of a filter (mask) stored in a robomimic file."""
    actions: Literal["recorded", "absolute", "absolute_6d", "displacements"] = "recorded"
    """Actions as recorded; displacements converted to absolute targets (robomimic's deltas with axis-angle or 6D
    rotations); or targets converted to displacements."""
    action_scale: Annotated[float | None, arg(metavar="SCALE")] = None
    """How far one unit of a displacement moves the body; by default estimated from the data, if they have some."""
    observation_layout: LayoutText = None
    """Layout of observations, such as "hand position 2, block position 2, block angle, - other 3"."""
    action_layout: LayoutText = None
    """Layout of actions, likewise."""
    images: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Folder of image files CAMERA/episode_000000/*.png, for demonstrations without images of their own."""

    def read(self, source: str, *, finite: bool = True) -> Demos:
        """Reads demonstrations from a path, or a dataset by name."""
        demos = load_demos(
            source,
            observation_keys=self.observation_keys,
            action_key=self.action_key,
            episodes=_numbers(self.episodes),
            mask=self.mask,
            actions=self.actions,
            action_scale=self.action_scale,
            observation_layout=Layout.parse(self.observation_layout) if self.observation_layout else None,
            action_layout=Layout.parse(self.action_layout) if self.action_layout else None,
            images=self.images,
            finite=finite,
        )
        return demos if self.only_task is None else demos.of_task(self.only_task)


@dataclass(frozen=True, kw_only=True)
class ChoosingLayouts:
    """What the numbers of observations and actions are."""

    _sees: ClassVar[bool] = False  # whether it uses images

    layout: LayoutText = None
    """What the numbers are: infer (from the data), none (unknown), env (as the environment, dataset or file
    declares), a JSON file with "observation" and "action" layouts, or both as a text, such as
    "hand position 2, block angle -> hand position 2". By default as declared, else inferred."""

    def settle(self, demos: Demos) -> Demos:
        """Demonstrations with these layouts; prints those that were inferred."""
        from closedform.demos.chosen_layouts import choose_layouts

        if isinstance(self, Reading) and self.layout not in (None, "env"):
            given = [name for name in ("observation_layout", "action_layout") if getattr(self, name) is not None]
            if given:
                option = f"--{given[0].replace('_', '-')}"
                raise ConfigError(f"expected --layout or {option}, found both: {self.layout!r} would replace the other")
        if demos.cameras and demos.perceiver is None and not self._sees:
            cameras = ", ".join(demos.cameras)
            streams.complain(f"note: images of {cameras} are not used; closedform perceive makes numbers of them")
        chosen = choose_layouts(demos, self.layout)
        print_inferred(chosen.inferred)
        return chosen.demos


def print_inferred(inferred: InferredLayouts | None) -> None:
    """Prints inferred layouts, if any, and how to override them."""
    if inferred is None:
        return
    from closedform.demos.infer import describe

    for line in describe(inferred):
        streams.complain(line)
    streams.complain("--layout none disables layouts, --layout FILE uses others")


@contextmanager
def progress_bar() -> Iterator[Callable[[str, float], None]]:
    """A progress bar that is updated with a description and the fraction done."""
    with tqdm(total=100, bar_format="{desc:45} {bar} {percentage:3.0f}%", leave=False, disable=None) as bar:

        def say(what: str, share: float) -> None:
            bar.set_description_str(what)
            bar.n = round(100 * share)
            bar.refresh()

        yield say


def _numbers(text: str | None) -> list[int] | None:
    """Parses `0:10,15` into numbers; ranges are counted before they are expanded."""
    if text is None:
        return None
    ranges: list[range] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,15})(?::([0-9]{1,15}))?\s*", part)
        if not match:
            raise ConfigError(f"episodes: expected numbers and ranges such as 0:10,15, found {text[:100]!r}")
        first = int(match[1])
        ranges.append(range(first, int(match[2]) if match[2] else first + 1))
    count = sum(map(len, ranges))
    if count > MOST_EPISODES:
        raise ConfigError(f"episodes: expected at most {MOST_EPISODES} numbers, found {count} in {text[:100]!r}")
    return [number for numbers in ranges for number in numbers]
