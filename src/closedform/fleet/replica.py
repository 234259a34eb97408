"""Replica: the episodes of a fleet that a robot plans from, in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from closedform.demos.episode import Episode
from closedform.demos.parts import RecordError, lock_folder
from closedform.errors import ClosedFormError, LoadError
from closedform.files import crc32, flush, map_safetensors, read_json, replacing, saving, write_file
from closedform.fleet.fleet_row import FleetRow, read_layouts
from closedform.fleet.where import Where

FORMAT, FORMAT_VERSION = "closedform-replica", 1
_PART = re.compile(r"rows_(\d{12})\.safetensors")
_ARRAYS = ("observations", "actions", "lengths", "numbers", "names", "kinds")
_NAME = np.dtype([("number", "<i8"), ("name", "u1", 32)])  # a record of the file `names`


@dataclass(frozen=True)
class Change:
    """A row that changes which episodes there are.

    Attributes:
        number: of the row in the fleet's table.
        name: the sha256 of the episode.
        episode: the episode that is added; None if it is removed.
    """

    number: int
    name: str
    episode: Episode | None


@dataclass(frozen=True)
class ReplicaOrigin:
    """What a replica is a replica of.

    Attributes:
        uri: of the fleet.
        identity: of its table, which a table that replaces it does not have.
        where: which episodes.
        layout: their layouts, as JSON.
        rate: their steps per second.
    """

    uri: str
    identity: str
    where: dict[str, str]
    layout: str
    rate: float | None


class Replica:
    """Rows of a fleet's table in a local folder, in the order of their numbers.

    `append` writes some rows as one file, which is there whole or not at all. `policy` is the folder of a policy saved
    from them; `forget` removes the files of rows that it contains. `names` are the sha256 of episodes by their numbers.

    Args:
        folder: created if it does not exist; one process at a time may use it.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).expanduser().resolve()
        with saving(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        others = [p.name for p in self.folder.iterdir() if not p.name.startswith(".")]
        if others and "replica.json" not in others:
            raise LoadError(f"{self.folder}: expected an empty folder or a fleet's replica, found {others[0]}")
        try:
            self._lock = lock_folder(self.folder)
        except RecordError as error:
            raise LoadError(
                f"{self.folder}: expected a replica that no other process uses, found {error}; each needs its own"
            ) from error
        self.origin = self._read_origin()
        self.policy = self.folder / "policy"
        self.names = self._read_names()

    def close(self) -> None:
        """Lets other processes use the folder."""
        self._lock.close()

    def begin(self, origin: ReplicaOrigin) -> None:
        """Notes what it is a replica of."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(origin)}
        write_file(self.folder / "replica.json", json.dumps(content, indent=2) + "\n")
        self.origin = origin

    def check(self, uri: str, where: Where) -> None:
        """Refuses to be used for another fleet, or for other episodes of it."""
        if self.origin is not None and (self.origin.uri, self.origin.where) != (uri, where.to_json()):
            chosen = ", ".join(f"{name} {value}" for name, value in self.origin.where.items()) or "all"
            raise LoadError(
                f"{self.folder}: expected the replica of {uri} ({where}), found that of {self.origin.uri} ({chosen}); "
                "choose another folder"
            )

    def append(self, rows: Sequence[tuple[FleetRow, Episode | None]]) -> list[Change]:
        """Writes rows, those of removals without an episode; they are on the disk when it returns."""
        assert self.origin is not None
        episodes = [episode for _, episode in rows if episode is not None]
        parts = zip(read_layouts(self.origin.layout), ("observations", "actions"), strict=True)
        arrays: dict[str, np.ndarray] = {
            name: np.concatenate([np.empty((0, layout.width), np.float32), *(getattr(e, name) for e in episodes)])
            for layout, name in parts
        }
        arrays["lengths"] = np.array([0 if episode is None else len(episode) for _, episode in rows], np.int64)
        arrays["numbers"] = np.array([row.number for row, _ in rows], np.int64)
        arrays["kinds"] = np.array([episode is not None for _, episode in rows], np.int8)
        arrays["names"] = np.array([list(bytes.fromhex(row.episode)) for row, _ in rows], np.uint8)
        arrays["crc32"] = np.frombuffer(crc32(arrays[name] for name in _ARRAYS).encode(), np.uint8)
        added = arrays["kinds"] > 0
        self._note_names(arrays["numbers"][added], arrays["names"][added])
        with replacing(self.folder / f"rows_{rows[-1][0].number:012d}.safetensors") as new:
            save_file(arrays, new)
        return [Change(row.number, row.episode, episode) for row, episode in rows]

    def changes(self, start: int) -> list[Change]:
        """The rows from a number on, in order."""
        found = []
        for path in self._parts():
            if int(path.name[5:17]) < start:
                continue
            try:
                with path.open("rb") as file:
                    arrays = map_safetensors(file)
                if crc32(arrays[name] for name in _ARRAYS).encode() != arrays["crc32"].tobytes():
                    raise ValueError("a checksum mismatch")
            except (OSError, ValueError, KeyError) as error:
                raise LoadError(f"{path}: expected rows of a replica, found {error}; remove the folder") from error
            ends = np.cumsum(arrays["lengths"])
            for i, number in enumerate(arrays["numbers"].tolist()):
                piece = slice(int(ends[i] - arrays["lengths"][i]), int(ends[i]))
                pair = arrays["observations"][piece], arrays["actions"][piece]
                episode = Episode(*pair) if arrays["kinds"][i] else None
                found.append(Change(number, arrays["names"][i].tobytes().hex(), episode))
        return [change for change in found if change.number >= start]

    @property
    def has_rows(self) -> bool:
        """Whether there is something to plan from."""
        return self.origin is not None and (self.policy.is_dir() or self.n_parts > 0)

    @property
    def n_parts(self) -> int:
        """How many files of rows there are."""
        return len(self._parts())

    def forget(self, end: int) -> None:
        """Removes the files of rows before a number, which the saved policy contains."""
        for path in self._parts():
            if int(path.name[5:17]) < end:
                path.unlink()

    def _parts(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if _PART.fullmatch(path.name))

    def _note_names(self, numbers: np.ndarray, names: np.ndarray) -> None:
        new = [number not in self.names for number in numbers.tolist()]  # an attempt that failed noted the others
        records = np.zeros(sum(new), _NAME)
        records["number"], records["name"] = numbers[new], names[new]
        path = self.folder / "names"
        with saving(path), path.open("ab") as file:
            file.truncate(file.tell() // _NAME.itemsize * _NAME.itemsize)  # what a crash left
            file.write(records.tobytes())
        flush(path)
        self.names |= zip(records["number"].tolist(), (name.tobytes().hex() for name in records["name"]), strict=True)

    def _read_names(self) -> dict[int, str]:
        path = self.folder / "names"
        data = path.read_bytes() if path.is_file() else b""
        records = np.frombuffer(data[: len(data) // _NAME.itemsize * _NAME.itemsize], _NAME)
        return {int(record["number"]): record["name"].tobytes().hex() for record in records}

    def _read_origin(self) -> ReplicaOrigin | None:
        path = self.folder / "replica.json"
        if not path.is_file():
            return None
        content = read_json(path, "a fleet's replica")
        known = isinstance(content, dict) and content.get("format") == FORMAT
        if not known or content.get("format_version") != FORMAT_VERSION:
            raise LoadError(f"{path}: expected a fleet's replica of format {FORMAT_VERSION}, found another file")
        try:
            origin = ReplicaOrigin(**{field.name: content[field.name] for field in fields(ReplicaOrigin)})
            read_layouts(origin.layout)
        except (KeyError, TypeError, ClosedFormError) as error:
            raise LoadError(f"{path}: expected a fleet's replica, found {error!r}; remove the folder") from error
        return origin
