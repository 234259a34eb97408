"""PlanBatch: what a backend plans, and the checks on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from closedform.errors import DataError
from closedform.finite import all_finite

if TYPE_CHECKING:
    from closedform.store.model import Model

NEGLIGIBLE = 1e-8  # weights below this are left out of a plan's list of demonstrations


class PlanBatch(NamedTuple):
    """The plans for B observations with n samples each; every backend fills one.

    Attributes:
        chunks: (B, n, N_a * D), transferred and normalized.
        actions: (B, n, N_a * D), the same as encoded actions in the current scene.
        choices: (B, hands, 2), how they were transferred; see `Transfer`.
        distances: (B,), to the nearest demonstration; NaN if distances or weights are not finite.
        rows: (B, k), the neighbors, -1 beyond the last; or (B, 0) if not requested.
        weights: (B, n, k), of those rows in each chunk; or (B, n, 0).
        used, shares: (B, k), of the first sample the rows whose weight is not negligible, the largest first, and their
            weights, which sum to one; or (B, 0).
        n_used: (B,), how many of them there are.
        n_steps: (B, n), diffusion steps taken.
        ended: (B, n), when the last of them ended, or NaN.
        mixed: (B, n), whether each chunk is a mixture of demonstrated ones, as it must be.
    """

    chunks: np.ndarray
    actions: np.ndarray
    choices: np.ndarray
    distances: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    used: np.ndarray
    shares: np.ndarray
    n_used: np.ndarray
    n_steps: np.ndarray
    ended: np.ndarray
    mixed: np.ndarray

    @classmethod
    def unfilled(cls, n_plans: int, n_samples: int, size: int, k: int, n_hands: int) -> PlanBatch:
        """Uninitialized arrays for plans."""
        return cls(
            chunks=np.empty((n_plans, n_samples, size)),
            actions=np.empty((n_plans, n_samples, size)),
            choices=np.empty((n_plans, n_hands, 2), np.int64),
            distances=np.empty(n_plans),
            rows=np.empty((n_plans, k), np.int64),
            weights=np.empty((n_plans, n_samples, k)),
            used=np.empty((n_plans, k), np.int64),
            shares=np.empty((n_plans, k)),
            n_used=np.empty(n_plans, np.int64),
            n_steps=np.empty((n_plans, n_samples), np.int64),
            ended=np.empty((n_plans, n_samples)),
            mixed=np.empty((n_plans, n_samples), bool),
        )

    def part(self, some: slice) -> PlanBatch:
        """Some of the plans, as views."""
        return PlanBatch(*(each[some] for each in self))

    def list_used(self, b: int) -> None:
        """Fills `used`, `shares` and `n_used` of a plan from its rows and weights."""
        used = np.flatnonzero(self.weights[b, 0] > NEGLIGIBLE)
        used = used[np.argsort(-self.weights[b, 0, used], kind="stable")]
        shares = self.weights[b, 0, used]
        self.n_used[b] = len(used)
        self.used[b, : len(used)], self.shares[b, : len(used)] = self.rows[b, used], shares / shares.sum()

    def checked(self, model: Model, windows: np.ndarray) -> PlanBatch:
        """The same plans, for windows (B, N_o, D_o); an error if some number is not finite, or a chunk no mixture."""
        if not all_finite(self.distances):
            model.kernel.features(windows)  # raises an error if it is due to the observation itself
            raise unmeasured(int(np.flatnonzero(~np.isfinite(self.distances))[0]))
        if not self.mixed.all():
            number = int(np.argwhere(~self.mixed)[0, 0])
            raise DataError(
                f"the plan for observation {number} is not a mixture of demonstrated chunks: expected its numbers "
                "within their range, found some beyond it or not finite; are actions, tau and bandwidth of sensible "
                "size?"
            )
        refuse_infinite(self.actions)
        return self


def unmeasured(number: int) -> DataError:
    """The error for an observation whose distance to the demonstrations is not finite."""
    return DataError(
        f"observation {number} cannot be compared with the demonstrations: its distance to them is not finite; "
        "is it in their units, and are bandwidth and regularization not tiny?"
    )


def refuse_infinite(actions: np.ndarray) -> np.ndarray:
    """Refuses actions (B, ...) in robot units that are not finite."""
    if not all_finite(actions):
        number = int(np.argwhere(~np.isfinite(actions))[0, 0])
        raise DataError(f"the plan for observation {number} is not finite in the robot's units: is it too far away?")
    return actions
