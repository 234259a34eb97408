"""Damaged and hostile demonstrations: they load as usable numbers or are refused, and execute no code."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from closedform import Demos, load_demos, save_demos
from fuzz import changes, structure
from fuzz.worker import WrongResultError
from fuzz.worlds import make_demos

VERIFIED = {"folder"}  # formats whose reader promises to detect any changed number, whatever `verified` says
WORLD = {
    "observations": "hand position 2, block position 2, block angle",
    "actions": "hand position 2",
    "seed": 1,
    "n_episodes": 2,
    "n_steps": 5,
    "scale": 1.0,
    "repeated": False,
    "still": False,
}
ZIPPED = ("zarr2", "zarr3", "npz")  # archives, whose members or which themselves are changed
WRITTEN = {"folder": "folder", "zarr2": "zarr", "robomimic": "robomimic", "lerobot": "lerobot"}


class Formats:
    """A small dataset in every format, changed."""

    def __init__(self, folder: Path) -> None:
        """Writes the originals, with the package's writers and by hand."""
        self._folder, self._demos = folder, make_demos(WORLD)
        self._demos.rate = 10.0  # which LeRobot's format has to state
        for name, to in WRITTEN.items():
            save_demos(self._demos, folder / name, to)
        _write_by_hand(self._demos, folder)
        self._names = sorted(path.name for path in folder.iterdir())
        self._episodes = {_bytes_of(episode) for episode in self._demos}
        for name in self._names:
            self.check({"format": name, "changes": [], "zip": name == "npz"}, folder / "warm_up")
        shutil.rmtree(folder / "warm_up")

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Changes of bytes, JSON and structure, some of them specific to a format."""
        name = str(rng.choice(self._names))
        original = self._folder / name
        case: dict[str, Any] = {"format": name, "changes": changes.draw_changes(rng, original)}
        if name in ZIPPED:
            case["zip"] = name == "npz" or bool(rng.random() < 0.4)
            if case["zip"] and rng.random() < 0.3:
                size = int(rng.choice([100, 1000, 3000]))
                case["then"] = [
                    {"do": "flip", "file": "", "at": int(rng.integers(size)), "xor": int(rng.integers(1, 256))}
                ]
        if rng.random() < 0.3:
            special = structure.draw_change(rng, name, original)
            case["changes"] = [special] if special else case["changes"]
            case["refused"] = special.get("op") in ("external_link", "external_storage", "unwritten")
        return case

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Loads a changed copy."""
        original, path, canary = self._folder / case["format"], folder / case["format"], folder / "canary"
        folder.mkdir(exist_ok=True)
        (shutil.copytree if original.is_dir() else shutil.copy)(original, path)
        for change in case["changes"]:
            if change["do"] in structure.DO:
                structure.DO[change["do"]](path / change["file"] if change["file"] else path, canary, change)
            else:
                changes.apply(path, [change])
        if case.get("zip"):
            path = _zipped(path, path.with_name(case.get("name", f"{path.name}.zip")))
        changes.apply(path, case.get("then", []))
        try:
            demos = load_demos(path)
        finally:
            if canary.exists():
                raise WrongResultError("code ran from data")
        for array in (demos.all_observations(), demos.all_actions()):
            if not np.isfinite(array).all():
                raise WrongResultError("numbers that are not finite")
        if demos.rate is not None and not (isinstance(demos.rate, int | float) and 0 < demos.rate < np.inf):
            raise WrongResultError(f"a rate of {demos.rate!r}")
        promised = case["format"] in VERIFIED or getattr(demos, "verified", 0) == len(demos)
        if promised and not {_bytes_of(episode) for episode in demos} <= self._episodes:
            raise WrongResultError("numbers that differ from those saved")


def _bytes_of(episode: Any) -> bytes:
    return episode.observations.astype("<f8").tobytes() + episode.actions.astype("<f8").tobytes()


def _write_by_hand(demos: Demos, folder: Path) -> None:
    """The formats that the package only reads."""
    import h5py
    import zarr

    observations, actions = demos.all_observations(), demos.all_actions()
    ends, episode = np.cumsum([len(e) for e in demos]), np.repeat(np.arange(len(demos)), [len(e) for e in demos])
    group = zarr.create_group(str(folder / "zarr3"), zarr_format=3)
    for name, array in (("data/state", observations), ("data/action", actions), ("meta/episode_ends", ends)):
        group.create_array(name, data=array, chunks=array.shape)
    with h5py.File(folder / "minari", "w") as file:
        for index, one in enumerate(demos):
            file[f"episode_{index}/observations"] = np.append(one.observations, one.observations[-1:], 0)
            file[f"episode_{index}/actions"] = one.actions
    (folder / "npz").mkdir()
    for name, array in (("observations", observations), ("actions", actions), ("episode_ends", ends)):
        np.save(folder / "npz" / f"{name}.npy", array)
    names = ["episode", *(f"obs{i}" for i in range(5)), "act0", "act1"]
    table = np.column_stack([episode, observations, actions])
    np.save(folder / "columns.npy", np.array([tuple(row) for row in table], [(name, "<f8") for name in names]))
    rows = [",".join(names), *(",".join(map(repr, row)) for row in table.tolist())]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")


def _zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
    return path
