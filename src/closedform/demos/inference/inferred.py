"""InferredLayouts: the layouts inferred from demonstrations, with the evidence for each part of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from closedform.demos.demos import Demos
from closedform.geometry.layout import Layout

Side = Literal["observation", "action"]
How = Literal["target", "displacement", "velocity"]


@dataclass(frozen=True)
class Finding:
    """Something that was found in the numbers, or could not be determined from them.

    Attributes:
        side: whose columns are meant, an observation's or an action's.
        columns: which numbers, counted from 0.
        kind: a kind of layout entries, or `constant`, `copy`, `target`, `displacement`, `velocity`.
        confidence: 0 to 1; below 0.5 it was not used.
        evidence: what was seen, one line.
        overrule: what to write if it is wrong or if more is known, one line.
        body: the body it belongs to, if any.
    """

    side: Side
    columns: tuple[int, ...]
    kind: str
    confidence: float
    evidence: str
    overrule: str
    body: str | None = None


@dataclass(frozen=True)
class Copy:
    """A number of the observation that only repeats a number of the previous step.

    Attributes:
        column: of the observation, at step t.
        source: the column that it equals at step t - 1, up to a constant offset.
        of: whether that is a column of the observation or of the action.
    """

    column: int
    source: int
    of: Side = "observation"


@dataclass(frozen=True)
class InferredCommand:
    """Numbers of an action that command numbers of the observation, one for one.

    Attributes:
        how: `target`: the action is their desired value; `displacement`: their desired change in a step; `velocity`: a
            displacement that is executed exactly and is all that ever changes.
        action_columns, observation_columns: which numbers, of equal count.
        body: the commanded body; None for numbers that are not a body's position, such as joints.
        scale: for displacements, how much an observed number changes per unit of the action; 1 for targets.
        lag: steps by which the observed numbers follow. A body under constant displacements a is `scale * lag * a`
            behind their sum.
        r2: the fraction of the motion that this explains.
        confidence: 0 to 1.
    """

    how: How
    action_columns: tuple[int, ...]
    observation_columns: tuple[int, ...]
    body: str | None
    scale: float
    lag: float
    r2: float
    confidence: float


@dataclass(frozen=True)
class InferredLayouts:
    """The result of an inference.

    Attributes:
        observation_layout, action_layout: what the numbers are; `other` if the evidence is weak.
        findings: one for everything that was found, or could not be determined.
        constants: columns of the observation that never change in all of the data.
        action_constants: the same for the action.
        copies: columns of the observation that repeat the previous step.
        commands: which observed numbers the actions command, and how.
    """

    observation_layout: Layout
    action_layout: Layout
    findings: tuple[Finding, ...] = ()
    constants: tuple[int, ...] = ()
    action_constants: tuple[int, ...] = ()
    copies: tuple[Copy, ...] = ()
    commands: tuple[InferredCommand, ...] = ()

    @property
    def targets(self) -> tuple[InferredCommand, ...]:
        """Commands whose actions are the desired values of the commanded numbers."""
        return tuple(command for command in self.commands if command.how == "target")

    @property
    def displacements(self) -> tuple[InferredCommand, ...]:
        """Commands whose actions are the desired changes of the commanded numbers, including velocities."""
        return tuple(command for command in self.commands if command.how != "target")

    @property
    def velocities(self) -> tuple[InferredCommand, ...]:
        """Commands whose actions are the velocity of the state itself."""
        return tuple(command for command in self.commands if command.how == "velocity")

    def relabel(self, demos: Demos) -> Demos:
        """The same demonstrations with the inferred layouts."""
        return Demos(
            demos.episodes,
            self.observation_layout,
            self.action_layout,
            demos.rate,
            demos.tasks,
            demos.skipped,
            demos.recorded_in,
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and dictionaries."""
        return {
            "observation_layout": self.observation_layout.to_json(),
            "action_layout": self.action_layout.to_json(),
            "findings": [asdict(finding) for finding in self.findings],
            "constants": list(self.constants),
            "action_constants": list(self.action_constants),
            "copies": [asdict(copy) for copy in self.copies],
            "commands": [asdict(command) for command in self.commands],
        }


def span(columns: Sequence[int]) -> str:
    """Columns as text: `4`, `4..6`, or `4, 7, 9..11`."""
    runs: list[list[int]] = []
    for column in columns:
        if runs and column == runs[-1][1] + 1:
            runs[-1][1] = column
        else:
            runs.append([column, column])
    return ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in runs)


def describe(inferred: InferredLayouts) -> list[str]:
    """Printable lines: both layouts as `Layout.parse` reads them, then each finding with how to override it."""
    lines = [
        f"inferred observation layout: {inferred.observation_layout}",
        f"inferred action layout: {inferred.action_layout}",
    ]
    for finding in inferred.findings:
        noun = "number" if len(finding.columns) == 1 else "numbers"
        body = f"{finding.body} " if finding.body else ""
        what = f"{body}{finding.kind} ({finding.confidence:.0%})"
        if finding.confidence < 0.5:  # the numbers themselves always count
            what = "plain" if finding.kind == "other" else f"plain, though perhaps {what}"
        lines.append(f"  {finding.side} {noun} {span(finding.columns)}: {what}: {finding.evidence}; {finding.overrule}")
    return lines
