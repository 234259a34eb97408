"""Backend: what fills a `PlanBatch`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from closedform.policies.plan_batch import PlanBatch
from closedform.store.model import Model
from closedform.weights.penalty import Penalty


class Query(NamedTuple):
    """What is to be planned.

    Attributes:
        windows: (B, N_o, D_o), checked.
        rngs: one generator for all plans, or one for each.
        n_samples: chunks for each window.
        penalties: one for each window, or none.
        k: how many neighbors.
        explain: whether to fill rows and weights.
        stop_at: the time after which no further diffusion step begins.
        clock: tells the time; compiled code reads the one behind `time.perf_counter`.
    """

    windows: np.ndarray
    rngs: np.random.Generator | Sequence[np.random.Generator]
    n_samples: int
    penalties: Sequence[Penalty]
    k: int
    explain: bool
    stop_at: float = math.inf
    clock: Callable[[], float] = time.perf_counter

    def rng(self, b: int) -> np.random.Generator:
        """The generator of a plan."""
        return self.rngs if isinstance(self.rngs, np.random.Generator) else self.rngs[b]

    def penalty(self, b: int) -> Penalty:
        """The penalty of a plan."""
        return self.penalties[b] if self.penalties else Penalty.none()

    def unfilled(self, model: Model) -> PlanBatch:
        """Room for the plans."""
        shape = len(self.windows), self.n_samples, model.transfer.chunk_size
        return PlanBatch.unfilled(*shape, self.k if self.explain else 0, len(model.transfer.hands))


class Backend(Protocol):
    """Plans from a model, whatever the machinery."""

    @property
    def n_steps(self) -> int:
        """Diffusion steps of a plan that is not cut short."""
        ...

    def fill(self, model: Model, query: Query) -> PlanBatch:
        """Plans; unsound plans are refused by the caller."""
        ...
