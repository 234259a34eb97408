"""ModelSpec: what a model is built with, besides the episodes."""

from __future__ import annotations

from dataclasses import dataclass

from closedform.demos.episode import Episode
from closedform.retrieval.observation_kernel import KernelSpec
from closedform.retrieval.targets import Targets
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
        targets: how recorded actions become those that are planned; None where they are the same.
    """

    windows: WindowSpec
    kernel: KernelSpec
    transfer: TransferSpec
    search: SearchSpec = SearchSpec()
    targets: Targets | None = None

    def planned(self, episode: Episode) -> Episode:
        """A recorded episode with the actions that are planned."""
        return episode if self.targets is None else self.targets.episode(episode)
