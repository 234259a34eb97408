"""The command `closedform`."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from tqdm import tqdm
from tyro.conf import Positional

from closedform import ClosedFormError, Demos, Layout, __version__, load_demos, load_policy, save_demos
from closedform.errors import ConfigError


@dataclass(frozen=True)
class Info:
    """Says what a saved policy is made of."""

    folder: Positional[Path]
    """The folder that it was saved to."""
    json: bool = False
    """Print JSON, for machines."""

    def run(self) -> None:
        """Prints the policy's class, demonstrations, layouts and parameters."""
        policy = load_policy(self.folder)
        facts = {
            "policy": type(policy).__name__,
            "episodes": len(policy.episode_ids),
            "windows": policy.n_windows,
            "observation_layout": policy.observation_layout.to_json(),
            "action_layout": policy.action_layout.to_json(),
            "parameters": asdict(policy.config),
        }
        if self.json:
            print(json.dumps(facts, indent=2))
            return
        print(f"{facts['policy']} of {facts['episodes']} episodes, {facts['windows']} windows")
        for name in ("observation_layout", "action_layout"):
            entries = [f"{e['body'] or '-'} {e['kind']} ({e['size']})" for e in facts[name]]
            print(f"{name.replace('_', ' ')}: {', '.join(entries)}")
        for name, value in facts["parameters"].items():
            print(f"  {name:18} {value}")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Demonstrations, and what to read of them."""

    demos: Positional[str]
    """A path, or the name of a dataset (`closedform data list`)."""
    observation_keys: tuple[str, ...] | None = None
    """Arrays or columns that make up an observation, by the names that the format uses."""
    action_key: str | None = None
    """The array that holds the actions."""
    episodes: str | None = None
    """Episodes to read, such as 0:10,15."""
    mask: str | None = None
    """A filter stored in a robomimic file."""
    actions: Literal["recorded", "absolute", "absolute_6d"] = "recorded"
    """Actions as recorded, or robomimic's deltas made absolute, rotations as axis-angle or rotation-6D."""
    observation_layout: str | None = None
    """What the numbers are, such as "hand position 2, block position 2, block angle, - other 3"."""
    action_layout: str | None = None
    """The same for actions."""

    def load(self, *, finite: bool = True) -> Demos:
        """Reads them."""
        return load_demos(
            self.demos,
            observation_keys=self.observation_keys,
            action_key=self.action_key,
            episodes=_numbers(self.episodes),
            mask=self.mask,
            actions=self.actions,
            observation_layout=Layout.parse(self.observation_layout) if self.observation_layout else None,
            action_layout=Layout.parse(self.action_layout) if self.action_layout else None,
            finite=finite,
        )


@dataclass(frozen=True, kw_only=True)
class Convert(Source):
    """Writes demonstrations in another format."""

    target: Positional[Path]
    """Where to: NAME.zarr, NAME.zarr.zip, NAME.hdf5 (robomimic), or a folder."""
    to: Literal["folder", "zarr", "robomimic", "lerobot"] | None = None
    """The format, where the name does not tell."""

    def run(self) -> None:
        """Converts, and says what was written."""
        demos = self.load()
        save_demos(demos, self.target, self.to)
        print(f"{len(demos)} episodes, {demos.n_steps} steps: {self.target}")
        _print_skipped(demos)


@dataclass(frozen=True, kw_only=True)
class Inspect(Source):
    """Says whether demonstrations are good enough, and what is wrong with them: problems first."""

    output: Path | None = None
    """Folder for report.html and report.png; NAME-report by default."""
    json: bool = False
    """Print JSON, for machines; a report is then only written where --output asks for one."""

    def run(self) -> None:
        """Examines the demonstrations, prints what was found and writes the report."""
        from closedform.analysis.health import examine

        demos = self.load(finite=False)
        with tqdm(total=100, bar_format="{desc:45} {bar} {percentage:3.0f}%", leave=False, disable=None) as bar:

            def say(what: str, share: float) -> None:
                bar.set_description_str(what)
                bar.n = round(100 * share)
                bar.refresh()

            health = examine(demos, progress=say)
        if self.json:
            print(json.dumps(health.to_json(), indent=2))
            if self.output is None:
                return
        else:
            _print_health(health)
            _print_skipped(demos)
        from closedform.analysis.health_report import draw, write_page

        name = Path(self.demos).name
        folder = self.output or Path(f"{name}-report")
        folder.mkdir(parents=True, exist_ok=True)
        draw(health, demos, folder / "report.png")
        write_page(health, name, folder / "report.png", folder / "report.html")
        print(f"report: {folder / 'report.html'}", file=sys.stderr if self.json else sys.stdout)


