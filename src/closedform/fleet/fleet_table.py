"""FleetTable: the episodes of a fleet in one table of LanceDB, on a disk or in an object store that machines share."""

from __future__ import annotations

import json
import os
import random
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.faults import check_new, refuse_faults
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError, MissingExtraError, SaveError
from closedform.files import parse_json
from closedform.fleet.fleet_row import EPISODE, LIGHT, REMOVED, FleetRow, layout_text, removal_row, to_episode, to_row
from closedform.fleet.where import LABELS, Where, as_time, check_label, quoted

NAME = "episodes"
FORMAT = "closedform_fleet"
FORMAT_VERSION = "1"
ATTEMPTS = 8  # to append while others do; each of them lets LanceDB try several times
_AT_ONCE = 64 << 20  # bytes of numbers that are written or read at once
_ASKED = 500  # episodes that are looked up at once
_COMPARED = 20  # of the latest rows, with which pushed episodes are compared
_NUMBERS = ("dtype", "observations", "actions", "recorded_in")


@dataclass(frozen=True)
class Pushed:
    """What a push did.

    Attributes:
        stored: the episodes that it stored.
        known: those that the table had already.
    """

    stored: tuple[str, ...]
    known: tuple[str, ...]


class FleetTable:
    """One table of episodes that many machines append to at once; nothing in it is ever changed.

    An episode is one row, so it is visible whole or not at all, and it is stored once `push` has returned. Removing one
    appends a row that says so. Rows are numbered in the order of their commits, whatever clocks say.

    Use `create` or `open`.

    Attributes:
        uri: its address.
        identity: what tells it from another one at the same address.
        quarantined: why rows that were met are left out, by their numbers: damaged, or such as no push writes.
    """

    def __init__(self, uri: str, table: Any, identity: str):
        self.uri, self.identity = uri, identity
        self.quarantined: dict[int, str] = {}
        self._table = table

    @classmethod
    def create(cls, uri: str | Path, options: Mapping[str, str] | None = None) -> FleetTable:
        """Creates an empty table; refused if there is one.

        Args:
            uri: a folder, or an object store such as s3://bucket/path.
            options: of the object store, such as its endpoint; by default from the environment.
        """
        uri = checked_uri(uri)
        identity = uuid.uuid4().hex
        with writing(uri):
            database = connect(uri, options)
            if NAME in database.list_tables().tables:
                raise ConfigError(f"{uri}: expected no fleet yet, found one")
            metadata = {FORMAT: FORMAT_VERSION, "identity": identity}
            numbered = {**(options or {}), "new_table_enable_stable_row_ids": "true"}
            table = database.create_table(NAME, schema=_schema(metadata), storage_options=numbered)
        return cls(uri, table, identity)

    @classmethod
    def open(cls, uri: str | Path, options: Mapping[str, str] | None = None) -> FleetTable:
        """Opens a table that `create` made."""
        uri = checked_uri(uri)
        advice = f"create one with: closedform fleet init {uri}"
        if "://" not in uri and not (Path(uri) / f"{NAME}.lance").is_dir():  # which connecting would create
            raise LoadError(f"{uri}: expected a fleet, found none; {advice}")
        with reading(uri):
            database = connect(uri, options)
            if NAME not in database.list_tables().tables:
                raise LoadError(f"{uri}: expected a fleet, found none; {advice}")
            table = database.open_table(NAME)
            metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
            names = set(table.schema.names)
        if metadata.get(FORMAT) != FORMAT_VERSION or not {*LIGHT, *_NUMBERS} <= names:
            raise LoadError(
                f"{uri}: expected a fleet of format {FORMAT_VERSION}, found {metadata.get(FORMAT, 'another table')}"
            )
        return cls(uri, table, metadata.get("identity", ""))

    def refresh(self) -> int:
        """Looks for what others have committed; returns the version, which every commit raises."""
        with reading(self.uri):
            self._table.checkout_latest()
            return int(self._table.version)

    def push(
        self,
        demos: Demos,
        *,
        task: str | None = None,
        site: str = "",
        robot: str = "",
        outcome: str = "unknown",
        time: datetime | str | None = None,
    ) -> Pushed:
        """Appends the episodes that the table does not have; once it returns, they are stored.

        Args:
            demos: the episodes.
            task: what they show; by default as the demonstrations say.
            site, robot, outcome: labels of all of them.
            time: when they were recorded; by default now.
        """
        labels = {"task": task or "", "site": site, "robot": robot, "outcome": outcome}
        for name, value in labels.items():
            check_label(name, value)
        when = datetime.now(UTC) if time is None else as_time("time", time)
        if not demos.finite:
            demos = Demos(demos, demos.observation_layout, demos.action_layout, demos.rate, demos.tasks)
        self._refuse_faults(demos)
        recorded_in = json.dumps(demos.recorded_in) if demos.recorded_in else ""
        stored: list[str] = []
        known: list[str] = []
        for some in _batches(range(len(demos)), lambda index: _n_bytes(demos[index])):
            rows = {}
            for index in some:
                if task is None and demos.tasks:
                    labels["task"] = check_label("task", demos.tasks[index])
                layouts = demos.observation_layout, demos.action_layout
                row = to_row(demos[index], *layouts, demos.rate, labels, when, recorded_in)
                rows.setdefault(row["episode"], row)
            new = self._append(rows, set(rows).difference)
            stored += new
            known += [name for name in rows if name not in new]
        return Pushed(tuple(stored), tuple(known))

    def remove(self, episodes: Iterable[str]) -> int:
        """Removes episodes by their sha256, or its first characters; returns how many there were."""
        names = [self._whole_name(name) for name in episodes]
        when = datetime.now(UTC)
        return len(self._append({name: removal_row(name, when) for name in names}, set(names).intersection))

    def rows(self, where: Where | None = None, start: int = 0) -> list[FleetRow]:
        """Rows from a number on, in order: the episodes that are chosen, and all removals.

        Together with what they follow, `live` makes the current episodes of them.
        """
        chosen = (where or Where()).sql()
        condition = f"_rowid >= {int(start)}" + (f" AND (kind = '{REMOVED}' OR ({chosen}))" if chosen else "")
        return self._read(condition)

    def episodes(self, rows: Sequence[FleetRow]) -> Iterator[tuple[FleetRow, Episode]]:
        """The episodes of rows, some at a time; a `DataError` if one is damaged."""
        for row, numbers in self._numbers(rows):
            yield row, to_episode(row, numbers)

    def usable_episodes(
        self, rows: Sequence[FleetRow], skip: Callable[[DataError], object]
    ) -> Iterator[tuple[int, Episode]]:
        """The episodes of rows by their numbers; damaged ones are left out, after a call of `skip`."""
        for row, numbers in self._numbers(rows):
            try:
                yield row.number, to_episode(row, numbers)
            except DataError as error:
                skip(error)

    def episodes_at(self, numbers: Sequence[int]) -> list[Episode]:
        """The episodes of rows, given by their numbers; a `DataError` if one is damaged or gone."""
        with reading(self.uri):
            query = self._table.take_row_ids(list(numbers)).select([*LIGHT, *_NUMBERS]).with_row_id()
            found = {row["_rowid"]: row for row in query.to_arrow().to_pylist()}
        for number in numbers:
            if number not in found:
                raise DataError(f"{self.uri}: expected an episode in row {number}, found it gone from the store")
        return [to_episode(FleetRow.of(found[number]), found[number]) for number in numbers]

    def demos(self, where: Where | None = None) -> Demos:
        """The chosen episodes, which must have the same layouts and rate; damaged ones are quarantined."""
        rows = list(live(self.rows(where)).values())
        check_alike(rows, self.uri, where)
        episodes, recorded_in, problem = {}, {}, ""
        for row, numbers in self._numbers(rows):
            try:
                episodes[row.number] = to_episode(row, numbers)
                recorded_in.setdefault(numbers["recorded_in"], row)
            except DataError as error:
                self.quarantined[row.number] = problem = str(error)
        if not episodes:
            raise DataError(f"{self.uri}: {problem}")
        rows = [row for row in rows if row.number in episodes]
        text = next(iter(recorded_in)) if len(recorded_in) == 1 else ""
        known = parse_json(text, self.uri, "the recording environment") if text else None
        known = known if isinstance(known, dict) else None
        tasks = [row.task for row in rows] if any(row.task for row in rows) else None
        return Demos(episodes.values(), *rows[0].layouts, rows[0].rate, tasks, recorded_in=known)

    def compact(self, keep: timedelta | None = None) -> None:
        """Merges the files of many small pushes, and erases old versions; rows and their numbers stay.

        Args:
            keep: how long a version stays for those who are reading it; a day by default.
        """
        with writing(self.uri):
            self._table.optimize(cleanup_older_than=timedelta(days=1) if keep is None else keep)
            self.refresh()

    def removed_since(self, start: int) -> list[int]:
        """The numbers of earlier rows whose episodes were removed by rows from a number on."""
        names = [row.episode for row in self._read(f"_rowid >= {int(start)} AND kind = '{REMOVED}'")]
        return [row.number for row in self._about(names) if row.kind == EPISODE and row.number < start]

    def n_rows(self) -> int:
        """How many rows there are."""
        with reading(self.uri):
            return int(self._table.count_rows())

    def _refuse_faults(self, demos: Demos) -> None:
        """Refuses demonstrations with a number that cannot be right next to the others and some that are there."""
        refuse_faults(demos)
        if len(demos) > _COMPARED:
            return
        layouts = demos.observation_layout, demos.action_layout
        latest = live(self.rows(start=max(0, self.n_rows() - _COMPARED))).values()
        alike = [row for row in latest if (row.layout, row.rate) == (layout_text(*layouts), demos.rate)]
        others = [episode for _, episode in self.usable_episodes(alike, lambda error: None)]
        for index, episode in enumerate(demos):
            check_new(episode, index, others, layouts)

    def _append(self, rows: Mapping[str, dict[str, Any]], wanted: Callable[[set[str]], set[str]]) -> list[str]:
        """Appends those rows that are wanted given which of their episodes are there; what is there is read again
        before every attempt, so an attempt that failed after its commit is not repeated."""
        import pyarrow as pa

        first: list[str] | None = None
        with writing(self.uri):
            for attempt in range(ATTEMPTS):
                self.refresh()
                names = wanted(set(live(self._about(list(rows)))))
                chosen = [name for name in rows if name in names]
                first = chosen if first is None else first
                if not chosen:
                    return first
                try:
                    self._table.add(pa.Table.from_pylist([rows[name] for name in chosen], schema=self._table.schema))
                    return first
                except (RuntimeError, OSError, ValueError) as error:
                    if not re.search("conflict|concurrent|retry", str(error), re.IGNORECASE) or attempt + 1 == ATTEMPTS:
                        raise
                    time.sleep(random.uniform(0, 0.05 * 2**attempt))
        raise AssertionError  # every path returns or raises

    def _about(self, names: list[str]) -> list[FleetRow]:
        """All rows about some episodes."""
        rows: list[FleetRow] = []
        for start in range(0, len(names), _ASKED):
            some = ", ".join(map(quoted, names[start : start + _ASKED]))
            rows += self._read(f"episode IN ({some})")
        return rows

    def _whole_name(self, name: str) -> str:
        """The sha256 of an episode that starts with some characters."""
        if not isinstance(name, str) or not re.fullmatch("[0-9a-f]{4,64}", name):
            raise ConfigError(f"expected the sha256 of an episode or its first characters, found {str(name)[:100]!r}")
        found = live(self._read(f"episode LIKE '{name}%'"))
        if len(found) != 1:
            many = "no such episode" if not found else f"{len(found)} episodes that start so"
            raise DataError(f"{self.uri}: expected one episode {name}, found {many}")
        return next(iter(found))

    def _read(self, condition: str) -> list[FleetRow]:
        with reading(self.uri):
            query = self._table.search().where(condition).select(list(LIGHT)).with_row_id(True)
            found = query.limit(2**31 - 1).to_arrow().to_pylist()
        rows = []
        for row in sorted(found, key=lambda row: row["_rowid"]):
            try:
                rows.append(FleetRow.of(row))
            except DataError as error:  # the rest goes on
                self.quarantined[int(row["_rowid"])] = str(error)
        return rows

    def _numbers(self, rows: Sequence[FleetRow]) -> Iterator[tuple[FleetRow, dict[str, Any]]]:
        for some in _batches(rows, lambda row: row.n_bytes):
            numbers = ", ".join(str(row.number) for row in some)
            with reading(self.uri):
                query = self._table.search().where(f"_rowid IN ({numbers})").select(list(_NUMBERS)).with_row_id(True)
                found = {row["_rowid"]: row for row in query.limit(len(some)).to_arrow().to_pylist()}
            for row in some:
                if row.number not in found:
                    raise DataError(f"{self.uri}: expected episode {row.episode[:12]}, found it gone from the store")
                yield row, found[row.number]


