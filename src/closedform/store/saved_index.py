"""SavedIndex: what config.json says about the files of an indexed model, and their verification on opening."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from closedform.errors import LoadError
from closedform.files import crc32
from closedform.snapshot import Snapshot
from closedform.store.faiss_file import IndexFile, IndexSeal
from closedform.store.faiss_index import FaissIndex
from closedform.store.recall import Recall
from closedform.store.spec import ModelSpec
from closedform.store.summary import Summary

SCALING = ("feature_offset", "feature_scale", "entry_weights")
_REPLACED = "expected the policy that was opened or saved, found another: it was replaced or damaged"
_MISMATCH = "checksum mismatch: the files are damaged"


@dataclass(frozen=True)
class SavedIndex:
    """What is needed to open the files of an indexed model.

    Attributes:
        identity: checksum of the demonstrations, which the summary contains as well.
        n_indexed: rows in the index.
        recall: its measured recall.
        seal, summary_crc32, episodes_crc32: checksums of the index, of the summary's file, and of lengths and ids of
            episodes; None if it was saved before there were checksums.
        chosen_shrinkage: see `ObservationKernel`.
        removed: the indices of removed episodes, whose rows are never found.
    """

    FILES: ClassVar[tuple[str, ...]] = ("policy.safetensors", "summary.safetensors", "index.faiss")
    WHOLE_UP_TO: ClassVar[int] = 256_000_000  # bytes, which take less than half a second to read once more

    identity: str
    n_indexed: int
    recall: Recall
    seal: IndexSeal | None
    summary_crc32: str | None
    episodes_crc32: str | None
    chosen_shrinkage: float | None = None
    removed: tuple[int, ...] = ()

    @classmethod
    def parse(cls, snapshot: Snapshot, facts: dict[str, Any]) -> SavedIndex:
        """Reads what `RecordedSteps.write` returned."""
        try:
            recall, n_indexed, seal = Recall(**facts["recall"]), facts["n_indexed"], facts.get("seal")
            for field in fields(Recall):
                value, kinds = getattr(recall, field.name), {"int": (int,), "float": (int, float)}[str(field.type)]
                if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 2**63:
                    raise ValueError(f"{field.name} {str(value)[:50]}")
            if not 1 <= recall.n_probes <= recall.n_lists:
                raise ValueError(f"n_probes {recall.n_probes} of n_lists {recall.n_lists}")
            if type(n_indexed) is not int or not 1 <= n_indexed < 2**63:
                raise ValueError(f"n_indexed {str(n_indexed)[:50]}")
            sums = [facts.get(name) for name in ("identity", "summary_crc32", "episodes_crc32")]
            if not isinstance(sums[0], str) or not all(isinstance(value, str | None) for value in sums):
                raise ValueError("checksums that are not text")
            chosen = facts.get("chosen_shrinkage")
            if chosen is not None and (type(chosen) not in (int, float) or not 0 <= chosen <= 1):
                raise ValueError(f"chosen_shrinkage {str(chosen)[:50]}")
            removed = facts.get("removed", [])
            if not isinstance(removed, list) or not all(type(index) is int and index >= 0 for index in removed):
                raise ValueError(f"removed {str(removed)[:50]}")
            seal = None if seal is None else IndexSeal(**seal)
            return cls(sums[0], n_indexed, recall, seal, sums[1], sums[2], chosen, tuple(removed))
        except (KeyError, TypeError, ValueError) as error:
            path = snapshot.folder / "config.json"
            raise LoadError(f"{path}: expected the measured recall of the index, found {error!r}") from error

    @property
    def has_checksums(self) -> bool:
        """Whether damage to any file can be detected."""
        return None not in (self.seal, self.summary_crc32, self.episodes_crc32)

    def is_small(self, snapshot: Snapshot) -> bool:
        """Whether the files are small enough to verify all checksums on every opening."""
        return sum(snapshot.size(name) for name in self.FILES if name in snapshot.files) <= self.WHOLE_UP_TO

    def check_steps(self, snapshot: Snapshot, steps: dict[str, np.ndarray], *, whole: bool) -> None:
        """Verifies that the demonstrations are those that were saved; `whole` reads every number."""
        if set(steps) != {"observations", "actions", "lengths", "episode_ids"}:
            raise LoadError(f"{snapshot.folder}: {_REPLACED}")
        episodes = crc32([steps["lengths"], steps["episode_ids"]])
        names = ("observations", "actions", "lengths", "episode_ids")
        if self.episodes_crc32 not in (None, episodes):
            raise LoadError(f"{snapshot.folder}: {_REPLACED}")
        if whole and crc32(steps[name] for name in names) != self.identity:
            raise LoadError(f"{snapshot.folder}: {_MISMATCH}")

    def check_whole(self, snapshot: Snapshot, steps: dict[str, np.ndarray]) -> None:
        """Verifies the checksums of all files, reading every byte."""
        self.check_steps(snapshot, steps, whole=True)
        for name in self.FILES[1:]:
            if name not in snapshot.files:
                raise LoadError(f"{snapshot.folder}: expected {name} beside config.json, found none; build it again")
        data = [np.memmap(snapshot.files[name], np.uint8, "r") for name in self.FILES[1:]]
        if self.summary_crc32 not in (None, crc32([data[0]])):
            raise LoadError(f"{snapshot.folder / self.FILES[1]}: {_MISMATCH}")
        try:
            found = IndexSeal.of(data[1], IndexFile.parse(data[1]).head)
        except ValueError as error:
            raise LoadError(f"{snapshot.folder / self.FILES[2]}: {_MISMATCH}: {error}") from error
        if self.seal is not None and not found.agrees(self.seal):
            raise LoadError(f"{snapshot.folder / self.FILES[2]}: {_MISMATCH}")

    def removed_of(self, snapshot: Snapshot, n_episodes: int) -> np.ndarray | None:
        """Which of the episodes were removed, (E,); None if none was."""
        if not self.removed:
            return None
        removed = np.isin(np.arange(n_episodes), self.removed)
        if removed.sum() != len(self.removed) or removed.all():
            path = snapshot.folder / "config.json"
            raise LoadError(f"{path}: expected removed episodes among {n_episodes}, found {str(self.removed)[:100]}")
        return removed

    def read_arrays(self, snapshot: Snapshot) -> dict[str, np.ndarray]:
        """The arrays of the summary, which must have been saved with these demonstrations."""
        path = snapshot.folder / "summary.safetensors"
        arrays = {name: np.array(array) for name, array in snapshot.arrays(path.name).items()}
        try:
            identity = arrays.pop("identity").tobytes().decode()
        except (KeyError, ValueError) as error:
            raise LoadError(f"{path}: expected the summary that was saved, found {error!r}") from error
        if identity != self.identity:
            raise LoadError(f"{snapshot.folder}: {_REPLACED}")
        if self.summary_crc32 not in (None, crc32([np.memmap(snapshot.files[path.name], np.uint8, "r")])):
            raise LoadError(f"{path}: {_MISMATCH}")
        return arrays

    def read_summary(
        self, arrays: dict[str, np.ndarray], path: Path, spec: ModelSpec, n_episodes: int, n_windows: int, width: int
    ) -> tuple[Summary, list[np.ndarray]]:
        """The summary, and offset, scale and relevance of features; refused if they do not fit the demonstrations.

        Args:
            arrays: see `read_arrays`.
            path: where they are from.
            spec: of the model.
            n_episodes, n_windows, width: of its demonstrations, and of features.
        """
        try:
            scaling = [arrays[name] for name in SCALING]
            summary = Summary.from_arrays({name: arrays[name] for name in arrays if name not in SCALING})
        except (KeyError, TypeError) as error:
            raise LoadError(f"{path}: expected the summary that was saved, found {error!r}") from error
        if any(part.shape != (width,) for part in scaling):
            raise LoadError(
                f"{path}: expected scales of {width} features, as the parameters in config.json require, found "
                f"{scaling[0].size}"
            )
        if any(part.dtype.kind != "f" or not np.isfinite(part).all() for part in scaling):
            raise LoadError(f"{path}: expected finite feature scales, found non-finite ones; the file is damaged")
        problem = summary.problem(spec, n_episodes, n_windows, width)
        if problem:
            raise LoadError(f"{path}: expected a summary of {n_episodes} episodes, found {problem}; build it again")
        return summary, scaling

    def read_index(self, snapshot: Snapshot, features: Any, *, whole: bool) -> FaissIndex:
        """The index of rows whose features are given, (n, D)."""
        path = snapshot.folder / "index.faiss"
        if path.name not in snapshot.files:
            raise LoadError(f"{snapshot.folder}: expected {path.name} beside config.json, found none; build it again")
        file = snapshot.files[path.name]
        return FaissIndex.read(file, path, features, self.recall, self.n_indexed, self.seal, whole=whole)
