"""ModelSpec: what a model is built with, besides the episodes."""

from __future__ import annotations

from dataclasses import dataclass

from closedform.retrieval.observation_kernel import KernelSpec
from closedform.retrieval.transfer import TransferSpec
from closedform.retrieval.window_spec import WindowSpec


@dataclass(frozen=True)
class SearchSpec:
    """How neighbors are searched for.

    Attributes:
        index: `exact`, `faiss`, or `auto` for the faster one.
        recall: share of the neighbors that carry weight which faiss has to find.
        n_neighbors: how many a plan asks for.
    """

    index: str = "auto"
    recall: float = 0.95
    n_neighbors: int = 2000


@dataclass(frozen=True)
class ModelSpec:
    """What a model is built with, besides the episodes.

    Attributes:
        windows: how episodes are cut.
        kernel: who counts.
        transfer: what a demonstration says here.
        search: how neighbors are found.
    """

    windows: WindowSpec
    kernel: KernelSpec
    transfer: TransferSpec
    search: SearchSpec = SearchSpec()
