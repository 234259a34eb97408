"""Choosing layouts: as declared by the demonstrations, inferred from their numbers, none, or from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from closedform.demos.demos import Demos
from closedform.demos.inference.inferred import InferredLayouts
from closedform.errors import ConfigError
from closedform.files import read_json
from closedform.geometry.layout import Layout

SIDES = ("observation", "action")
_EXPECTED = "a JSON file of layouts"


class ChosenLayouts(NamedTuple):
    """Demonstrations with the chosen layouts, and the findings if they were inferred."""

    demos: Demos
    inferred: InferredLayouts | None = None

    @property
    def told(self) -> str:
        """What was inferred, as one line; nothing if nothing was."""
        layouts = self.demos.observation_layout, self.demos.action_layout
        if self.inferred is None or all(layout == Layout.plain(layout.width) for layout in layouts):
            return ""
        return (
            f"no layouts are declared, so they are inferred: observations {layouts[0]}; actions {layouts[1]}; "
            "Demos.with_layouts declares others"
        )


def choose_layouts(demos: Demos, choice: str | None = None) -> ChosenLayouts:
    """Gives demonstrations the requested layouts.

    The rule for policies, in Python and on the command line, is that of no choice: layouts are as declared, and are
    inferred from the numbers if nothing is declared about observations or actions.

    Args:
        demos: the demonstrations, with the layouts declared by their file, dataset or environment.
        choice: `infer`, from the numbers; `none`, numbers of unknown meaning; `env`, as declared; a JSON file with
            `observation` and `action`, each as `Layout.parse` or `Layout.from_json` reads it; or both as a text,
            `OBSERVATION -> ACTION`. None is as declared, or inferred if nothing is declared.
    """
    if choice == "env":
        return ChosenLayouts(demos.with_layouts())
    if choice == "none":
        widths = demos.observation_layout.width, demos.action_layout.width
        return ChosenLayouts(demos.with_layouts(*map(Layout.plain, widths)))
    if choice == "infer" or (choice is None and not demos.declared):
        inferred = Layout.infer(demos)
        return ChosenLayouts(demos.with_layouts(inferred.observation_layout, inferred.action_layout), inferred)
    return ChosenLayouts(demos if choice is None else demos.with_layouts(*read_layouts(choice)))


def read_layouts(path: str | Path) -> tuple[Layout, Layout]:
    """Reads layouts of observations and actions from a JSON file, or a text `OBSERVATION -> ACTION`."""
    if isinstance(path, str) and "->" in path:
        observation, _, action = path.partition("->")
        return Layout.parse(observation), Layout.parse(action)
    path = Path(path)
    if not path.exists():
        raise ConfigError(
            f"layout: expected infer, none, env, {_EXPECTED} or OBSERVATION -> ACTION, found {str(path)[:100]!r}"
        )
    return parse_layouts(read_json(path, _EXPECTED), str(path))


def parse_layouts(content: Any, where: str) -> tuple[Layout, Layout]:
    """Layouts of observations and actions from the content of a file."""
    if not isinstance(content, dict) or set(content) != set(SIDES):
        raise ConfigError(f"{where}: expected an object with {' and '.join(SIDES)}, found something else")
    observation, action = (
        Layout.parse(content[side]) if isinstance(content[side], str) else Layout.from_json(content[side])
        for side in SIDES
    )
    return observation, action
