"""ActionPrefix: the actions of the last chunk that a plan has to continue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import DataError
from closedform.geometry.layout import Layout
from closedform.weights.penalty import Penalty

if TYPE_CHECKING:
    from closedform.policies.plan import Plan
    from closedform.store.model import Model

CORRELATION = 0.5  # r, of the errors of successive actions; chosen on Push-T, seeds below 100000
_STRAIGHT = ("position", "vector", "other")


@dataclass(frozen=True)
class ActionPrefix:
    """Actions of the last chunk that the robot has not executed when it asks for the next plan.

    The first `delay` of them, x_1..x_d, will be executed before the plan arrives, so the plan begins with them. The
    rest follows from the mixture of the demonstrated chunks a_j, smoothed by tau with errors that are correlated in
    time, for each number,

        p(a | o) = sum_j w_j(o) N(a; a_j, tau^2 R),    R_ik = r^|i - k|,    r = 0.5.

    Given the first actions it is again such a mixture, so nothing has to be held in the sampler, which runs on

        w_j(o) exp(-sum_i c_i |e_i - r e_(i-1)|^2 / (2 tau^2 (1 - r^2))),    e_i = x_i - a_ji,    c_i = 1 for i <= d

    (the first term being |e_1|^2), and the conditional means are those of the demonstrations with the last error fading
    out, a_ji + r^(i - d) e_d: the plan goes on from where the robot is, and returns to the demonstrations. The actions
    after the first d may still change. They count less the later they come, so that among demonstrations that agree
    with what is executed the one is preferred that the robot follows: c_i falls from 1 to 0, as in real-time chunking
    (Black et al., 2025); this part is a preference and not exact.

    Attributes:
        actions: (n, D_a), the next one first.
        delay: d, how many of them are executed before the plan arrives.
    """

    actions: np.ndarray
    delay: int

    def __post_init__(self):
        actions = real_array(self.actions, "left_over").astype(np.float64)
        if actions.ndim != 2 or not np.isfinite(actions).all():
            raise DataError(f"left_over: expected finite actions (n, D_a), found shape {actions.shape} or others")
        if not 0 <= self.delay <= len(actions):
            raise DataError(
                f"delay: expected at most the {len(actions)} actions that are left over, found {self.delay}: "
                "what would the robot execute meanwhile?"
            )
        object.__setattr__(self, "actions", actions)

    @property
    def counts(self) -> np.ndarray:
        """(n,), c: how much each action counts."""
        steps = np.arange(len(self.actions))
        falling = np.clip((len(steps) - steps) / (len(steps) - self.delay + 1), 0, 1)
        return np.where(steps < self.delay, 1.0, falling * np.expm1(falling) / np.expm1(1))

    def penalty(self, model: Model, window: np.ndarray, k: int, tau: float) -> Penalty:
        """What it adds to the squared distances of the k nearest rows of a window (N_o, D_o), smoothed by tau."""
        n_actions, width = model.spec.windows.n_action_steps, model.spec.windows.action_layout.width
        if self.actions.shape[1] != width or len(self.actions) > n_actions:
            raise DataError(
                f"left_over: expected at most {n_actions} actions of {width} numbers, found shape {self.actions.shape}"
            )
        near = model.near(window, k)
        transfer = model.transfer
        offset, scale = transfer.normalization(near.choice)
        here = transfer.into(transfer.encoding.encode(self.actions[None]), transfer.poses(window[-1:]), near.choice)
        chunks = model.normalized_chunks(near.rows, near.choice).reshape(len(near.rows), -1, len(scale))
        errors = (here[0] - offset) * scale - chunks[:, : len(self.actions)]
        errors[:, 1:] = (errors[:, 1:] - CORRELATION * errors[:, :-1]) / np.sqrt(1 - CORRELATION**2)
        apart = (errors**2).sum(2) @ self.counts
        apart -= apart.min()  # the same for all, so that a penalty stays small beside the distances
        return Penalty(near.rows, (model.kernel.h / tau) ** 2 * apart)

    def join(self, plan: Plan, layout: Layout) -> Plan:
        """The plan, beginning with the actions that are executed before it arrives, and going on from there.

        Args:
            plan: made with the prefix's penalty.
            layout: of an action; numbers that are no straight line, such as quaternions, do not go on but change.
        """
        if not self.delay:
            return plan
        actions = plan.actions.copy()
        error = self.actions[self.delay - 1] - actions[self.delay - 1]
        for entry, columns in layout.slices():
            if entry.kind == "angle":
                error[columns] -= 2 * np.pi * np.round(error[columns] / (2 * np.pi))
            elif entry.kind not in _STRAIGHT:
                error[columns] = 0.0
        fading = CORRELATION ** np.arange(1, len(actions) - self.delay + 1)
        actions[self.delay :] += fading[:, None] * error
        actions[: self.delay] = self.actions[: self.delay]
        return replace(plan, actions=actions)
