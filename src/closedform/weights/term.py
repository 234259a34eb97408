"""Term: an addition to squared distances that makes some demonstrations count as farther away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from closedform.kernels.records import Candidates

if TYPE_CHECKING:
    from closedform.store.store import Store
    from closedform.weights.observation_kernel import ObservationKernel

Array = Any


class Term(ABC):
    """A number for each candidate that is added to its squared distance in the metric.

    A term is a frozen dataclass of numbers and arrays. It is written against the array API, so that the same lines run
    on numpy arrays and, for many plans at once, on torch tensors. For speed, built-in terms also have a compiled form.

        @dataclass(frozen=True)
        class SameTask(Term):
            task: int
            weight: float
            tasks: Any = None  # (E,)

            def fit(self, store, kernel):
                return replace(self, tasks=np.array([task_of(episode) for episode in store.episodes]))

            def __call__(self, candidates):
                return self.weight * (self.tasks[candidates.episodes] != self.task)

        policy = ClosedFormPolicy(demos, terms=[SameTask(task=3, weight=4.0)])
    """

    def fit(self, store: Store, kernel: ObservationKernel) -> Term:
        """The term fitted to all demonstrations; called whenever these change."""
        return self

    @property
    def idle(self) -> bool:
        """Whether a fitted term adds nothing to any distance; it is then dropped."""
        return False

    @abstractmethod
    def __call__(self, candidates: Candidates) -> Array:
        """The additions (..., k), in units of the squared metric."""
