"""Building a model: in memory, or indexed if that is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from closedform.demos.episode import Episode
from closedform.errors import ClosedFormWarning, ConfigError
from closedform.store.in_memory import InMemory
from closedform.store.model import Model
from closedform.store.recorded_steps import Progress, RecordedSteps
from closedform.store.spec import ModelSpec

_MANY = 120_000  # windows beyond which faiss is faster: the crossover in docs/results/bench/cpu.md


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
    if spec.search.index == "faiss":
        if spec.rewrites.n_copies > 1:
            raise ConfigError(
                "index: expected exact where demonstrations count as their mirror images, found faiss; symmetry=false "
                "leaves these out"
            )
        return RecordedSteps.build(spec, episodes, episode_ids, progress)
    n_windows = (
        int(spec.windows.n_windows(np.array([len(episode) for episode in episodes])).sum()) * spec.rewrites.n_copies
    )
    if spec.search.index == "auto" and n_windows > _MANY:
        message = f"{n_windows} windows are searched one by one; index='faiss' is faster (extra 'ann')"
        warnings.warn(message, ClosedFormWarning, stacklevel=2)
    return InMemory.build(spec, episodes, episode_ids)