def live(rows: Iterable[FleetRow], before: Mapping[str, FleetRow] | None = None) -> dict[str, FleetRow]:
    """The episodes that are there after some rows, by their sha256: the first row of each that was not removed."""
    found = dict(before or {})
    for row in rows:
        if row.kind == REMOVED:
            found.pop(row.episode, None)
        elif row.kind == EPISODE:
            found.setdefault(row.episode, row)
    return found


def check_alike(rows: Sequence[FleetRow], uri: str, where: Where | None) -> None:
    """Refuses no episodes, and episodes that differ in layouts or rate."""
    chosen = str(where or Where())
    if not rows:
        raise DataError(f"{uri}: expected episodes ({chosen}), found none; push some, or choose others")
    kinds = {(row.layout, row.rate) for row in rows}
    if len(kinds) > 1:
        raise DataError(
            f"{uri}: expected episodes ({chosen}) of the same layouts and rate, found {len(kinds)} kinds; choose a "
            "task, site or robot"
        )


def checked_uri(uri: str | Path) -> str:
    """The address of a fleet: a folder's absolute path, or a URL."""
    text = str(uri) if isinstance(uri, str | Path) else ""
    if not text or not text.isprintable():
        raise ConfigError(f"expected a folder or an address such as s3://bucket/path, found {str(uri)[:100]!r}")
    scheme, separator, rest = text.partition("://")
    if scheme == "file" and separator:
        text, separator = rest, ""
    if not separator:
        try:
            return str(Path(text).expanduser().resolve())
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"expected a folder, found {text[:100]!r}: {error}") from error
    if scheme not in ("s3", "gs", "az", "db"):
        raise ConfigError(f"expected a folder, s3://, gs://, az:// or db://, found {scheme[:20]}://")
    return text


