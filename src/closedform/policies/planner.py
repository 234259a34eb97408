"""Planner: plans from one model, `plan, state = planner.step(window, state, rng)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from closedform.policies.backends.backend import Backend, Query
from closedform.policies.deadline import Deadline
from closedform.policies.plan import Plan
from closedform.policies.plan_batch import PlanBatch
from closedform.store.model import Model
from closedform.weights.penalty import Penalty
from closedform.weights.state import RememberingTerm, State, Used


class Planner:
    """Plans from one model. Nothing is hidden: the same window, state and generator give the same plan.

    Args:
        model: the demonstrations and everything derived from them.
        backend: what does the work.
        n_neighbors: k.
        remembering: the terms that remember, as they are before the first plan.
        deadline: how long a plan may take.
    """

    def __init__(
        self,
        model: Model,
        backend: Backend,
        n_neighbors: int,
        remembering: tuple[RememberingTerm, ...] = (),
        deadline: Deadline | None = None,
    ):
        self.model, self.backend, self.k = model, backend, min(n_neighbors, len(model))
        self._remembering, self._deadline = remembering, deadline or Deadline(None)

    def begin(self) -> State:
        """The state before the first plan of an episode."""
        return State(self._remembering, rewrites=self.model.spec.rewrites.begin())

    def step(self, window: np.ndarray, state: State, rng: np.random.Generator) -> tuple[Plan, State]:
        """Plans for a checked window (N_o, D_o); returns the plan and the state after it."""
        return self._step(window[None], [state], [rng])[0]

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """`step` for several agents at once, each exactly as if it planned alone."""
        if self._deadline.seconds is not None:  # which is that of each plan
            return [self.step(*each) for each in zip(windows, states, rngs, strict=True)]
        return self._step(np.stack(windows), states, rngs)

    def _step(
        self, windows: np.ndarray, states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        model, deadline = self.model, self._deadline
        stop_at = deadline.stop_at(deadline.clock()) if deadline.seconds is not None else math.inf
        states = [state.on(model.store) for state in states]
        penalties = [state.penalty for state in states]
        query = Query(windows, rngs, 1, penalties, self.k, explain=True, stop_at=stop_at, clock=deadline.clock)
        batch = self._fill(query)
        made = [self._plan(batch, b, windows, state) for b, state in enumerate(states)]
        if deadline.seconds is not None:
            deadline.finished(float(batch.ended[0, 0]))
        planned = deadline.clock()
        after = [(plan, state.after(used)) for (plan, used), state in zip(made, states, strict=True)]
        deadline.remembered(planned)
        return after

    def _plan(self, batch: PlanBatch, b: int, windows: np.ndarray, state: State) -> tuple[Plan, Used]:
        """A plan of a batch, and what it was made of."""
        model, store = self.model, self.model.store
        rows, weights = batch.used[b, : batch.n_used[b]].copy(), batch.shares[b, : batch.n_used[b]].copy()
        choice, n_steps = batch.choices[b].copy(), int(batch.n_steps[b, 0])
        frame, held = model.transfer.names(choice)
        plan = Plan(
            actions=self.to_robot(batch.actions[b : b + 1], windows[b : b + 1], state.rewrites)[0, 0],
            frame=frame,
            held=held,
            shrinkage=model.kernel.shrinkage,
            choice=choice,
            episodes=store.episode_ids[store.row_episodes[rows]],
            steps=store.row_steps[rows],
            copies=store.copies_of(rows),
            weights=weights,
            distance=float(batch.distances[b]),
            n_steps=n_steps,
            complete=n_steps == self.backend.n_steps,
        )
        return plan, Used(store, rows, weights, plan.distance, model.kernel.h)

    def batch(
        self,
        windows: np.ndarray,
        n_samples: int,
        rng: np.random.Generator,
        *,
        explain: bool = False,
        penalty: Penalty | None = None,
    ) -> PlanBatch:
        """Samples chunks for windows (B, N_o, D_o), all drawing from one generator and with the same penalty."""
        penalties = () if penalty is None else [penalty] * len(windows)
        return self._fill(Query(windows, rng, n_samples, penalties, self.k, explain))

    def sample(self, windows: np.ndarray, n_samples: int, rng: np.random.Generator) -> np.ndarray:
        """Samples chunks in robot units, (B, n_samples, N_a, D_a)."""
        return self.to_robot(self.batch(windows, n_samples, rng).actions, windows)

    def _fill(self, query: Query) -> PlanBatch:
        with np.errstate(over="ignore", invalid="ignore"):  # the distance is then not finite
            return self.backend.fill(self.model, query).checked(self.model, query.windows)

    def to_robot(self, actions: np.ndarray, windows: np.ndarray, states: tuple[Any, ...] | None = None) -> np.ndarray:
        """Robot actions for encoded ones in the scenes of windows. (B, n, N_a * D) -> (B, n, N_a, D_a)."""
        return self.model.spec.rewrites.to_actions(self.planned(actions), windows[:, None, -1], states)

    def planned(self, actions: np.ndarray) -> np.ndarray:
        """The same before rewrites take plans back."""
        transfer = self.model.transfer
        return transfer.decoded(actions.reshape(*actions.shape[:2], transfer.spec.n_action_steps, -1))
