"""Tape: records the takes of a session into a folder, and goes on if the disk is full."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.folder import EPISODE
from closedform.demos.load import load_demos
from closedform.demos.recorder import Recorder, RecordError, recover
from closedform.errors import ClosedFormError
from closedform.files import saving
from closedform.geometry.layout import Layout
from closedform.studio.edit_log import EditLog
from closedform.studio.take import Take

_DELETED = "deleted"


class Tape:
    """Records takes with the crash-safe `Recorder`; what could not be written is written with the next take.

    Deleted takes are moved to the folder `deleted` and back, so nothing is ever lost. Edits are in `edits.jsonl`.

    Args:
        folder: an empty or new folder, or one that was recorded to before.
        observation_layout, action_layout: the layouts.
        rate: steps per second.

    Attributes:
        before: the demonstrations that were in the folder, with those of a session that was killed; None if none.
        files: their numbers.
    """

    def __init__(self, folder: Path, observation_layout: Layout, action_layout: Layout, rate: float | None):
        self.folder = folder
        if folder.is_dir():
            recover(folder)
        self._recorder = Recorder(folder, observation_layout, action_layout, rate)
        self.files = sorted(int(match[1]) for path in folder.iterdir() if (match := EPISODE.fullmatch(path.name)))
        try:
            self.before: Demos | None = load_demos(folder) if self.files else None
        except ClosedFormError:
            self._recorder.close()
            raise
        self.log = EditLog(folder / "edits.jsonl")
        self._unsaved: list[Take] = []
        self._deleted: dict[int, Path] = {}
        self._recording = False

    def begin(self) -> None:
        """Begins a take, after those that could not be written before."""
        for take in tuple(self._unsaved):
            self._write(take)
        self._recorder.begin()
        self._recording = True

    def append(self, observation: np.ndarray, action: np.ndarray) -> None:
        """Adds a step; it is written within a quarter of a second."""
        if self._recording:
            self._recorder.append(observation, action)

    def end(self, take: Take | None) -> None:
        """Ends the take, which is on disk then; None discards it."""
        if not self._recording:
            if take is not None:
                self._unsaved.append(take)
            return
        self._recording = False
        if take is None:
            self._recorder.discard()
            return
        try:
            take.file = self._recorder.end()
        except RecordError:
            self._recorder.discard()
            self._unsaved.append(take)
            raise

    def delete(self, take: Take) -> None:
        """Moves a take that was recorded here out of the demonstrations."""
        if take.file is None:
            return
        here, there = self.folder / _name(take.file), self.folder / _DELETED / _name(take.file)
        with saving(there):
            there.parent.mkdir(exist_ok=True)
            for number in itertools.count(1):  # an earlier session may have deleted another take of the same number
                if not there.exists():
                    break
                there = there.with_name(f"{here.stem}.{number}{here.suffix}")
            here.rename(there)
        self._deleted[take.number] = there

    def restore(self, take: Take) -> None:
        """Moves a deleted take back."""
        there = self._deleted.pop(take.number, None)
        if there is not None and take.file is not None:
            with saving(there):
                there.rename(self.folder / _name(take.file))

    def close(self) -> None:
        """Stops recording."""
        self._recorder.close()

    def _write(self, take: Take) -> None:
        self._recorder.begin()
        try:
            for observation, action in zip(take.episode.observations, take.episode.actions, strict=True):
                self._recorder.append(observation, action)
            take.file = self._recorder.end()
        except RecordError:
            self._recorder.discard()
            raise
        self._unsaved.remove(take)
        if take.policy_id is None:
            self.delete(take)


def _name(number: int) -> str:
    return f"episode_{number:06d}.safetensors"
