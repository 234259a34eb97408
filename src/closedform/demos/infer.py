"""Infer: layouts of demonstrations from their numbers alone.

A wrong guess costs more than none, so anything not supported by the data stays `other`, and a finding says what to
write for it.
"""

from __future__ import annotations

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.inference.angles import TURN, is_swung, swings, wraps
from closedform.demos.inference.commands import ALONE, EXACT, Match, find_commands
from closedform.demos.inference.company import rest_together
from closedform.demos.inference.copies import find_copies
from closedform.demos.inference.drafts import Draft, Part
from closedform.demos.inference.inferred import Copy, Finding, InferredCommand, InferredLayouts, describe
from closedform.demos.inference.names import body_of, named_positions
from closedform.demos.inference.positions import (
    Group,
    find_positions,
    hand_groups,
    is_relative_to_body,
    long_hand_groups,
    sort_differences,
)
from closedform.demos.inference.relations import SURE, find_differences, find_observer, find_relative
from closedform.demos.inference.rotations import Rotation, find_rotations, is_interleaved_6d, is_unit_everywhere
from closedform.demos.inference.sample import WIDEST, Sample
from closedform.demos.inference.turning import commanded_rotation, commanded_turns
from closedform.geometry.layout import register_inference

__all__ = ["Copy", "Finding", "InferredCommand", "InferredLayouts", "describe", "infer_layouts"]
ORDERED = 0.8  # confidence in an order of numbers below which a rotation stays `other`


@register_inference
def infer_layouts(demos: Demos) -> InferredLayouts:
    """Infers what the numbers of observations and actions are, ignoring any declared layouts."""
    return _Inference(demos).result()