@dataclass(frozen=True)
class Data:
    """Public datasets: `list` them, `get` one, or print the `path` of one that is there."""

    action: Positional[Literal["list", "get", "path"]]
    """What to do."""
    name: Positional[str] = ""
    """Which dataset."""
    json: bool = False
    """Print JSON, for machines."""

    def run(self) -> None:
        """Lists, downloads or finds datasets."""
        from closedform.demos.catalogue import CATALOGUE, cached_path, dataset_path, find_dataset
        from closedform.demos.download import get_dataset

        if self.action == "list":
            rows = [
                {
                    "name": dataset.name,
                    "path": str(cached_path(dataset) or ""),
                    "licence": dataset.licence,
                    "reader": dataset.reader,
                    "description": dataset.description,
                    "urls": [file.url for file in dataset.files],
                    "sha256": [file.sha256 for file in dataset.files],
                    "bytes": [file.size for file in dataset.files],
                }
                for dataset in CATALOGUE.values()
            ]
            if self.json:
                print(json.dumps(rows, indent=2))
                return
            for row in rows:
                print(f"{row['name']:22}{'here ' if row['path'] else '     '}{row['licence']:5}{row['description']}")
            return
        if not self.name:
            raise ConfigError(f"closedform data {self.action}: expected the name of a dataset, found none")
        path = get_dataset(find_dataset(self.name)) if self.action == "get" else dataset_path(self.name)
        print(json.dumps({"name": self.name, "path": str(path)}) if self.json else path)


COMMANDS: dict[str, Any] = {"convert": Convert, "data": Data, "info": Info, "inspect": Inspect}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; a mistake is one line on the error stream and exit status 2."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"closedform {__version__}")
        return
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            command = tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                prog="closedform",
                description=f"Training-free imitation learning, version {__version__}.",
                args=arguments,
            )
    except SystemExit as stop:
        if stop.code:
            _fail(_one_line(errors.getvalue()))
        raise
    try:
        command.run()
    except ClosedFormError as error:
        _fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away; Python would complain
    except OSError as error:
        _fail(f"expected to be able to write, found {error}")
    except KeyboardInterrupt:
        print("closedform: interrupted", file=sys.stderr)
        sys.exit(130)


def _print_health(health: Any) -> None:
    rate = f" at {health.rate:g} Hz" if health.rate else ""
    print(
        f"{health.n_episodes} episodes, {health.n_steps} steps{rate}, {min(health.lengths)}-{max(health.lengths)} each"
    )
    if not health.problems:
        print("no problems found")
    for p in health.problems:
        place = "" if p.episode is None else f" episode {p.episode}" + ("" if p.step is None else f" step {p.step}")
        print(f"{p.severity:8}{p.kind}{place}: {p.message}; {p.advice}")
    errors = [error for error in health.prediction_error if error is not None]
    if errors:
        print(f"left out, an episode is predicted with error {np.median(errors):.3f} (median), worst {max(errors):.3f}")


def _print_skipped(demos: Demos) -> None:
    if demos.skipped:
        print(f"not read: {', '.join(demos.skipped)}")


def _numbers(text: str | None) -> list[int] | None:
    """Reads `0:10,15` as numbers."""
    if text is None:
        return None
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?::(\d+))?\s*", part)
        if not match:
            raise ConfigError(f"episodes: expected numbers and ranges such as 0:10,15, found {text!r}")
        numbers += range(int(match[1]), int(match[2])) if match[2] else [int(match[1])]
    return numbers


def _fail(message: str) -> None:
    print(f"closedform: {message}", file=sys.stderr)
    sys.exit(2)


def _one_line(box: str) -> str:
    """Flattens the box that tyro draws around a mistake; its title says less than its text."""
    parts = []
    for line in box.splitlines()[1:]:
        text = re.sub(r"[\u2500-\u257f]+", " ", line).strip()
        if not text and line.strip():
            parts.append(";")
        elif text:
            parts.append(text)
    joined = re.sub(r"\s+", " ", " ".join(parts))
    return re.sub(r"(\s*;\s*)+", "; ", joined).strip("; ")
