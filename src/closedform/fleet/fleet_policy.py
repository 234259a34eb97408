"""FleetPolicy: a policy that plans from a local replica of a fleet's demonstrations and follows what others push."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from closedform.background import in_background
from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.faults import find_faults
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError
from closedform.files import read_json
from closedform.fleet.fleet_row import REMOVED, FleetRow, read_layouts
from closedform.fleet.fleet_table import FleetTable, check_alike, checked_uri, live
from closedform.fleet.replica import Change, Replica, ReplicaOrigin
from closedform.fleet.where import Where
from closedform.geometry.layout import Layout
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import PolicyConfig
from closedform.policies.model_spec import Choices
from closedform.policies.plan import Plan, ReplicaState
from closedform.policies.saving import save_policy
from closedform.rewrites.targets import Targets
from closedform.store.model import Model
from closedform.store.recorded_steps import Progress, RecordedSteps
from closedform.weights.state import State

_log = logging.getLogger("closedform.fleet")
PERIOD = 0.25  # seconds between looks at the fleet's table
AWAY = 2.0  # seconds without an answer after which the store counts as away
_MOST_PARTS = 64  # files of rows before they are merged into the saved policy
_TAIL = 0.25  # share of new windows from which a policy is built again when it is opened, instead of added to


class FleetPolicy(ClosedFormPolicy):
    """A `ClosedFormPolicy` of a fleet's episodes, planned from a local replica, never across the network.

    It opens what the replica has at once, and a thread follows the fleet's table: what others push or remove counts at
    the next plan, within about `period` seconds. While the store is away it goes on with what it has, and
    `Plan.replica` says so. Whatever was pushed and removed before, it plans as a policy made of what it holds; where
    symmetry, targets or horizons are then others than before, `Plan.replica` says that, too. Ids of episodes are the
    numbers of their rows, the same on all machines.

    Args:
        uri: the fleet, as in `FleetTable`.
        cache: the folder of the replica, of this process alone.
        where: which episodes; a `Where` or a dictionary of its attributes. All need the same layouts and rate.
        preset, config, parameters: as of `ClosedFormPolicy`.
        options: of an object store.
        period: seconds between looks at the table; None to look only when `refresh` is called.
        clock: seconds that only rise.
        progress: called with a description and the fraction done, if indexing takes long.
    """

    def __init__(
        self,
        uri: str | Path,
        *,
        cache: str | Path,
        where: Where | Mapping[str, Any] | None = None,
        preset: str = "default",
        config: PolicyConfig | None = None,
        options: Mapping[str, str] | None = None,
        period: float | None = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        progress: Progress | None = None,
        **parameters: Any,
    ):
        self._uri, self._where, self._options, self._clock = checked_uri(uri), Where.of(where), options, clock
        self._make = partial(self.make_config, preset, config, None, parameters)
        self._stopped, self._refreshing = threading.Event(), threading.Lock()
        self._table, self._version = None, -1
        self._rows, self._reached, self._away, self._skipped, self._changed = 0, -float("inf"), "", "", ""
        self._replica = Replica(cache)
        try:
            self._replica.check(self._uri, self._where)
            first = [] if self._replica.has_rows else self._pull_first()
            self._open(progress, first)
        except BaseException:
            self._replica.close()
            raise
        self._thread = threading.Thread(target=self._follow, args=(period,), name="closedform-fleet", daemon=True)
        if period is not None:
            self._thread.start()

    @property
    def replica_state(self) -> ReplicaState:
        """How current the replica is."""
        connected = not self._away and self._clock() - self._reached < AWAY
        return ReplicaState(self._rows, connected, self._away or self._skipped, self._changed)

    @property
    def names(self) -> frozenset[str]:
        """The sha256 of the episodes that it holds."""
        return frozenset(self._live)

    @property
    def table(self) -> FleetTable:
        """The fleet's table; a `LoadError` if the store is away."""
        return self._connected()

    @property
    def options(self) -> Mapping[str, str] | None:
        """The options of the object store."""
        return self._options

    def merged(self) -> tuple[Model, dict[str, Any], int]:
        """The model, the content of config.json of the policy saved from it, and how many rows of the table it knows.

        What it holds is saved first, unless it was saved since its last change.
        """
        with self._refreshing:
            if self._replica.n_parts:
                self._merge()
            content = read_json(self._replica.policy / "config.json", "a saved policy")
            return self.model, content, self._rows

    def refresh(self) -> bool:
        """Looks for changes of the fleet now; returns whether the store was reached."""
        with self._refreshing:
            try:
                table = self._connected()
                version = table.refresh()
                if version != self._version:
                    self._take(table)
                    self._version = version
                self._reached, self._away = self._clock(), ""
            except (
                Exception
            ) as error:  # whatever the engine or the disk raise, plans go on and the next look may succeed
                self._away, self._table = str(error) or repr(error), None
            return not self._away

    def close(self) -> None:
        """Stops following, and lets another process use the replica; plans can still be made."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._replica.close()

    def __enter__(self) -> FleetPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, episode: Episode | tuple[Any, Any]) -> NoReturn:
        """Refused: push it to the fleet."""
        raise ConfigError("a fleet's policy holds what the fleet has: push the episode with FleetTable.push")

    def remove(self, episode_id: int) -> NoReturn:
        """Refused: remove it from the fleet."""
        raise ConfigError("a fleet's policy holds what the fleet has: remove the episode with FleetTable.remove")

    def save(self, folder: Any) -> None:
        """Writes what it holds now, as a `ClosedFormPolicy` that follows nothing."""
        save_policy(self._snapshot(), folder)

    def __reduce__(self) -> Any:
        """Another process gets what it holds now, as a `ClosedFormPolicy` that follows nothing."""
        return _itself, (self._snapshot(),)

    def step(self, window: np.ndarray, state: State, rng: np.random.Generator) -> tuple[Plan, State]:
        """A plan that says how current the replica is."""
        plan, after = super().step(window, state, rng)
        return replace(plan, replica=self.replica_state), after

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """Plans that say how current the replica is."""
        made, replica = super().step_together(windows, states, rngs), self.replica_state
        return [(replace(plan, replica=replica), state) for plan, state in made]

    def _snapshot(self) -> ClosedFormPolicy:
        names = (
            "config",
            "_observation_layout",
            "_action_layout",
            "_deadline",
            "next_episode_id",
            "terms",
            "_backend",
            "_planner",
        )
        snapshot = object.__new__(ClosedFormPolicy)
        snapshot.__setstate__({name: getattr(self, name) for name in names})
        return snapshot

    def _follow(self, period: float) -> None:
        while not self._stopped.wait(period):
            self.refresh()

    def _connected(self) -> FleetTable:
        if self._table is None:
            table, origin = FleetTable.open(self._uri, self._options), self._replica.origin
            if origin is not None and table.identity != origin.identity:
                raise LoadError(f"{self._uri}: expected the fleet of {self._replica.folder}, found another table there")
            self._table = table
        return self._table

    def _pull_first(self) -> list[Change]:
        """The episodes of a fleet that there is no replica of yet."""
        table = self._connected()
        rows = table.rows(self._where)
        there = list(live(rows).values())
        check_alike(there, self._uri, self._where)
        origin = ReplicaOrigin(self._uri, table.identity, self._where.to_json(), there[0].layout, there[0].rate)
        self._replica.begin(origin)
        return self._fetch(table, there)

    def _fetch(self, table: FleetTable, rows: Sequence[FleetRow]) -> list[Change]:
        """Reads the episodes of rows into the replica; those of other layouts or rates are left out."""
        origin = self._replica.origin
        assert origin is not None
        alike = origin.layout, origin.rate
        fitting = [row for row in rows if row.kind != REMOVED and (row.layout, row.rate) == alike]
        if len(fitting) < sum(row.kind != REMOVED for row in rows):
            self._skipped = "expected episodes of the same layouts and rate, found others, which are left out"
        episodes = dict(table.usable_episodes(fitting, self._skip))
        pairs = [(row, episodes.get(row.number)) for row in rows if row.number in episodes or row.kind == REMOVED]
        return self._replica.append(pairs) if pairs else []

    def _open(self, progress: Progress | None, changes: list[Change]) -> None:
        """Opens the saved policy and adds what came later, or builds the policy if there is none of this kind."""
        assert self._replica.origin is not None
        folder, layouts = self._replica.policy, read_layouts(self._replica.origin.layout)
        rate, base = self._replica.origin.rate, ClosedFormPolicy.load(folder) if folder.is_dir() else None
        changes = changes or self._replica.changes(0 if base is None else base.next_episode_id)
        held = {} if base is None else dict(zip(base.episode_ids, base.episodes, strict=True))
        if not held.keys() <= self._replica.names.keys():
            raise LoadError(f"{self._replica.folder}: expected the names of its episodes, found some missing")
        self._live = {self._replica.names[number]: number for number in held}
        added: dict[int, Episode] = {}
        for change in changes:
            if change.episode is None:
                added.pop(self._live.pop(change.name, -1), None)
            elif change.name not in self._live:
                self._live[change.name] = change.number
                added[change.number] = change.episode
        self._leave_out_faults(held, added, layouts)
        there = set(self._live.values())
        kept = {number: episode for number, episode in held.items() if number in there}
        n_added = sum(map(len, added.values()))
        everything = {**kept, **added}
        if not everything:
            raise LoadError(f"{self._replica.folder}: expected episodes, found none; remove the folder")
        config = self._make(Demos(everything.values(), *layouts, rate, finite=False))  # they were checked
        if base is not None and base.config == config and kept and n_added <= _TAIL * base.n_windows:
            self.__setstate__(base.__getstate__())
            for number in held.keys() - kept.keys():
                super().remove(number)
            for number, episode in added.items():
                self._add(number, episode)
            self._renew()
        else:
            demos = Demos(everything.values(), *layouts, rate)
            super().__init__(demos, config=config, progress=progress, episode_ids=list(everything))
        self._rows = max([self._rows, self.next_episode_id, *(change.number + 1 for change in changes)])
        if base is None or base.config != config or n_added > _TAIL * base.n_windows:
            self._merge()

    def _leave_out_faults(
        self, held: Mapping[int, Episode], added: dict[int, Episode], layouts: tuple[Layout, Layout]
    ) -> None:
        """Drops new episodes with a number that cannot be right next to all others."""
        everything = list({**held, **added}.items())
        for index, fault in find_faults([episode for _, episode in everything], layouts).items():
            number = everything[index][0]
            if added.pop(number, None) is not None:
                entry = layouts[fault.what == "actions"].describe(fault.column)
                self._skip(DataError(f"episode {number}: {fault.describe(entry)}"))
                self._live = {name: own for name, own in self._live.items() if own != number}

    def _take(self, table: FleetTable) -> None:
        """Takes over what was committed since."""
        rows = table.rows(self._where, self._rows)
        for number, why in table.quarantined.items():
            self._skipped = f"left out: {why}" if number >= self._rows else self._skipped
        for change in self._fetch(table, rows):
            try:
                if change.episode is None:
                    if change.name in self._live:
                        super().remove(self._live[change.name])
                        del self._live[change.name]
                elif change.name not in self._live:
                    self._add(change.number, change.episode)
                    self._live[change.name] = change.number
            except ClosedFormError as error:  # this row cannot be used; the others can
                self._skip(error)
        self._rows = max([self._rows, table.n_rows(), *(row.number + 1 for row in rows)])
        in_background(self._renew)
        if self._replica.n_parts > _MOST_PARTS:
            self._merge()

    def _renew(self) -> None:
        """Makes the policy anew if it finds something else in what it holds now, as one that is made of that would."""
        origin, model = self._replica.origin, self.model
        assert origin is not None
        demos = Demos(model.store.recorded, *read_layouts(origin.layout), origin.rate, finite=False)
        config, layout, spec = self._make(demos), self.observation_layout, model.spec
        if not isinstance(model.storage, RecordedSteps):
            found = Choices.of(demos, config)
            chosen = config, found.demos.observation_layout, found.rewrites
            if chosen == (self.config, layout, spec.rewrites):
                return
        elif config == self.config:
            return
        fresh = ClosedFormPolicy(demos, config=config, episode_ids=model.store.recorded_ids.tolist())
        fresh.model.prepared()
        said = []
        if fresh.found_symmetry != self.found_symmetry:
            said.append(f"mirror images of the episodes {'count as well' if fresh.found_symmetry else 'do not count'}")
        if (fresh.targets is None) != (spec.rewrites.find(Targets) is None):
            said.append(
                f"actions are planned {'as they are' if fresh.targets is None else 'as the targets they command'}"
            )
        if config != self.config:
            said.append(f"{config.n_action_steps} actions are planned and {config.n_execute} executed")
        vars(self).update(fresh.__getstate__())  # at once, for plans in other threads
        if said:
            self._changed = f"with {len(demos)} episodes, {' and '.join(said)}"
            _log.warning("the model of %s changed: %s", origin.uri, self._changed)

    def _skip(self, error: ClosedFormError) -> None:
        """Notes an episode that cannot be planned from."""
        self._skipped = f"left out: {error}"

    def _add(self, number: int, episode: Episode) -> None:
        self.next_episode_id = number
        super().add(episode)

    def _merge(self) -> None:
        """Saves what it holds, so that opening it is quick; a large policy is then read from there."""
        self.next_episode_id = max(self.next_episode_id, self._rows)
        save_policy(self._snapshot(), self._replica.policy)
        self._replica.forget(self.next_episode_id)
        if isinstance(self.model.storage, RecordedSteps):
            self._use(ClosedFormPolicy.load(self._replica.policy).model)


def _itself(policy: ClosedFormPolicy) -> ClosedFormPolicy:
    return policy
