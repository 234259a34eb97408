"""The command `sweep`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from closedform.cli.policy import Choosing, EnvName
from closedform.cli.working import Working
from closedform.demos.options import ChoosingLayouts, OptionalDemosName, Output, print_inferred
from closedform.errors import ConfigError
from closedform.figures import pyplot
from closedform.files import check_writable


@dataclass(frozen=True, kw_only=True)
class Sweep(Choosing, ChoosingLayouts, Working):
    """Compare configurations on the same episodes; those that are clearly worse are stopped early."""

    space: Positional[Annotated[Path, arg(metavar="SPACE")]]
    """A JSON file with lists of values, such as {"tau": [0.03, 0.07], "n_execute": [4, 8]}: all combinations are
    compared. A list of such grids is compared as one sweep."""
    env: EnvName = "pusht"
    """The environment, as for `eval`."""
    demos: OptionalDemosName = None
    """The demonstrations: a path, or the name of a dataset (`closedform data list`)."""
    episodes: int = 50
    """Number of episodes of each configuration that is not eliminated."""
    seed: int = 0
    """Seed of the first episode, counted up for the others. Report the winner on seeds from 100000."""
    by: Literal["score", "success"] = "score"
    """What to compare."""
    alpha: float = 0.05
    """Error rate: the probability, at most, that any configuration is eliminated by one that is not better. 0
    eliminates none."""
    look: int = 10
    """Episodes of each configuration between decisions."""
    output: Output = Path("sweep")
    """Folder for sweep.csv, sweep.md, sweep.json, sweep.png and the results of each configuration; an interrupted
    sweep resumes from it."""

    def run(self) -> None:
        """Runs the sweep, prints the table and writes the folder."""
        from closedform.evaluation.space import describe, read_space
        from closedform.evaluation.study import Study
        from closedform.evaluation.sweep import sweep
        from closedform.evaluation.sweep_report import markdown, write_sweep

        where = self.where
        if not 0 <= self.alpha < 1:
            raise ConfigError(f"alpha: expected 0 or more and less than 1, found {self.alpha}")
        if self.demos is None:
            raise ConfigError("a sweep builds policies from demonstrations: expected --demos, found none")
        pyplot()  # fails now rather than after the work
        check_writable(self.output / "sweep.csv")
        configurations = read_space(self.space)
        fixed = {setting.partition("=")[0] for setting in self.settings}
        both = sorted(fixed & {name for one in configurations for name in one})
        if both:
            raise ConfigError(f"--set: expected parameters that are not in {self.space}, found {both[0]!r}")
        studies = Study.make_each(
            self.env,
            self.demos,
            self.policy,
            configurations,
            self.settings,
            seed=self.seed,
            n_episodes=self.episodes,
            layout=self.layout,
        )
        print_inferred(studies[0].inferred)
        found = sweep(studies, configurations, self.output, by=self.by, alpha=self.alpha, look=self.look, workers=where)
        write_sweep(found, self.output)
        print(markdown(found), end="")
        n = sum(len(result.episodes) for result in found.results)
        print(f"best: {describe(configurations[found.best])}, {n} of {len(studies) * self.episodes} episodes run")
        print(f"sweep: {self.output}")
