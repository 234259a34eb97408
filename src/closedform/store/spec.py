"""ModelSpec: what a model is built with, besides the episodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from closedform.rewrites.rewrite import Rewrites
from closedform.store.window_spec import WindowSpec
from closedform.transfer.transfer import TransferSpec
from closedform.weights.observation_kernel import KernelSpec


@dataclass(frozen=True)
class SearchSpec:
    """How neighbors are searched for.

    Attributes:
        index: `exact`, `faiss`, or `auto`, which is exact.
        recall: the required recall of neighbors that carry weight, for faiss.
        n_neighbors: neighbors per plan.
    """

    index: str = "auto"
    recall: float = 0.95
    n_neighbors: int = 2000


@dataclass(frozen=True)
class ModelSpec:
    """What a model is built with, besides the episodes.

    Attributes:
        windows: how episodes are cut.
        kernel: the weights of demonstrations.
        transfer: how their chunks apply to the current scene.
        search: how neighbors are found.
        rewrites: what demonstrations are turned into before they are cut.
    """

    windows: WindowSpec
    kernel: KernelSpec
    transfer: TransferSpec
    search: SearchSpec = SearchSpec()
    rewrites: Rewrites = field(default_factory=Rewrites)
