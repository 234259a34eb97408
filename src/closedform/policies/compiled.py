"""Plans in one compiled call: for one agent, or for several, each as if it planned alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from closedform import kernels
from closedform.kernels.records import Draws, Observed, Planned, Rows, Sampling, Told
from closedform.policies.generated import NEGLIGIBLE, Made
from closedform.policies.plan import Plan
from closedform.retrieval.model import Model
from closedform.retrieval.penalty import Penalty

if TYPE_CHECKING:
    from closedform.policies.closed_form import ClosedFormPolicy


def plan_each(
    policy: ClosedFormPolicy,
    model: Model,
    everything: Rows,
    windows: np.ndarray,
    rngs: Sequence[np.random.Generator],
    penalties: Sequence[Penalty],
    leads: Sequence[np.ndarray | None],
) -> list[Made | None]:
    """Plans for windows (B, N_o, D_o), bit for bit what `plan_one` makes of each; None for those it cannot plan.

    Args:
        policy, model: what to plan with.
        everything: the rows of the model.
        windows: checked ones.
        rngs, penalties, leads: of each agent, as for `ClosedFormPolicy._plan`.
    """
    from closedform.kernels import plan as kernel_plan

    kernel, transfer, n_plans = model.kernel, model.transfer, len(windows)
    k, size = policy.n_neighbors(model), transfer.chunk_size
    drawn = [policy.draw(rng, 1, 1, size) for rng in rngs]
    planned = unfilled(n_plans, 1, size, k, len(transfer.hands))
    told = Told(np.empty((n_plans, 1, size)), np.empty((n_plans, k), np.int64), np.empty((n_plans, k)))
    rows, values = (np.concatenate([getattr(each, name) for each in penalties]) for name in ("rows", "values"))
    with kernels.announced(kernel_plan.plan_each):
        counts = kernel_plan.plan_each(
            everything,
            kernel.record,
            kernel.term_records(Penalty(rows, values)),
            np.cumsum([0, *(len(each.rows) for each in penalties)]),
            transfer.record,
            Sampling(policy.steps, policy.cut(k), math.inf),
            Draws(*(np.concatenate(parts) for parts in zip(*drawn, strict=True))),
            Observed(
                kernel.spec.feature_map.lift(windows),
                kernel.offset,
                kernel.scale,
                transfer.poses(windows[:, -1]),
            ),
            k,
            NEGLIGIBLE,
            planned,
            told,
        )
    return [
        as_made(
            policy,
            model,
            windows[b : b + 1],
            int(counts[b]),
            Planned(*(each[b : b + 1] for each in planned)),
            Told(told.actions[b : b + 1], told.rows[b], told.weights[b]),
            leads[b],
        )
        for b in range(n_plans)
    ]


def as_made(
    policy: ClosedFormPolicy,
    model: Model,
    windows: np.ndarray,
    count: int,
    planned: Planned,
    told: Told,
    lead: np.ndarray | None,
) -> Made | None:
    """The plan that a kernel made for a window (1, N_o, D_o); None if it could not.

    Args:
        policy, model, windows: what was planned with, and for.
        count: how many demonstrations are told.
        planned, told: of the one plan.
        lead: that of `Targets.to_actions`.
    """
    if not count:
        return None
    store, transfer = model.store, model.transfer
    rows, choice = told.rows[:count].copy(), planned.choices[0].copy()
    frame, held = transfer.names(choice)
    actions = transfer.decoded(told.actions.reshape(1, 1, policy.config.n_action_steps, -1))
    plan = Plan(
        actions=policy.to_actions(model, windows, actions, lead)[0, 0],
        frame=frame,
        held=held,
        shrinkage=model.kernel.shrinkage,
        choice=choice,
        episodes=store.episode_ids[store.row_episodes[rows]],
        steps=store.row_steps[rows],
        images=store.images_of(rows),
        weights=told.weights[:count].copy(),
        distance=float(planned.distances[0]),
        n_steps=len(policy.steps),
    )
    return Made(plan, model, rows)


def unfilled(n_plans: int, n_samples: int, size: int, k: int, n_hands: int) -> Planned:
    """Uninitialized arrays for plans."""
    return Planned(
        chunks=np.empty((n_plans, n_samples, size)),
        choices=np.empty((n_plans, n_hands, 2), np.int64),
        distances=np.empty(n_plans),
        rows=np.empty((n_plans, k), np.int64),
        weights=np.empty((n_plans, n_samples, k)),
        n_steps=np.empty((n_plans, n_samples), np.int64),
        ended=np.empty((n_plans, n_samples)),
        mixed=np.empty((n_plans, n_samples), bool),
    )
