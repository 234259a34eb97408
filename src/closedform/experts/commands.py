"""The command `generate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from closedform.cli.working import Working
from closedform.demos.options import Output, progress_bar


@dataclass(frozen=True, kw_only=True)
class Generate(Working):
    """Generate demonstrations of a robomimic task with a scripted expert; resumes if interrupted."""

    task: Literal["lift", "can", "square", "transport", "tool_hang"]
    """The robomimic task."""
    output: Output
    """The HDF5 file to write, in robomimic's format."""
    episodes: int = 200
    """Number of successful episodes; failed ones are discarded."""
    seed: int = 0
    """Seed of the first start state, counted up for the others. Evaluations use seeds from 100000."""

    def run(self) -> None:
        """Generates, and prints how often the expert succeeded."""
        from closedform.experts.generation import generate

        with progress_bar() as say:
            tried = generate(
                self.task,
                self.episodes,
                self.output,
                seed=self.seed,
                workers=self.where,
                progress=lambda kept, tried: say(f"{kept} of {tried} attempts succeeded", kept / self.episodes),
            )
        print(f"{self.episodes} successful episodes from {tried} attempts of the scripted expert: {self.output}")
