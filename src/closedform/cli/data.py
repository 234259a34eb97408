"""Commands on demonstrations: `convert`, `data` and `inspect`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from closedform import Demos, save_demos, streams
from closedform.demos.demos import told_tasks
from closedform.demos.load import KEEPS_IMAGES, target_format
from closedform.demos.options import (
    ChoosingLayouts,
    DemosName,
    Reading,
    progress_bar,
)
from closedform.errors import ClosedFormError, ConfigError, MissingExtraError

if TYPE_CHECKING:
    from closedform.analysis.health import Health
    from closedform.demos.catalog import Dataset


@dataclass(frozen=True, kw_only=True)
class Convert(Reading):
    """Convert demonstrations to another format."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""

    target: Positional[Annotated[Path, arg(metavar="TARGET")]]
    """Where to write: NAME.zarr, NAME.zarr.zip, NAME.hdf5 (robomimic), NAME.npz, NAME.csv, or a folder."""
    to: Literal["folder", "zarr", "robomimic", "lerobot", "npz", "csv"] | None = None
    """The format; by default it follows from the name of the target."""
    rate: Annotated[float | None, arg(metavar="HZ")] = None
    """Steps per second; by default as the demonstrations say."""
    render: Annotated[str | None, arg(metavar="ENV")] = None
    """Add images of recorded states, as a camera of this environment takes them: pusht_pixels, also with settings
    such as pusht_pixels:noise=8."""

    def run(self) -> None:
        """Converts, and prints a summary."""
        demos = self.read(self.demos)
        demos.rate = demos.rate if self.rate is None else self.rate
        if self.render is not None:
            from closedform.evaluation.pusht_images import rendered

            demos = rendered(demos, self.render)
        save_demos(demos, self.target, self.to)
        print(f"{len(demos)} episodes, {demos.n_steps} steps: {self.target}")
        _print_skipped(demos)
        if len(set(demos.tasks or ())) > 1 and target_format(self.target, self.to) != "lerobot":
            print(f"tasks not written: {told_tasks(demos.tasks or ())}; --only-task chooses one, and lerobot keeps all")
        if demos.cameras and target_format(self.target, self.to) not in KEEPS_IMAGES:
            print(f"images not written: {', '.join(demos.cameras)}; {' and '.join(KEEPS_IMAGES)} keep them")


@dataclass(frozen=True, kw_only=True)
class Inspect(Reading, ChoosingLayouts):
    """Check the quality of demonstrations: a verdict, the problems that were found, and a report to look at."""

    demos: Positional[DemosName]
    """A path, or the name of a dataset (`closedform data list`)."""

    output: Annotated[Path | None, arg(aliases=["-o"], metavar="FOLDER")] = None
    """Folder for report.html and report.png; by default NAME-report in the current folder."""
    report: bool = True
    """Whether to write the report."""
    json: bool = False
    """Print JSON instead of text; the report is then written only with --output."""

    def run(self) -> None:
        """Examines the demonstrations, prints the findings and writes the report."""
        from closedform.analysis.health import examine
        from closedform.figures import pyplot
        from closedform.files import check_writable

        name = Path(self.demos).name or "demonstrations"
        folder = self.output or Path(f"{name}-report")
        writes = self.report and (self.output is not None or not self.json)
        if self.output is not None and not self.report:
            raise ConfigError("expected --output or --no-report, found both")
        if writes:
            try:
                pyplot()  # fails now rather than after the work
            except MissingExtraError as error:
                if self.output is not None:
                    raise
                writes = False
                streams.complain(f"no report: {error}")
        if writes:
            check_writable(folder / "report.html")
        demos = self.settle(self.read(self.demos, finite=False))
        with progress_bar() as say:
            health = examine(demos, progress=say)
        for note in health.notes:
            streams.complain(f"note: {note}")
        if self.json:
            print(json.dumps(health.to_json(), indent=2))
        else:
            _print_health(health)
            _print_skipped(demos)
        if not writes:
            return
        from closedform.analysis.health_report import draw, write_page

        draw(health, demos, folder / "report.png")
        perceived = self._draw_perception(demos, folder)
        write_page(health, name, folder / "report.png", folder / "report.html", perceived)
        hint = "" if self.output else " (--output FOLDER puts it elsewhere, --no-report leaves it out)"
        print(f"report: {folder / 'report.html'}{hint}", file=sys.stderr if self.json else sys.stdout)

    def _draw_perception(self, demos: Demos, folder: Path) -> Path | None:
        """Draws what was found in the images of perceived demonstrations."""
        from closedform.analysis.perception_report import draw_perception
        from closedform.vision.saved_perceiver import perceiver_of

        perceiver = perceiver_of(demos)
        picture = folder / "perception.png"
        return picture if perceiver is not None and draw_perception(perceiver, demos, picture) else None