@contextmanager
def reading(uri: str) -> Iterator[None]:
    """Turns errors of the store while reading into a `LoadError`."""
    try:
        yield
    except ClosedFormError:
        raise
    except (RuntimeError, OSError, ValueError, KeyError) as error:
        raise LoadError(f"{uri}: expected a fleet that can be read, found {_reason(error)}") from error


@contextmanager
def writing(uri: str) -> Iterator[None]:
    """Turns errors of the store while writing into a `SaveError`."""
    try:
        yield
    except ClosedFormError:
        raise
    except (RuntimeError, OSError, ValueError) as error:
        raise SaveError(
            f"{uri}: expected a fleet that can be written to, found {_reason(error)}; push again: what was stored "
            "already is not stored twice"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of what the engine says, without places in its source."""
    text = (str(error) or type(error).__name__).splitlines()[0]
    return re.sub(r",? ?/\S+\.rs:\d+:\d+", "", text)[:300]


def connect(uri: str, options: Mapping[str, str] | None) -> Any:
    """LanceDB's connection to a fleet."""
    try:
        os.environ.setdefault("LANCE_LOG", "error")
        import lancedb
    except ImportError as error:
        raise MissingExtraError("lancedb", "fleet", "a fleet's table") from error
    return lancedb.connect(uri, storage_options=dict(options) if options else None)


def _schema(metadata: dict[str, str]) -> Any:
    import pyarrow as pa

    text = ("episode", "kind", *LABELS, "layout", "dtype", "recorded_in")
    kinds = {**dict.fromkeys(text, pa.string()), **dict.fromkeys(("time", "n_steps", "n_bytes"), pa.int64())}
    kinds |= {"rate": pa.float64(), "observations": pa.large_binary(), "actions": pa.large_binary()}
    return pa.schema([(name, kinds[name]) for name in (*LIGHT, *_NUMBERS)], metadata=metadata)


def _n_bytes(episode: Episode) -> int:
    return episode.observations.nbytes + episode.actions.nbytes


def _batches(items: Iterable[Any], size: Callable[[Any], int]) -> Iterator[list[Any]]:
    """Items in order, some at a time."""
    batch, total = [], 0
    for item in items:
        if batch and (total + size(item) > _AT_ONCE or len(batch) >= _ASKED):
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += size(item)
    if batch:
        yield batch
