"""The command `perceive`: demonstrations with images become demonstrations of numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from closedform.demos.demos import Demos
from closedform.demos.options import ChoosingLayouts, DemosName, Output, Reading, progress_bar
from closedform.errors import ConfigError, LoadError

if TYPE_CHECKING:
    from closedform.vision.perceiver import Perceiver, Progress


@dataclass(frozen=True, kw_only=True)
class Perceive(Reading, ChoosingLayouts):
    """Make numbers of the images of demonstrations, without training; `fit` on the result takes images."""

    _sees = True
    demos: Positional[DemosName]
    """A path with images, or the name of a dataset (`closedform data list`)."""
    output: Output
    """Folder for the demonstrations of numbers and the perceiver."""
    kind: Annotated[str, arg(name="with", metavar="KIND")]
    """bodies (the poses of what moves in a plane), features (of any scene), markers (see --cell), or a folder that
    this command wrote, to perceive others in the same way."""
    camera: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ()
    """Names of the cameras; needed if there are several, and if not all are to be used."""
    masks: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """For bodies: a folder of masks episode_000000/000012.png, with the numbers of bodies as gray levels, 0 where none
    is."""
    cell: Annotated[Path | None, arg(metavar="FILE")] = None
    """For markers: the file that describes the markers (docs/robot.md)."""
    intrinsics: Annotated[Path | None, arg(metavar="FILE")] = None
    """For markers: the camera's calibration (closedform calibrate)."""
    setup: Annotated[Path | None, arg(metavar="FILE")] = None
    """For markers: the file that describes the arm, for positions in the units of its workplane (docs/robot.md)."""
    encoder: Annotated[str | None, arg(metavar="ENCODER")] = None
    """For features: what is measured in an image; see docs/pixels.md."""

    def run(self) -> None:
        """Perceives, and says what was found."""
        from closedform.demos.formats import folder as folder_format
        from closedform.files import appearing
        from closedform.vision.perceiver import perceive_demos
        from closedform.vision.saved_perceiver import write_perceiver

        demos = self.settle(self.read(self.demos))
        demos.check_one_task()  # what is written has no tasks
        cameras = self.camera or demos.cameras
        if not demos.cameras:
            raise LoadError(f"{self.demos}: expected demonstrations with images, found none; see --images")
        with appearing(self.output, folder=True) as target, progress_bar() as say:
            perceiver = self._perceiver(demos, cameras, say)
            seen = perceive_demos(perceiver, demos, say)
            folder_format.fill(seen, target)
            (target / folder_format.PERCEIVER).mkdir()
            write_perceiver(perceiver, target / folder_format.PERCEIVER)
        entries = ", ".join(f"{e.body or '-'} {e.kind} {e.size}" for e in perceiver.layout.entries)
        print(f"{len(seen)} episodes, {seen.n_steps} images of {', '.join(perceiver.cameras)}: {self.output}")
        print(f"observations: {entries}")

    def _perceiver(self, demos: Demos, cameras: tuple[str, ...], say: Progress) -> Perceiver:
        from closedform.vision.perceiver import PERCEIVERS, perceiver_class
        from closedform.vision.saved_perceiver import load_perceiver

        if self.kind not in PERCEIVERS:
            saved = next((one for one in (Path(self.kind) / "perceiver", Path(self.kind)) if one.is_dir()), None)
            if saved is None:
                raise ConfigError(
                    f"--with: expected {', '.join(PERCEIVERS)} or a folder with a perceiver, found {self.kind!r}"
                )
            return load_perceiver(saved)
        return perceiver_class(self.kind).fit(demos, cameras, progress=say, **self._settings())

    def _settings(self) -> dict[str, Any]:
        """What `fit` of the chosen kind is given besides; settings of another kind are refused."""
        given = {name: getattr(self, name) for name in ("masks", "cell", "intrinsics", "setup", "encoder")}
        given = {name: value for name, value in given.items() if value is not None}
        taken = {"bodies": {"masks"}, "features": {"encoder"}, "markers": {"cell", "intrinsics", "setup"}}[self.kind]
        for name in given:
            if name not in taken:
                raise ConfigError(f"--{name}: expected with another perceiver, found with {self.kind}")
        if "masks" in given:
            given["masks"] = _read_masks(given["masks"])
        return given


def _read_masks(folder: Path) -> dict[tuple[int, int], np.ndarray]:
    """The masks of a folder, by episode and step."""
    from closedform.demos.formats.image_files import read_mask

    pattern = re.compile(r"episode[_-]?([0-9]{1,15})/[^/]*?([0-9]{1,15})\.png")
    found = {}
    for path in sorted(folder.glob("*/*.png")):
        match = pattern.fullmatch(path.relative_to(folder).as_posix())
        if match:
            found[int(match[1]), int(match[2])] = read_mask(path)
    if not found:
        raise LoadError(f"{folder}: expected masks episode_000000/000012.png, found none")
    return found