@dataclass(frozen=True)
class Data:
    """Public datasets: `list` all, `get` (download) one, print the `path` of one; `verify` any demonstrations."""

    action: Positional[Literal["list", "get", "path", "verify"]]
    """What to do: list, get, path or verify."""
    name: Positional[Annotated[str, arg(metavar="NAME")]] = ""
    """Name of the dataset; for `verify`, a name or a path."""
    trust: bool = False
    """Download files without a known checksum and trust them on first use."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Lists, downloads, finds or verifies datasets."""
        if self.action == "list":
            self._list()
            return
        if not self.name:
            raise ConfigError(f"closedform data {self.action}: expected the name of a dataset, found none")
        if self.action == "verify":
            self._verify()
            return
        from closedform.demos.catalog import dataset_path, find_dataset
        from closedform.demos.download import get_dataset

        if self.action == "get":
            dataset = find_dataset(self.name)
            path = get_dataset(dataset, trust=self.trust or _trusted(dataset))
        else:
            path = dataset_path(self.name)
        print(json.dumps({"name": self.name, "path": str(path)}) if self.json else path)

    def _list(self) -> None:
        from closedform.demos.catalog import CATALOG, cached_path

        rows = [
            {
                "name": dataset.name,
                "path": str(cached_path(dataset) or ""),
                "license": dataset.license,
                "reader": dataset.reader,
                "description": dataset.description,
                "urls": [file.url for file in dataset.files],
                "sha256": [file.sha256 for file in dataset.files],
                "bytes": [file.size for file in dataset.files],
            }
            for dataset in CATALOG.values()
        ]
        if self.json:
            print(json.dumps(rows, indent=2))
            return
        for row in rows:
            print(f"{row['name']:22}{'here ' if row['path'] else '     '}{row['license']:5}{row['description']}")

    def _verify(self) -> None:
        from closedform.demos.verify import verify_demos

        try:
            found = verify_demos(self.name)
        except ClosedFormError as error:
            if self.json:
                print(json.dumps({"ok": False, "problem": str(error)}, indent=2))
            raise
        if self.json:
            print(json.dumps({"ok": True, **found.to_json()}, indent=2))
            return
        print(f"{found.path}: {found.format}, {found.n_episodes} episodes, {found.n_steps} steps, all readable")
        for what in found.verified:
            print(f"verified: {what}")
        for what in found.unverified:
            print(f"not verified: {what}")


def _trusted(dataset: Dataset) -> bool:
    """Asks whether to download files without a known checksum; without a terminal the answer is no."""
    from closedform.demos.catalog import cached_path
    from closedform.demos.download import doubts

    if cached_path(dataset) is not None or not (unknown := doubts(dataset)) or not sys.stdin.isatty():
        return False
    for doubt in unknown:
        print(f"closedform: {doubt}", file=sys.stderr)
    print("closedform: download and trust these files? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _print_health(health: Health) -> None:
    from closedform.analysis.problem import grouped
    from closedform.analysis.verdict import judge

    rate = f" at {health.rate:g} Hz" if health.rate else ""
    print(
        f"{health.n_episodes} episodes, {health.n_steps} steps{rate}, {min(health.lengths)}-{max(health.lengths)} each"
    )
    print(judge(health).text)
    if not health.problems:
        print("no problems found")
    for group in grouped(health.problems):
        print(f"{group.severity:8}{group.kind}: {group.describe()}; {group.problems[0].advice}")
    errors = [error for error in health.prediction_error if error is not None]
    if errors:
        print(f"leave-one-out error: median {np.median(errors):.3f}, worst {max(errors):.3f}")


def _print_skipped(demos: Demos) -> None:
    if demos.skipped:
        print(f"not read: {', '.join(demos.skipped)}")
