"""Generated: normalized plans before conversion to robot units, and the checks on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from closedform.errors import DataError
from closedform.policies.plan import Plan
from closedform.retrieval.finite import all_finite
from closedform.retrieval.model import Model

NEGLIGIBLE = 1e-8  # weights below this are left out of a plan's list of demonstrations


@dataclass(frozen=True)
class Generated:
    """The normalized plans for B observations with n samples each.

    Attributes:
        chunks: (B, n, N_a * D), transferred and normalized.
        choices: (B, hands, 2), how they were transferred; see `Transfer`.
        distances: (B,), to the nearest demonstration.
        rows: (B, k), rows of the store, -1 beyond the last; or (B, 0) if not requested.
        weights: (B, n, k), of those rows; or (B, n, 0).
        n_steps: (B, n), diffusion steps taken, or (B, 0).
        ended: (B, n), when the last of them ended, or NaN; or (B, 0).
        complete: whether all steps were taken.
        mixed: (B, n) or (B, 1), whether each chunk is a mixture of demonstrated ones, as it must be; or (0, 0).
    """

    chunks: np.ndarray
    choices: np.ndarray
    distances: np.ndarray
    rows: np.ndarray
    weights: np.ndarray
    n_steps: np.ndarray
    ended: np.ndarray
    complete: bool = True
    mixed: np.ndarray = field(default_factory=lambda: np.ones((0, 0), bool))


class Made(NamedTuple):
    """A plan, the model that it was made from, and the rows (m,) of its demonstrations."""

    plan: Plan
    model: Model
    rows: np.ndarray

    @classmethod
    def of(cls, made: Generated, model: Model, actions: np.ndarray) -> Made:
        """The first of the generated plans, with its actions (N_a, D_a) in robot units."""
        rows, weights = with_most_weight(made.rows[0], made.weights[0, 0])
        frame, held = model.transfer.names(made.choices[0])
        plan = Plan(
            actions=actions,
            frame=frame,
            held=held,
            shrinkage=model.kernel.shrinkage,
            choice=made.choices[0],
            episodes=model.store.episode_ids[model.store.row_episodes[rows]],
            steps=model.store.row_steps[rows],
            images=model.store.images_of(rows),
            weights=weights / weights.sum(),
            distance=float(made.distances[0]),
            n_steps=int(made.n_steps[0, 0]) if made.n_steps.size else 0,
            complete=made.complete,
        )
        return cls(plan, model, rows)


def with_most_weight(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows (k,) whose weights (k,) are not negligible, and these weights, the largest first."""
    used = np.flatnonzero(weights > NEGLIGIBLE)
    used = used[np.argsort(-weights[used], kind="stable")]
    return rows[used], weights[used]


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


def refuse_unsound(made: Generated) -> Generated:
    """Refuses observations at non-finite distances, and chunks outside the range of the demonstrated ones."""
    if not all_finite(made.distances):
        raise unmeasured(int(np.flatnonzero(~np.isfinite(made.distances))[0]))
    if not made.mixed.all():
        number = int(np.argwhere(~made.mixed)[0, 0])
        raise DataError(
            f"the plan for observation {number} is not a mixture of demonstrated chunks: expected its numbers within "
            "their range, found some beyond it or not finite; are actions, tau and bandwidth of sensible size?"
        )
    return made