class _Inference:
    """The search, in steps; each uses the findings of the previous ones.

    Args:
        demos: the data.
    """

    def __init__(self, demos: Demos):
        self.demos = demos
        self.sample = sample = Sample.of(demos)
        self.observation = Draft("observation", sample.x.shape[1], sample.observed)
        self.action = Draft("action", sample.a.shape[1], sample.commanded)
        self.copies: tuple[Copy, ...] = ()
        self.commands: list[InferredCommand] = []
        self.names: dict[int, str] = {}  # of bodies, by the first column of their position
        self.columns = demos.column_names[0] or ()
        if max(sample.x.shape[1], sample.a.shape[1]) > WIDEST:
            self.observation.note_wide(WIDEST)
            return
        self.copies = find_copies(sample)
        self.observation.note_copies(self.copies)
        free = sample.observed.usable & ~np.isin(np.arange(sample.x.shape[1]), [copy.column for copy in self.copies])
        self._search(free)

    def _search(self, free: np.ndarray) -> None:
        sample = self.sample
        steps = sample.steps(1)
        rotations = find_rotations(sample.x, sample.observed, steps, sample.starts, free)
        inside = find_rotations(sample.a, sample.commanded, steps, None, sample.commanded.usable)
        rotations = [r for r in rotations if is_unit_everywhere((e.observations for e in self.demos), r)]
        inside = [r for r in inside if is_unit_everywhere((e.actions for e in self.demos), r)]
        find_relative(sample, rotations)
        for rotation in rotations:
            free[rotation.columns] = False
        self.jumps = wraps(sample.x, steps)
        turning = [int(c) for c in np.flatnonzero((self.jumps > 0) & free)]
        straight = free & sample.observed.varies & (self.jumps == 0)
        matches = find_commands(sample, straight, sample.commanded.varies & (wraps(sample.a, steps) == 0))
        hands = hand_groups(matches, sample)
        differences = find_differences(sample, free)
        for difference in differences:
            seen = find_observer(sample, difference, rotations) if difference.turned else None
            if seen is not None:
                seen[0].support(SURE if seen[1] == 0 else -SURE, "a difference in its frame fits exactly")
        related, vectors, seen_vectors = sort_differences(sample, differences, hands, rotations)
        for start in vectors:
            self.observation.add(Part(start, "vector", 3, None, 0.95, "the difference of two observed positions"))
        for start in seen_vectors - vectors:
            self.observation.add(
                Part(start, "other", 3, None, 0.95, "the difference of two positions in a body's frame")
            )
        for columns in [*(hand.columns for hand in hands), *(range(v, v + 3) for v in vectors | seen_vectors), turning]:
            free[list(columns)] = False
        if not hands:
            hands = self._confirmed(long_hand_groups(matches), rotations, turning, free)
            matches += [hand.hand for hand in hands if hand.hand]
        bodies = find_positions(sample, hands, rotations, turning, related - {h.start for h in hands}, free)
        for hand in [hand for hand in hands if is_relative_to_body(sample, hand, bodies)]:
            evidence = "moves as commanded, except while a body does: the hand's position relative to that body"
            self.observation.add(Part(hand.start, "vector", hand.size, None, 0.7, evidence))
            hands.remove(hand)
        self._attach_rotations(hands + bodies, rotations, turning)
        self._commanded_rotations(hands, rotations, inside)
        self._pool_orders(rotations + inside)
        self._name(hands, bodies)
        for group in hands + bodies:
            self._add_group(group)
        self._add_rotations(rotations, hands + bodies)
        self._add_angles(turning, hands + bodies, steps)
        self._add_named()
        self._add_commands([hand.hand for hand in hands if hand.hand], hands)
        self._add_action_rotations(inside, steps)
        used = {column for command in self.commands for column in command.action_columns}
        rest = [match for match in matches if used.isdisjoint(match.action_columns)]
        self._add_commands([match for match in rest if match.size > 3 or match.r2 > ALONE], hands)
        self.action.give_rest_to_hands()

    def _confirmed(
        self, hands: list[Group], rotations: list[Rotation], turning: list[int], free: np.ndarray
    ) -> list[Group]:
        """Of candidates that may be hands or joints, those that move another body or go to one."""
        found = []
        for hand in hands:
            others = free & ~np.isin(np.arange(len(free)), hand.columns)
            bodies = find_positions(self.sample, [hand], rotations, turning, set(), others)
            span = f"{hand.start}..{hand.start + 2}"
            if any(span in reason for body in bodies if body.confidence > 0.85 for _, reason in body.reasons):
                hand.reasons.append((0.6, "other numbers move with these, or these go to them, one for one"))
                free[hand.columns] = False
                found.append(hand)
        return found

    def _attach_rotations(self, groups: list[Group], rotations: list[Rotation], turning: list[int]) -> None:
        """The rotation right after a position is that of the same body; a planar body has an angle."""
        for group in groups:
            stop = group.start + group.size
            if group.size == 3:
                group.rotation = next((r for r in rotations if r.start == stop and not r.relative), None)
                if group.rotation is not None:
                    group.rotation.loose = False
            elif stop in turning and rest_together(self.sample, group.columns, [stop]) > 0.5:
                group.angle = stop

    def _commanded_rotations(self, hands: list[Group], rotations: list[Rotation], inside: list[Rotation]) -> None:
        """Rotations in actions that the hand's rotation follows: targets or turns.

        A rotation before a hand's position belongs to the hand only if it follows one.
        """
        self.rotation_commands: list[tuple[Group, int, Rotation | None, float]] = []
        for hand in hands:
            before = next((r for r in rotations if r.start + r.size == hand.start and not r.relative), None)
            rotation = hand.rotation or before
            if rotation is None or hand.hand is None or hand.size != 3:
                continue
            found: tuple[int, Rotation | None, float] | None
            if hand.hand.how == "target":
                found = commanded_rotation(self.sample, hand.hand, rotation, inside)
            else:
                share = commanded_turns(self.sample, hand.hand, rotation)
                found = (hand.hand.action + hand.hand.size, None, share) if share > 0.5 else None
            if found is not None:
                hand.rotation = rotation
                start, asked_for, sure = found
                self.rotation_commands.append((hand, start, asked_for, sure))

    def _pool_orders(self, rotations: list[Rotation]) -> None:
        """A dataset writes all of its quaternions in one order, so the evidence for one counts for all."""
        for family in ("quaternion", "rotation6d"):
            own = [rotation for rotation in rotations if rotation.family == family]
            total = float(sum(rotation.score for rotation in own))
            reasons = [reason for rotation in own if rotation.score * total > 0 for reason in rotation.reasons]
            for rotation in own:
                if rotation.score * total <= 0 or not rotation.reasons:
                    rotation.reasons = [f"like another one: {reasons[0]}"] if reasons else []
                rotation.score = total

    def _name(self, hands: list[Group], bodies: list[Group]) -> None:
        for index, hand in enumerate(sorted(hands, key=lambda group: group.hand.action if group.hand else 0)):
            self.names[hand.start] = "hand" if index == 0 else f"hand{index + 1}"
        for index, body in enumerate(bodies):
            self.names[body.start] = f"body{index + 1}"
        for group in hands + bodies:
            named = body_of([self.columns[c] for c in group.columns]) if self.columns else None
            if named is not None and named not in self.names.values():
                self.names[group.start] = named

    def _add_named(self) -> None:
        """Positions that the numbers alone do not show, but the names of their columns."""
        for start, size in named_positions(self.columns):
            named = self.columns[start : start + size]
            body, own = body_of(named), range(start, start + size)
            taken = {part.body for part in self.observation.parts.values()}
            if self.observation.is_free(start, size) and body not in taken and self.sample.observed.usable[own].all():
                self.observation.add(Part(start, "position", size, body, 0.8, f"named {', '.join(named)}"))

    def _add_group(self, group: Group) -> None:
        evidence = "; ".join(reason for _, reason in group.reasons)
        name = self.names[group.start]
        self.observation.add(Part(group.start, "position", group.size, name, group.confidence, evidence))
        if group.angle is not None:
            jumps = int(self.jumps[group.angle])
            evidence = f"{jumps} jumps by a whole turn, and it moves when {name} does"
            self.observation.add(Part(group.angle, "angle", 1, name, min(0.8 + 0.05 * jumps, 0.99), evidence))

    def _add_rotations(self, rotations: list[Rotation], groups: list[Group]) -> None:
        for rotation in rotations:
            body = next((self.names[g.start] for g in groups if g.rotation is rotation), None)
            words = "; ".join(dict.fromkeys(rotation.reasons)) or "nothing shows the order of its numbers"
            shape = {"quaternion": "unit length", "rotation6d": "two unit vectors at right angles"}
            evidence = f"{shape.get(rotation.family, 'lengths up to half a turn')}; {words}"
            if rotation.relative:
                evidence = "a rotation relative to another body, which follows from two others"
                self.observation.add(Part(rotation.start, "other", rotation.size, None, 0.95, evidence))
            elif rotation.confidence < ORDERED:
                self.observation.unknown_order(rotation, body, evidence)
            else:
                kind, size = rotation.kind, rotation.size
                self.observation.add(Part(rotation.start, kind, size, body, rotation.confidence, evidence))
        for start in range(self.sample.x.shape[1] - 5):
            if self.observation.is_free(start, 6) and is_interleaved_6d(self.sample.x, self.sample.observed, start):
                self.observation.note_interleaved(start)

    def _add_angles(self, turning: list[int], groups: list[Group], steps: np.ndarray) -> None:
        """Angles without a body, then numbers after a planar position that turn its body without ever wrapping."""
        jumps = self.jumps
        for column in turning:
            if self.observation.is_free(column, 1):
                evidence = f"{jumps[column]} jumps by a whole turn"
                sure = 0.9 if jumps[column] > 1 else 0.7
                self.observation.add(Part(column, "angle", 1, None, sure, evidence))
        for column in np.flatnonzero(wraps(self.sample.x, steps, 360.0) > 0):
            self.observation.note_degrees(int(column))
        for group in groups:
            column = group.start + group.size
            if group.angle is None and group.rotation is None and group.size == 2 and group.hand is None:
                self._add_unwrapped(group, column)

    def _add_unwrapped(self, group: Group, column: int) -> None:
        sample = self.sample
        if not (column < sample.x.shape[1] and self.observation.is_free(column, 1) and sample.observed.varies[column]):
            return
        if sample.observed.still[column] or rest_together(sample, group.columns, [column]) < 0.6:
            return
        name = self.names[group.start]
        shares = swings(sample, group.columns, column)
        starts = sample.x[sample.starts, column]
        spread = float(sample.observed.high[column] - sample.observed.low[column])
        whole = len(starts) >= 20 and 0.85 * TURN < np.ptp(starts) < 1.01 * TURN and spread > 1.01 * TURN
        evidence = f"it moves when {name} does"
        if is_swung(shares):
            evidence += f", and rotation by that many radians explains {shares[0]:.0%} of the motion of {name}"
            sure = 0.9
        elif whole and shares[1] <= shares[0]:
            evidence += ", starts anywhere within one turn, and goes beyond"
            sure = 0.7
        else:
            sure = 0.4
        self.observation.add(Part(column, "angle", 1, name, sure, evidence))

    def _add_commands(self, matches: list[Match], hands: list[Group]) -> None:
        moving = sum(
            1
            for column in np.flatnonzero(self.sample.observed.varies & ~self.sample.observed.still)
            if column not in {copy.column for copy in self.copies}
        )
        for match in matches:
            hand = next((h for h in hands if h.hand is match), None)
            body = self.names[hand.start] if hand else None
            how = match.how
            if how == "displacement" and match.r2 > EXACT and match.lag < 0.5 and match.size == moving:
                how = "velocity"
            sure = float(np.clip(0.5 + 0.5 * (match.r2 - 0.4) / 0.5, 0.3, 0.99))
            if hand is None and match.size == 1:
                sure = min(sure, 0.6)
            if sure < 0.5:
                continue
            columns = match.action_columns, match.observation_columns
            self.commands.append(InferredCommand(how, *columns, body, match.scale, match.lag, match.r2, sure))  # pyright: ignore[reportArgumentType]
            self.action.add_command(self.commands[-1])

    def _add_action_rotations(self, inside: list[Rotation], steps: np.ndarray) -> None:
        for hand, start, rotation, sure in self.rotation_commands:
            name = self.names[hand.start]
            if rotation is None:
                evidence = f"turns {name}, explaining {sure:.0%} of its rotation"
                self.action.add(Part(start, "other", 3, name, sure, evidence))
            elif rotation.confidence >= ORDERED:
                evidence = f"the observed rotation of {name} follows it"
                sure = min(sure, rotation.confidence)
                self.action.add(Part(start, rotation.kind, rotation.size, name, sure, evidence))
        for rotation in inside:
            if self.action.is_free(rotation.start, rotation.size):
                evidence = "; ".join(dict.fromkeys(rotation.reasons)) or "nothing shows the order of its numbers"
                if rotation.confidence < ORDERED:
                    self.action.unknown_order(rotation, None, evidence)
                else:
                    body = self._hand_before(rotation.start)
                    kind, size = rotation.kind, rotation.size
                    self.action.add(Part(rotation.start, kind, size, body, rotation.confidence, evidence))
        jumps = wraps(self.sample.a, steps)
        for column in np.flatnonzero(jumps > 0):
            if self.action.is_free(int(column), 1):
                body = self._hand_before(int(column))
                self.action.add(Part(int(column), "angle", 1, body, 0.9, f"{jumps[column]} jumps by a whole turn"))

    def _hand_before(self, column: int) -> str | None:
        """The hand whose target ends before a column of the action; a rotation there belongs to it too."""
        ends = {command.action_columns[-1] + 1: command.body for command in self.commands if command.how == "target"}
        return ends.get(column)

    def result(self) -> InferredLayouts:
        """The layouts, with everything unknown as `other`."""
        for draft in (self.observation, self.action):
            draft.finish()
        return InferredLayouts(
            observation_layout=self.observation.layout(),
            action_layout=self.action.layout(),
            findings=(*self.observation.findings, *self.action.findings),
            constants=tuple(int(c) for c in np.flatnonzero(self.sample.observed.constant)),
            action_constants=tuple(int(c) for c in np.flatnonzero(self.sample.commanded.constant)),
            copies=self.copies,
            commands=tuple(self.commands),
        )
