"""Reads Diffusion Policy's replay buffers: zarr groups `data/*` and `meta/episode_ends` (extra `data`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.layout import Layout
from closedform.errors import LoadError, MissingExtraError


def read_replay_buffer(
    path: str | Path,
    *,
    observation_key: str = "state",
    action_key: str = "action",
    observation_layout: Layout | None = None,
    action_layout: Layout | None = None,
) -> Demos:
    """Reads the episodes of a replay buffer, a folder or a zip.

    Args:
        path: the `.zarr` folder or `.zarr.zip` file.
        observation_key, action_key: the arrays of `data/` to read.
        observation_layout, action_layout: what their numbers are.
    """
    try:
        import zarr
        from zarr.storage import LocalStore, ZipStore
    except ImportError as error:
        raise MissingExtraError("zarr", "data", "reading a replay buffer") from error
    path = Path(path)
    if not path.exists():
        raise LoadError(f"{path}: expected a zarr replay buffer, found nothing there")
    store = LocalStore(path, read_only=True) if path.is_dir() else ZipStore(path, mode="r", read_only=True)
    try:
        group = zarr.open_group(store, mode="r")
        observations, actions, ends = (
            np.asarray(group[key][:])  # pyright: ignore[reportIndexIssue, reportArgumentType]
            for key in (f"data/{observation_key}", f"data/{action_key}", "meta/episode_ends")
        )
        store.close()  # not after a failure: a zip that never opened cannot be closed either
    except Exception as error:
        raise LoadError(
            f"{path}: expected data/{observation_key}, data/{action_key} and meta/episode_ends, found {error!r}"
        ) from error
    if len(ends) == 0 or np.any(np.diff(ends, prepend=0) <= 0) or not ends[-1] == len(observations) == len(actions):
        raise LoadError(
            f"{path}: expected episode_ends to increase up to the number of steps, found {len(ends)} ends, the last "
            f"{ends[-1] if len(ends) else None}, for {len(observations)} observations and {len(actions)} actions"
        )
    starts = np.append(0, ends[:-1])
    pairs = [(observations[a:b], actions[a:b]) for a, b in zip(starts, ends, strict=True)]
    return Demos(pairs, observation_layout, action_layout)
