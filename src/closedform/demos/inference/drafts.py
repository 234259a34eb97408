"""Draft: a layout under construction, with its findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from closedform.demos.inference.inferred import Copy, Finding, InferredCommand, Side, span
from closedform.demos.inference.rotations import ORDERS, Rotation
from closedform.demos.inference.sample import Column
from closedform.geometry.layout import Entry, Layout

USED = 0.5  # confidence from which a part is used


@dataclass(frozen=True)
class Part:
    """An entry at a position in the layout, with its evidence; see `Finding`."""

    start: int
    kind: str
    size: int
    body: str | None
    confidence: float
    evidence: str

    @property
    def columns(self) -> tuple[int, ...]:
        """Which numbers."""
        return tuple(range(self.start, self.start + self.size))


class Draft:
    """The entries found so far, without overlap.

    Args:
        side: whether of observations or of actions.
        width: how many numbers there are.
        column: facts about them.
    """

    def __init__(self, side: Side, width: int, column: Column):
        self.side: Side = side
        self.width, self.column = width, column
        self.parts: dict[int, Part] = {}
        self.owner = np.full(width, -1)
        self.findings: list[Finding] = []
        self.mentioned = np.zeros(width, bool)  # columns mentioned by some finding

    def is_free(self, start: int, size: int) -> bool:
        """Whether these numbers belong to no part yet."""
        return start + size <= self.width and bool((self.owner[start : start + size] < 0).all())

    def add(self, part: Part) -> None:
        """Adds a part, or only its finding if the confidence is low; overlapping parts are dropped."""
        if not self.is_free(part.start, part.size):
            return
        wrong = f"if it is not, write '- other {part.size}' there"
        known = f"if it is, write '{part.body or '-'} {part.kind} {part.size}' there"
        overrule = wrong if part.confidence >= USED else known
        if part.kind == "other":
            overrule = "if it belongs to a body, write its name and kind there"
        self._tell(part.columns, part.kind, part.confidence, part.evidence, overrule, part.body)
        if part.confidence >= USED:
            self.parts[part.start] = part
            self.owner[list(part.columns)] = part.start

    def unknown_order(self, rotation: Rotation, body: str | None, evidence: str) -> None:
        """Notes a rotation that stays `other` because the order of its numbers is unknown."""
        one, other = ORDERS[rotation.family]
        write = f"if you know it, write '{body or '-'} {one}' or '{body or '-'} {other}' there"
        likelier = "" if abs(rotation.score) < 0.2 else f", more likely {rotation.kind}"
        sure = min(rotation.confidence, 0.49)
        evidence = f"{evidence}; order unknown{likelier}"
        self._tell(tuple(rotation.columns), rotation.family, sure, evidence, write, body)
        self.owner[rotation.columns] = rotation.start
        self.parts[rotation.start] = Part(rotation.start, "other", rotation.size, None, sure, evidence)

    def add_command(self, command: InferredCommand) -> None:
        """Adds the action's part of a command: a position, a vector, or numbers without a body."""
        words = f"observation numbers {span(command.observation_columns)}"
        if command.how == "target":
            later = "a step" if round(command.lag) == 1 else f"{command.lag:.0f} steps"
            evidence = f"where {words} are {later} later ({command.r2:.0%} of its variance)"
            kind = "position"
        else:
            verb = "velocity of the state itself: moves" if command.how == "velocity" else "moves"
            delay = f"{command.lag:.1f} steps late ({command.r2:.0%})"
            evidence = f"{verb} {words} by {command.scale:.3g} per unit, {delay}"
            kind = "vector"
        own = tuple(command.action_columns)
        if command.body is None:
            kind = "other"
        if not self.is_free(own[0], len(own)):
            return
        wrong = "if it is not, write '- other {0}' there" if command.body else "joints need no entry: '- other {0}'"
        self._tell(own, command.how, command.confidence, evidence, wrong.format(len(own)), command.body)
        self.parts[own[0]] = Part(own[0], kind, len(own), command.body, command.confidence, evidence)
        self.owner[list(own)] = own[0]

    def give_rest_to_hands(self) -> None:
        """Assigns numbers after those of a hand, such as its gripper, to the hand."""
        body = None
        for column in range(self.width):
            if self.owner[column] >= 0:
                body = self.parts[int(self.owner[column])].body or body
            elif body is not None and self.column.binary[column]:
                self.add(Part(column, "binary", 1, body, 0.9, "takes one of two values"))
            elif body is not None:
                size = 1
                while self.is_free(column, size + 1) and not self.column.binary[column + size]:
                    size += 1
                self.add(Part(column, "other", size, body, 0.6, f"follows the numbers of {body}"))

    def note_copies(self, copies: Iterable[Copy]) -> None:
        """Notes columns that repeat the last step."""
        by_source: dict[str, list[Copy]] = {}
        for copy in copies:
            by_source.setdefault(copy.of, []).append(copy)
        for of, own in by_source.items():
            evidence = f"equals {of} numbers {span(sorted({copy.source for copy in own}))} of the previous step"
            columns = tuple(copy.column for copy in own)
            self._tell(columns, "copy", 0.99, evidence, "write what they are if they should count")
            for column in columns:
                self.owner[column] = column
                self.parts[column] = Part(column, "other", 1, None, 0.99, evidence)

    def note_wide(self, widest: int) -> None:
        """Notes that there are too many numbers to search for relations."""
        evidence = f"more than {widest} numbers: only constants and binary numbers are searched for"
        self._tell(tuple(range(self.width)), "other", 0.0, evidence, "write a layout if there are bodies among them")

    def note_degrees(self, column: int) -> None:
        """Notes an angle that is not in radians."""
        evidence = "jumps by 360: an angle in degrees, which layouts do not support"
        self._tell((column,), "angle", 0.4, evidence, "convert it to radians and write '- angle' there")

    def note_interleaved(self, start: int) -> None:
        """Notes two columns of a rotation matrix written row by row."""
        evidence = "two columns of a rotation matrix written row by row, which layouts do not support"
        columns = tuple(range(start, start + 6))
        self._tell(columns, "rotation6d", 0.4, evidence, "write the columns one after the other, then '- rotation6d'")

    def finish(self) -> None:
        """Adds binary numbers, constants, and unknown numbers."""
        for column in np.flatnonzero(self.column.binary):
            if self.is_free(int(column), 1):
                self.add(Part(int(column), "binary", 1, None, 0.9, "takes one of two values"))
        constant = tuple(int(c) for c in np.flatnonzero(self.column.constant & ~self.mentioned))
        if constant:
            self._tell(constant, "constant", 0.99, "never changes", "nothing to write: it carries no information")
        rest = tuple(int(c) for c in np.flatnonzero(~self.mentioned))
        if rest:
            unusable = [c for c in rest if not self.column.usable[c]]
            evidence = f"not all finite: {span(unusable)}" if unusable else "nothing in the data shows what it is"
            write = "if it is a position, write 'body position 3' there; if an angle, 'body angle'"
            self._tell(rest, "other", 0.0, evidence, write)
        self.findings.sort(key=lambda finding: finding.columns)

    def layout(self) -> Layout:
        """The layout of all numbers in order; adjacent unknown numbers are one entry."""
        entries: list[Entry] = []
        column = 0
        while column < self.width:
            part = self.parts.get(column)
            kind, size, body = (part.kind, part.size, part.body) if part else ("other", 1, None)
            entry = Entry(kind, size, body, inferred=True)  # pyright: ignore[reportArgumentType]
            column += entry.size
            last = entries[-1] if entries else None
            if (
                last is not None
                and entry.kind in ("other", "binary")
                and (last.kind, last.body) == (entry.kind, entry.body)
            ):
                entries[-1] = Entry(entry.kind, last.size + entry.size, entry.body, inferred=True)
            else:
                entries.append(entry)
        return Layout(tuple(entries))

    def _tell(
        self, columns: tuple[int, ...], kind: str, sure: float, evidence: str, overrule: str, body: str | None = None
    ) -> None:
        self.findings.append(Finding(self.side, columns, kind, round(sure, 2), evidence, overrule, body))
        self.mentioned[list(columns)] = True
