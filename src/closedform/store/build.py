"""Building a model: in memory, or indexed where there are many demonstrations."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence

import numpy as np

from closedform.demos.episode import Episode
from closedform.errors import ClosedFormWarning, ConfigError
from closedform.store.in_memory import InMemory
from closedform.store.model import Model
from closedform.store.recorded_steps import Progress, RecordedSteps
from closedform.store.spec import ModelSpec

EXACT_UP_TO = 120_000  # windows that are searched exactly by default: the crossover in docs/results/bench/cpu.md


def stays_recorded(index: str, n_windows: int) -> bool:
    """Whether rows are computed on demand from recorded steps, rather than kept as arrays."""
    if index == "auto" and n_windows > EXACT_UP_TO:
        return importlib.util.find_spec("faiss") is not None
    return index == "faiss"


def build_model(
    spec: ModelSpec, episodes: Sequence[Episode], episode_ids: np.ndarray, progress: Progress | None = None
) -> Model:
    """The model of some episodes, with the storage that the requested index needs.

    Args:
        spec: how windows are cut, searched, weighted and transferred.
        episodes: the demonstrations.
        episode_ids: (E,), rising.
        progress: called with a description and the fraction done, if indexing takes long.
    """
    n_windows = int(spec.windows.n_windows(np.array([len(episode) for episode in episodes])).sum()) * spec.n_copies
    large = stays_recorded(spec.search.index, n_windows)
    if spec.search.index == "auto" and n_windows > EXACT_UP_TO and not large:
        message = f"{n_windows} windows are searched one by one; faiss is faster: pip install 'closedform[ann]'"
        warnings.warn(message, ClosedFormWarning, stacklevel=2)
    if large and spec.symmetry is not None:
        if spec.search.index == "faiss":
            raise ConfigError("index: expected auto or exact where layouts declare a symmetry, found faiss")
        large = False
    if large:
        return RecordedSteps.build(spec, episodes, episode_ids, progress)
    return InMemory.build(spec, episodes, episode_ids)
