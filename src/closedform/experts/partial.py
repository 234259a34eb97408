"""Partial: the episodes of a generation that is under way, one file each."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from closedform import __version__
from closedform.errors import LoadError
from closedform.evaluation.robomimic import environment_arguments
from closedform.experts.record import Recorded
from closedform.files import appearing, read_json, write_file

FACTS = "generation.json"
EPISODE = "episode"  # its group in a file


class Partial:
    """A folder of episodes: `seed_N.hdf5` if the expert succeeded, `seed_N.failed` if not.

    HDF5 is made in memory and then written, since its library crashes where a disk is full.

    Args:
        h5py: the package.
        folder: where; one that a generation of the same task and seed left is gone on from.
        task, seed: what is generated.

    Attributes:
        tried: the seeds so far, each with whether it succeeded.
    """

    def __init__(self, h5py: Any, folder: Path, task: str, seed: int):
        self._h5py, self._folder, self._task = h5py, folder, task
        self.tried: dict[int, bool] = {}
        facts = {"task": task, "seed": seed}
        if not folder.exists():
            write_file(folder / FACTS, json.dumps(facts) + "\n")
            return
        if not (folder / FACTS).is_file():
            raise LoadError(
                f"{folder}: expected a generation to go on with, found something else: remove it or choose another name"
            )
        found = read_json(folder / FACTS)
        if found != facts:
            raise LoadError(
                f"{folder}: expected a generation of {task!r} from seed {seed} to go on with, found {str(found)[:80]}: "
                "remove it to begin anew"
            )
        for path in folder.iterdir():
            if match := re.fullmatch(r"seed_([0-9]{1,10})\.(hdf5|failed)", path.name):
                self.tried[int(match[1])] = match[2] == "hdf5"
        if sorted(self.tried) != list(range(seed, seed + len(self.tried))):
            raise LoadError(f"{folder}: expected the seeds from {seed} on, found some missing: remove it to begin anew")

    def add(self, seed: int, recorded: Recorded | None) -> None:
        """Keeps the episode of a seed, whole or not at all."""
        if recorded is None:
            write_file(self._folder / f"seed_{seed}.failed", "")
        else:
            made = self._in_memory(lambda file: _write(file.create_group(EPISODE), seed, recorded))
            write_file(self._folder / f"seed_{seed}.hdf5", made)
        self.tried[seed] = recorded is not None

    def finish(self, path: Path, n_episodes: int) -> None:
        """Numbers the successes in the order of their seeds, says what they are, and removes the folder."""
        kept = [seed for seed in sorted(self.tried) if self.tried[seed]][:n_episodes]

        def write(file: Any) -> None:
            data = file.create_group("data")
            for number, seed in enumerate(kept):
                self._copy(seed, data, f"demo_{number}")
            data.attrs.update(
                total=sum(int(demo.attrs["num_samples"]) for demo in data.values()),
                env_args=json.dumps(environment_arguments(self._task)),
                source=f"scripted by closedform {__version__}: no person demonstrated anything",
                tried=sorted(self.tried).index(kept[-1]) + 1,
            )

        made = self._in_memory(write)
        with appearing(path, folder=False) as target:
            target.write_bytes(made)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _copy(self, seed: int, data: Any, name: str) -> None:
        path = self._folder / f"seed_{seed}.hdf5"
        try:
            with self._h5py.File(path, "r") as file:
                file.copy(EPISODE, data, name)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise LoadError(f"{path}: expected an episode, found it damaged: remove {self._folder}") from error

    def _in_memory(self, write: Callable[[Any], None]) -> bytes:
        with self._h5py.File("memory", "w", driver="core", backing_store=False) as file:
            write(file)
            file.flush()
            return file.id.get_file_image()


def _write(group: Any, seed: int, recorded: Recorded) -> None:
    n = len(recorded.actions)
    group.attrs.update(num_samples=n, model_file=recorded.model, seed=seed)
    arrays = {
        **{f"obs/{key}": values for key, values in recorded.observations.items()},
        "actions": recorded.actions,
        "states": recorded.states,
        "rewards": recorded.successes.astype(np.float64),
        "dones": (np.arange(n) == n - 1).astype(np.int64),
    }
    for name, values in arrays.items():
        group.create_dataset(name, data=values, compression="gzip", shuffle=True)
