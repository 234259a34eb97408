"""ModelSpec: what a model is built with, besides the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from closedform.demos.episode import Episode
from closedform.retrieval.observation_kernel import KernelSpec
from closedform.retrieval.pace import paced
from closedform.retrieval.symmetry import Symmetry
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
        symmetry: in which other poses demonstrations count; None where they count as they are.
    """

    windows: WindowSpec
    kernel: KernelSpec
    transfer: TransferSpec
    search: SearchSpec = SearchSpec()
    targets: Targets | None = None
    symmetry: Symmetry | None = None

    @property
    def n_images(self) -> int:
        """In how many poses an episode counts."""
        return 1 if self.symmetry is None else len(self.symmetry)

    def images(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Recorded episodes, each followed by its images."""
        if self.symmetry is None:
            return list(episodes)
        return [image for episode in paced(episodes) for image in self.symmetry.images(episode)]

    def planned(self, episode: Episode) -> Episode:
        """A recorded episode with the actions that are planned."""
        return episode if self.targets is None else self.targets.episode(episode)
