"""The catalogue of public datasets: where each lies in the cache and what its numbers are."""

from __future__ import annotations

import os
from pathlib import Path

from closedform.demos.demos import Demos
from closedform.demos.layout import Layout
from closedform.demos.replay_buffer import read_replay_buffer
from closedform.errors import LoadError

PUSHT_FILE = Path("pusht", "pusht_cchi_v7_replay_lowdim.zarr.zip")
PUSHT_OBSERVATIONS = Layout.of(("agent", "position", 2), ("block", "position", 2), ("block", "angle"))
PUSHT_ACTIONS = Layout.of(("agent", "position", 2))


def cache_folder() -> Path:
    """The folder of downloaded datasets: `CLOSEDFORM_DATA`, or `closedform` in the user's cache folder."""
    chosen = os.environ.get("CLOSEDFORM_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "closedform"


def load_pusht() -> Demos:
    """The 206 human demonstrations of Push-T (Chi et al., Diffusion Policy, 2023) from the cache."""
    path = cache_folder() / PUSHT_FILE
    if not path.exists():
        raise LoadError(f"{path}: expected the Push-T replay buffer; put it there, or set CLOSEDFORM_DATA to its cache")
    return read_replay_buffer(path, observation_layout=PUSHT_OBSERVATIONS, action_layout=PUSHT_ACTIONS)
