"""Answers: what takes longer than a step to find out about a session's policy, kept for pages until it changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from closedform.analysis.familiarity import Familiarity, measure_familiarity
from closedform.evaluation.drawing import Placement
from closedform.evaluation.environment import Environment
from closedform.judge.relevance import n_judging
from closedform.policies.model_spec import show_symmetry
from closedform.studio.collection import Collection
from closedform.studio.questions import compare_policies, familiarity_map, least_familiar_start, worth_watching

Job = Callable[[], Any]
Background = Callable[[Job, Callable[[Any], None]], None]  # the result is None if an edit got in the way

_N_WINDOWS = 400  # that familiarity is measured with


def at_once(job: Job, then: Callable[[Any], None]) -> None:
    """Runs a job now and hands over its result; a server uses a thread instead."""
    then(job())


class Answers:
    """Asks in the background, and keeps the newest answers. All methods are called by the session's thread.

    Args:
        collection: the episodes and the policy.
        placement: where bodies are in the plane; None for an environment that only has a picture.
        spare: makes another environment of the same kind.
        background: runs slow jobs and hands their results to this thread.
        changed: called with what to tell the person after the policy was made anew.

    Attributes:
        version: counts the edits.
        familiarity: of the policy; None if it is not known.
        paired: the last answer of `compare`.
        map: the last familiarity map; None while it is switched off.
        findings: the last answer of `examine`.
    """

    def __init__(
        self,
        collection: Collection,
        placement: Placement | None,
        spare: Callable[[], Environment],
        background: Background,
        changed: Callable[[str], None],
    ):
        self._collection, self._placement = collection, placement
        self._spare, self._background, self._changed = spare, background, changed
        self.version = 0
        self.familiarity: Familiarity | None = None
        self.paired: dict[str, Any] | None = None
        self.map: dict[str, Any] | None = None
        self.findings: dict[str, Any] | None = None
        self._mapping = self._map_asked = self._measuring = self._judging = False
        self._n_judged = n_judging(len(collection.held))

    def edited(self) -> None:
        """Something changed that the next plan is made of."""
        self.version += 1
        if len(self._collection.held) < 2:
            self.familiarity = None
        self._measure()
        self._judge()

    def least_familiar(self, seeds: Sequence[int], then: Callable[[int | None], None]) -> None:
        """Hands over the seed whose start is farthest from all demonstrations."""
        policy, spare = self._collection.policy, self._spare
        if policy is not None:
            self._background(lambda: least_familiar_start(spare(), policy, seeds), then)

    def compare(self, seeds: Sequence[int]) -> bool:
        """Runs the same starts without and with the last episode that was driven; False if there is none."""
        collection, spare = self._collection, self._spare
        policy, held = collection.policy, collection.held
        added = [take for take in held if take.kind != "recorded"]
        if policy is None or not added or len(held) < 2:
            return False
        last, config = added[-1], policy.config
        all_demos, without = collection.demos(), collection.demos(leaving_out=last)

        def run() -> dict[str, Any]:
            before, now = (type(policy)(demos, config=config) for demos in (without, all_demos))
            found = compare_policies(spare(), before, now, seeds)
            return {**found.to_json(), "take": last.number, "first_seed": seeds[0]}

        def keep(found: dict[str, Any] | None) -> None:
            self.paired = found

        self.paired = {"running": True, "n": len(seeds), "take": last.number}
        self._background(run, keep)
        return True

    def examine(self) -> None:
        """Asks the health checks which episodes are worth watching, by take."""
        numbers, version = [take.number for take in self._collection.held], self.version
        if not numbers:
            self.findings = {"takes": {}, "current": True}
            return
        demos = self._collection.demos()

        def keep(found: dict[int, list[str]] | None) -> None:
            self.findings = {"takes": found or {}, "current": found is not None and version == self.version}

        self._background(lambda: worth_watching(demos, numbers), keep)

    def show_map(self, on: bool, observation: np.ndarray) -> None:
        """Switches the familiarity map on or off."""
        self._mapping = on
        self.map = None if not on else self.map
        self.draw_map(observation)

    def draw_map(self, observation: np.ndarray) -> None:
        """Draws the map for an observation (D_o,), if it is switched on and none is being drawn."""
        policy, familiarity, placement = self._collection.policy, self.familiarity, self._placement
        if not self._mapping or self._map_asked or policy is None or familiarity is None or placement is None:
            return
        self._map_asked = True

        def keep(found: dict[str, Any] | None) -> None:
            self._map_asked = False
            self.map = found if self._mapping else None

        self._background(lambda: familiarity_map(policy, placement, observation, familiarity), keep)

    def _measure(self) -> None:
        """Measures familiarity; edits meanwhile lead to another measurement afterwards, not to a queue of them."""
        policy, version = self._collection.policy, self.version
        if self._measuring or policy is None or len(policy.episode_ids) < 2:
            return
        self._measuring = True

        def keep(found: Familiarity | None) -> None:
            self._measuring = False
            if version == self.version:
                self.familiarity = found
            else:
                self._measure()

        self._background(lambda: measure_familiarity(policy, n_windows=_N_WINDOWS), keep)

    def _judge(self) -> None:
        """Looks for symmetry again when the number of episodes has changed by about a quarter.

        A policy looks for it when it is made, not when episodes are added; a session may begin with none.
        """
        policy, version, n = self._collection.policy, self.version, n_judging(len(self._collection.held))
        if self._judging or policy is None or n == self._n_judged:
            return
        self._judging = True
        demos, config, layout = self._collection.demos(), policy.config, policy.observation_layout

        def judge() -> Any:
            differs = show_symmetry(demos, config).observation_layout != layout
            return type(policy)(demos, config=config) if differs else policy

        def keep(found: Any) -> None:
            self._judging = False
            if version != self.version:
                self._judge()
                return
            self._n_judged = n
            if found is not None and found is not policy:
                self._collection.make_anew(found)
                told = "count as well, they predict what you do" if found.found_symmetry else "do not count any more"
                self._changed(f"mirror images of the episodes {told}")

        self._background(judge, keep)
