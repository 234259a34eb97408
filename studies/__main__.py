"""`python -m studies NAME`: produces one folder of docs/results."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, arg

from closedform.cli import run
from closedform.cli.working import Working
from closedform.device import check_device
from closedform.errors import ConfigError
from closedform.evaluation.ray_pool import Ray
from closedform.figures import pyplot
from studies.runner import Runner

IN_PARTS = (
    "guidance",
    "augmentation",
    "robomimic",
    "wide",
    "robot",
    "pixels",
)  # studies whose evaluations can be run one by one

Study = Literal[
    "pusht",
    "tuning",
    "guidance",
    "augmentation",
    "robomimic",
    "deadline",
    "realtime",
    "monitor",
    "wide",
    "robot",
    "pixels",
    "studio",
    "symmetry",
    "invariance",
]


@dataclass(frozen=True)
class Make(Working):
    """Reproduce the paper's tables and figures and our own studies; an interrupted study is resumed."""

    study: Positional[Study]
    """The study."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("docs/results")
    """Folder for tables and figures, with a subfolder for each study."""
    work: Path = Path("outputs/paper")
    """Folder for the results of single evaluations; existing ones are not run again."""
    device: str = "auto"
    """Device of networks: cpu, cuda, or auto (cuda if available)."""
    only: tuple[str, ...] = ()
    """For guidance, augmentation, robomimic, robot, pixels and wide: names of the evaluations to run, to distribute a
    study over processes or machines; run it without this option to write tables and figures. For wide they may be
    patterns such as metaworld_*_25_default."""
    demos: Path | None = None
    """For wide and robot: folder of recorded demonstrations, by default in the work folder; missing ones are
    recorded."""
    development: bool = False
    """For wide and robot: run only the development tasks and start states, and print the results."""
    partial: bool = False
    """For robot: run nothing, and write the study with the episodes that the work folder has."""

    def run(self) -> None:
        """Runs the missing evaluations and writes the study."""
        check_device(self.device)
        where = self.where
        if self.ray is not None and self.study == "wide":
            raise ConfigError("ray: expected a study whose evaluations run one after the other, found wide")
        if self.only and self.study not in IN_PARTS:
            raise ConfigError(f"only: expected the study {', '.join(IN_PARTS)}, found {self.study}")
        if (self.demos or self.development) and self.study not in ("wide", "robot"):
            raise ConfigError(f"demos and development: expected the study wide or robot, found {self.study}")
        if self.partial and self.study != "robot":
            raise ConfigError(f"partial: expected the study robot, found {self.study}")
        if not self.only:
            pyplot()  # fails now rather than after a day
        module = import_module(f"studies.{self.study}")
        runner = Runner(
            *(self.study, self.output / self.study, self.work / self.study, self.workers, self.device, self.only),
            demos=self.demos,
            development=self.development,
            partial=self.partial,
            ray=where if isinstance(where, Ray) else None,
        )
        module.run(runner)
        in_parts = self.only or self.development
        print(f"study: {runner.work if in_parts else runner.output / 'README.md'}")


if __name__ == "__main__":
    run(lambda: tyro.cli(Make, prog="python -m studies"))
