"""ModelSpec: what a model is built with, besides the episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from closedform.demos.episode import Episode
from closedform.rewrites.copies import Symmetry
from closedform.rewrites.targets import Targets
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
        targets: converts recorded actions into those that are planned; None if they are the same.
        symmetry: in which other poses demonstrations count; None if they count only as recorded.
    """

    windows: WindowSpec
    kernel: KernelSpec
    transfer: TransferSpec
    search: SearchSpec = SearchSpec()
    targets: Targets | None = None
    symmetry: Symmetry | None = None

    @property
    def n_copies(self) -> int:
        """In how many poses an episode counts."""
        return 1 if self.symmetry is None else len(self.symmetry)

    def images(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Recorded episodes, each followed by its images."""
        if self.symmetry is None:
            return list(episodes)
        return [image for episode in episodes for image in self.symmetry.images(episode)]

    def planned(self, episode: Episode) -> Episode:
        """An episode with its actions converted to those that are planned."""
        return episode if self.targets is None else self.targets.episode(episode)
