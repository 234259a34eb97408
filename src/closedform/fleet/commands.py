"""The command `fleet`: demonstrations that many machines share."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from closedform import save_demos, streams
from closedform.demos.options import Reading, progress_bar
from closedform.errors import ConfigError, LoadError

if TYPE_CHECKING:
    from closedform.fleet import FleetRow, FleetTable, Where

PERIOD = 0.25  # seconds between looks at the table
_USED: dict[str, tuple[str, ...]] = {  # options of each action, besides --json
    "init": (),
    "push": ("task", "site", "robot", "outcome", "time"),
    "pull": ("task", "site", "robot", "outcome", "since", "until", "to"),
    "list": ("task", "site", "robot", "outcome", "since", "until"),
    "remove": (),
    "compact": (),
    "index": ("task", "site", "robot", "outcome", "since", "until", "cache", "name"),
    "status": ("task", "site", "robot", "outcome", "since", "until"),
    "watch": ("task", "site", "robot", "outcome", "since", "until"),
}


@dataclass(frozen=True, kw_only=True)
class Fleet(Reading):
    """Demonstrations that many machines share: `init` a table, `push` to it, `pull` from it. See docs/fleet.md.

    `status` counts what is there, `list` prints each episode, `watch` prints what is added until Ctrl-C, `remove`
    removes episodes by the sha256 that `list` shows, `compact` merges the files of many pushes, and `index` lets
    machines that a replica does not fit on search in the store. Options such as --task label what is pushed, and
    choose what is pulled, indexed, counted, listed or watched.
    """

    action: Positional[Literal["init", "push", "pull", "list", "remove", "compact", "index", "status", "watch"]]
    """What to do: init, push, pull, list, remove, compact, index, status or watch."""
    uri: Positional[Annotated[str, arg(metavar="FLEET")]]
    """The fleet: a folder that all machines share, or an object store such as s3://bucket/path."""
    what: Positional[Annotated[tuple[str, ...], arg(metavar="WHAT")]] = ()
    """For push, demonstrations (paths, or names of datasets); for pull, where to write; for remove, episodes."""
    task: Annotated[str | None, arg(metavar="TASK")] = None
    """The task; when pushing, by default as the demonstrations say."""
    site: Annotated[str | None, arg(metavar="SITE")] = None
    """The place."""
    robot: Annotated[str | None, arg(metavar="ROBOT")] = None
    """The robot."""
    outcome: Literal["success", "failure", "unknown"] | None = None
    """How the episode ended."""
    time: Annotated[str | None, arg(metavar="TIME")] = None
    """When what is pushed was recorded, such as 2026-01-31T12:00:00Z; now by default."""
    since: Annotated[str | None, arg(metavar="TIME")] = None
    """The earliest time of the episodes that are chosen."""
    until: Annotated[str | None, arg(metavar="TIME")] = None
    """The latest."""
    to: Literal["folder", "zarr", "robomimic", "lerobot", "npz", "csv"] | None = None
    """The format to pull to; by default it follows from the name."""
    cache: Annotated[str | None, arg(metavar="FOLDER")] = None
    """The folder of the replica that is indexed."""
    name: Annotated[str, arg(metavar="NAME")] = "default"
    """The name of what is indexed; the same name replaces it."""
    json: bool = False
    """Print JSON instead of text."""

    def run(self) -> None:
        """Does what was asked."""
        from closedform.fleet import FleetTable

        usable = {"action", "uri", "what", "json", *_USED[self.action]}
        if self.action == "push":
            usable |= {field.name for field in fields(Reading)}
        for field in fields(self):
            if field.name not in usable and getattr(self, field.name) != field.default:
                option = field.name.replace("_", "-")
                raise ConfigError(f"closedform fleet {self.action}: expected no --{option}, found one")
        if self.action == "init":
            self._expect(0, "nothing")
            table = FleetTable.create(self.uri)
            self._print({"uri": table.uri, "identity": table.identity}, f"an empty fleet: {table.uri}")
            return
        table = FleetTable.open(self.uri)
        getattr(self, f"_{self.action}")(table)
        for number in sorted(table.quarantined):
            streams.complain(f"left out: {table.quarantined[number]}")

    def _push(self, table: FleetTable) -> None:
        self._expect(None, "demonstrations to push")
        labels = {name: getattr(self, name) or "" for name in ("site", "robot")}
        stored, known = [], []
        for source in self.what:
            demos = self.read(source)
            outcome = self.outcome or "unknown"
            pushed = table.push(demos, task=self.task, **labels, outcome=outcome, time=self.time)
            stored += pushed.stored
            known += pushed.known
        text = f"{len(stored)} episodes stored, {len(known)} there already: {table.uri}"
        self._print({"stored": stored, "known": known}, text)

    def _pull(self, table: FleetTable) -> None:
        self._expect(1, "where to write")
        demos = table.demos(self._where())
        save_demos(demos, Path(self.what[0]), self.to)
        text = f"{len(demos)} episodes, {demos.n_steps} steps: {self.what[0]}"
        self._print({"episodes": len(demos), "steps": demos.n_steps, "path": self.what[0]}, text)

    def _list(self, table: FleetTable) -> None:
        from closedform.fleet.fleet_table import live

        self._expect(0, "nothing")
        for row in live(table.rows(self._where())).values():
            self._print(row.to_json(), _line(row))

    def _remove(self, table: FleetTable) -> None:
        self._expect(None, "the sha256 of episodes, or its first characters")
        count = table.remove(self.what)
        self._print({"removed": count}, f"{count} episodes removed: {table.uri}")

    def _compact(self, table: FleetTable) -> None:
        self._expect(0, "nothing")
        table.compact()
        self._print({"rows": table.n_rows()}, f"{table.n_rows()} rows in merged files: {table.uri}")

    def _index(self, table: FleetTable) -> None:
        from closedform.fleet import FleetPolicy, publish

        self._expect(0, "nothing")
        if self.cache is None:
            raise ConfigError("closedform fleet index: expected --cache FOLDER for the replica, found none")
        with progress_bar() as say:
            options: dict[str, Any] = {"where": self._where(), "period": None, "progress": say}
            recorded = {"index": "faiss", "targets": "off", "find_symmetry": False}  # what an index can search for
            with FleetPolicy(table.uri, cache=self.cache, **options, **recorded) as policy:
                policy.refresh()
                recall, n_windows = publish(policy, self.name, progress=say), policy.n_windows
        text = f"{n_windows} windows, recall {recall.weighty:.3f} in {recall.n_probes} of {recall.n_lists} lists"
        self._print({"windows": n_windows, **asdict(recall)}, f"{text}: {self.name} in {table.uri}")

    def _status(self, table: FleetTable) -> None:
        from closedform.fleet.fleet_table import live

        self._expect(0, "nothing")
        version, rows = table.refresh(), list(live(table.rows(self._where())).values())
        counts = {name: Counter(getattr(row, name) for row in rows) for name in ("task", "site", "robot", "outcome")}
        facts: dict[str, Any] = {
            "uri": table.uri,
            "version": version,
            "episodes": len(rows),
            "steps": sum(row.n_steps for row in rows),
            "bytes": sum(row.n_bytes for row in rows),
            "layouts": len({row.layout for row in rows}),
            "quarantined": len(table.quarantined),
            "since": min((row.time for row in rows), default=None),
            "until": max((row.time for row in rows), default=None),
            **{name: dict(count.most_common()) for name, count in counts.items()},
        }
        facts |= {name: facts[name].isoformat() for name in ("since", "until") if facts[name] is not None}
        lines = [
            f"{table.uri}: version {version}, {len(rows)} episodes, {facts['steps']} steps, "
            f"{facts['bytes'] / 1e6:.1f} MB, {facts['layouts']} layouts"
        ]
        for name, count in counts.items():
            shown = ", ".join(f"{label or '(none)'} {number}" for label, number in count.most_common(20))
            lines += [f"{name:8} {shown}"] if any(count) else []
        lines += [f"{'time':8} {facts['since']} to {facts['until']}"] if rows else []
        self._print(facts, "\n".join(lines))

    def _watch(self, table: FleetTable) -> None:
        self._expect(0, "nothing")
        where, away = self._where(), False
        version, start = table.refresh(), table.n_rows()
        self._print({"version": version, "rows": start}, f"version {version}: {start} rows so far; Ctrl-C stops it")
        while True:
            time.sleep(PERIOD)
            try:
                newest = table.refresh()
                rows = table.rows(where, start) if newest > version else []
                away, version = False, newest
            except LoadError as error:
                if not away:
                    streams.complain(str(error))
                away, rows = True, []
            for row in rows:
                self._print(row.to_json(), _line(row))
                start = row.number + 1

    def _where(self) -> Where:
        from closedform.fleet import Where

        names = ("task", "site", "robot", "outcome", "since", "until")
        return Where.of({name: getattr(self, name) for name in names if getattr(self, name) is not None})

    def _expect(self, count: int | None, what: str) -> None:
        """Refuses another number of arguments; None is for at least one."""
        if len(self.what) != count if count is not None else not self.what:
            found = ", ".join(self.what)[:100] or "nothing"
            raise ConfigError(f"closedform fleet {self.action}: expected {what} after the fleet, found {found}")

    def _print(self, facts: dict[str, Any], text: str) -> None:
        print(json.dumps(facts) if self.json else text, flush=True)


def _line(row: FleetRow) -> str:
    labels = [label for label in (row.task, row.site, row.robot) if label]
    what = f"{row.n_steps} steps, {row.outcome}" if row.kind == "episode" else "removed"
    return f"{row.number:8} {row.episode[:12]} {row.time:%Y-%m-%d %H:%M:%S} {what} {' / '.join(labels)}".rstrip()
